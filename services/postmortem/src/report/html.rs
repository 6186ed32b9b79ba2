//! One page without anything from outside: an index, and each case with its story, its pictures and its verdicts.

use maud::{DOCTYPE, Markup, html};

use super::svg;
use crate::run::Played;

/// The page.
pub fn page(played: &[Played]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "Post-mortems that run" } }
            body { @for case in played { (section(case)) } }
        }
    };
    page.into_string()
}

fn section(played: &Played) -> Markup {
    html! {
        section id=(played.case) {
            h2 { (played.story.title) }
            p { (played.story.told) }
            @for way in &played.ways { (svg::timeline(&way.picture)) }
        }
    }
}
