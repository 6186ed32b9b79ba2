//! A case: its story and its verdicts, which fit on a sheet of paper, and then how each way went.

use maud::{Markup, html};

use super::{
    figure,
    prose::{prose, sources, stopped},
    verdict, ways,
};
use crate::run::{Played, PlayedWay};

/// The section of the case that is told as the `n`th.
pub(super) fn section(n: usize, played: &Played) -> Markup {
    let story = &played.story;
    html! {
        section.case id=(played.case) {
            p.eyebrow { "Case " (n) " " span aria-hidden="true" { "\u{b7}" } " " span.name { (played.case) } " " (verdict::as_told(played.is_as_told())) }
            h2 { (prose(story.title)) }
            p.story { (prose(story.told)) }
            (sources(story.sources))
            h3 { "The ways side by side" }
            (ways::table(played))
            aside.instead { h3 { "What to do instead" } p { (prose(story.instead)) } }
            h3 { "What happened" }
            p.schedule { span.label { "The schedule" } " " (prose(story.schedule)) }
            @for (n, way) in played.ways.iter().enumerate() { (article(played, n + 1, way)) }
        }
    }
}

fn article(played: &Played, n: usize, way: &PlayedWay) -> Markup {
    let id = format!("{}-{n}", played.case);
    html! {
        article.way id=(id) {
            header {
                h4 { span.number { (n) } " " (way.way.name) }
                @if way.way.faulty { " " span.tag { "faulty" } }
                " " (verdict::badge(way))
                @if !way.is_as_told() { " " (verdict::as_told(false)) }
                p { (prose(&stopped(way.way.does))) " " span.because { (prose(&stopped(way.way.because))) } }
            }
            (figure::figure(&id, way))
        }
    }
}
