//! A verdict, in words and as it is set. Never by its colour alone.

use maud::{Markup, html};

use crate::run::PlayedWay;

/// Whether it holds; and if not, by what.
pub(super) fn verdict(played: &PlayedWay) -> String {
    match broken(played) {
        _ if played.evidence.holds() => "holds".into(),
        broken if broken.is_empty() => "nothing was judged".into(),
        broken => format!("fails: {}", broken.join(", ")),
    }
}

fn broken(played: &PlayedWay) -> Vec<String> {
    let broken = played.evidence.readings.iter().filter(|reading| !reading.holds());
    broken.map(|reading| format!("{} {}", round(reading.value), reading.measure)).collect()
}

/// A count as one, a time with a digit.
pub(super) fn round(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A cross or a tick.
pub(super) fn sign(played: &PlayedWay) -> &'static str {
    if played.evidence.holds() { "\u{2713}" } else { "\u{2717}" }
}

/// How it is drawn.
pub(super) fn class(played: &PlayedWay) -> &'static str {
    if played.evidence.holds() { "holds" } else { "fails" }
}

/// The verdict of a way.
pub(super) fn badge(played: &PlayedWay) -> Markup {
    html! { span class={ "badge " (class(played)) } { span aria-hidden="true" { (sign(played)) " " } (verdict(played)) } }
}

/// Whether it went as it is told.
pub(super) fn as_told(is_as_told: bool) -> Markup {
    html! { @if is_as_told { span.told { "as told" } } @else { span.badge.untold { "not as told" } } }
}
