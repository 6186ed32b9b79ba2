//! One page without anything from outside: an index, and each case with its story, its verdicts and its pictures.
//!
//! It is complete without a script. What a reader could get wrong: the marks and the hatchings of all pictures are defined once, in the
//! page, so a picture that is cut out of it is not a picture any more.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{figure, index, section, style};
use crate::run::Played;

/// The page.
pub fn page(played: &[Played]) -> String {
    let body = html! {
        a.skip href="#cases" { "To the cases" }
        (figure::definitions())
        (index::rail(played))
        main {
            (index::head(played))
            div #cases {
                @for (n, case) in played.iter().enumerate() { (section::section(n + 1, case)) }
            }
            footer { p { "Written by " code { "stockade postmortem --report" } ". Times are seconds of the story." } }
        }
    };
    document(&title(played), "", &body)
}

/// A page of the lab with this in it, and what its style has besides that of all.
pub(crate) fn document(title: &str, sheet: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (style::sheet()) (PreEscaped(sheet)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn title(played: &[Played]) -> String {
    match played {
        [case] => format!("{} - a post-mortem that runs", case.story.title),
        _ => "Post-mortems that run".into(),
    }
}

/// How fast it was played, in words.
pub(super) fn pace(speed: &str) -> Markup {
    html! { @if speed == "1" { "at the story's own speed" } @else { (speed) " times as fast as the story" } }
}
