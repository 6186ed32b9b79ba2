//! The head of the page: what this is, and the verdict on every case at a glance.

use maud::{Markup, html};

use super::{html::pace, prose::prose, verdict};
use crate::run::{Played, PlayedWay};

/// Title, how to read it, and the index.
pub(super) fn head(played: &[Played]) -> Markup {
    html! {
        header.page {
            p.eyebrow { "Stockade " span aria-hidden="true" { "\u{b7}" } " the lab" }
            h1 { "Post-mortems that run" }
            p.lead {
                "Each story was played on real servers with real faults: first the way that failed, then each remedy that people propose, under "
                "the same schedule of events. The verdicts were counted, not argued; a remedy that does not help is seen not to help."
            }
            p.facts { (facts(played)) }
        }
        p.signs {
            "Each sign is a way: in a dashed frame the one that failed, then its remedies; \u{2713} holds, \u{2717} fails. "
            "As told: each did what its story says."
        }
        nav.index aria-label="Cases" { ol { @for case in played { (entry(case)) } } }
    }
}

fn facts(played: &[Played]) -> Markup {
    let ways: usize = played.iter().map(|case| case.ways.len()).sum();
    let differ = played.iter().filter(|case| !case.is_as_told()).count();
    html! {
        span { (count(played.len(), "case")) ", " (count(ways, "way")) }
        @if let Some(case) = played.first() { span { "played " (pace(&case.speed)) } }
        span { @if differ == 0 { "everything went as told" } @else { strong { (count(differ, "case")) " did not go as told" } } }
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

fn entry(played: &Played) -> Markup {
    html! {
        li {
            a.case href={ "#" (played.case) } { span.name { (played.case) } " " span.title { (prose(played.story.title)) } }
            span.strip { @for (n, way) in played.ways.iter().enumerate() { (glance(played, n, way)) } }
            p.sum { (sum(played)) " " (verdict::as_told(played.is_as_told())) }
        }
    }
}

/// A way, as small as it gets.
fn glance(played: &Played, n: usize, way: &PlayedWay) -> Markup {
    let told = format!("{}: {}", way.way.name, verdict::verdict(way));
    html! {
        a class={ "sign " (verdict::class(way)) @if way.way.faulty { " faulty" } } href={ "#" (played.case) "-" (n + 1) } title=(told) {
            span aria-hidden="true" { (verdict::sign(way)) }
            span.unseen { (told) }
        }
    }
}

fn sum(played: &Played) -> Markup {
    let (faulty, remedies): (Vec<_>, Vec<_>) = played.ways.iter().partition(|way| way.way.faulty);
    let hold = remedies.iter().filter(|way| way.evidence.holds()).count();
    html! {
        @for way in &faulty { (way.way.name) " " strong { (verdict::verdict(way)) } "; " }
        (hold) " of " (count(remedies.len(), "remedy").replace("remedys", "remedies")) " " @if hold == 1 { "holds" } @else { "hold" } "."
    }
}

/// Where a wide window keeps the way to every case; to every way, if there is one case.
pub(super) fn rail(played: &[Played]) -> Markup {
    html! {
        nav.rail aria-label="On this page" {
            @if let [case] = played {
                ol { @for (n, way) in case.ways.iter().enumerate() { li { a href={ "#" (case.case) "-" (n + 1) } { (way.way.name) } } } }
            } @else {
                ol { @for case in played { li { a href={ "#" (case.case) } { (case.case) } } } }
            }
        }
    }
}
