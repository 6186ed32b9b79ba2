//! The legend of the marks that occur in a figure.

use maud::{Markup, html};

use super::{
    Layout,
    marks::{look, mark},
};
use crate::timeline::{Doing, Event};

const BARS: [(Doing, &str); 5] = [
    (Doing::Holding, "inside, holding the lock"),
    (Doing::Waiting, "waits"),
    (Doing::Stalled, "stalled or stopped"),
    (Doing::Working, "works"),
    (Doing::Down, "server down or unreachable"),
];

const MARKS: [(Event, &str); 8] = [
    (Event::Sale, "a unit sold"),
    (Event::Harm, "harm: the line goes through all lanes"),
    (Event::Write, "a write"),
    (Event::Stolen, "lock deleted by another client"),
    (Event::Expired, "lease expired"),
    (Event::Refused, "refused"),
    (Event::Fault, "injected fault"),
    (Event::Note, "note"),
];

/// Returns the legend of a figure.
pub(super) fn legend(layout: &Layout<'_>) -> Markup {
    let bars = || layout.lanes.lanes.iter().flat_map(|lane| &lane.bars);
    let flags = || layout.lanes.lanes.iter().flat_map(|lane| &lane.flags);
    html! {
        ul.legend {
            @for (doing, meaning) in BARS.into_iter().filter(|(doing, _)| bars().any(|bar| bar.doing == *doing)) {
                li { (bar(doing)) (meaning) }
                @if doing == Doing::Holding && bars().any(|bar| bar.over.is_some()) { li { (over()) "still inside, but its lease has expired" } }
            }
            @for (event, meaning) in MARKS.into_iter().filter(|(event, _)| flags().any(|flag| flag.event == *event)) {
                li { (key(html! { use href={ "#m-" (mark(event)) } class={ "m " (mark(event)) } x="13" y="9" {} })) (meaning) }
            }
            @if layout.scale.shortened().next().is_some() {
                li { (key(html! { rect.short x="1" y="1" width="24" height="16" {} })) "no events: time is compressed" }
            }
        }
    }
}

fn bar(doing: Doing) -> Markup {
    key(html! {
        g class={ "bar " (look(doing)) } {
            @if doing == Doing::Waiting { path d="M1 9h24" {} } @else { rect x="1" y="3" width="24" height="12" {} }
        }
    })
}

fn over() -> Markup {
    key(html! { g.bar.holding { rect.over x="1" y="3" width="24" height="12" {} } })
}

fn key(drawn: Markup) -> Markup {
    html! { svg.key viewBox="0 0 26 18" width="26" height="18" aria-hidden="true" { (drawn) } }
}
