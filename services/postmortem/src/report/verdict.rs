//! A verdict, in words and as it is set. Never by its colour alone.

use maud::{Markup, html};

use crate::run::PlayedWay;

/// Whether it holds; and if not, by what.
pub(super) fn verdict(played: &PlayedWay) -> String {
    let verdict = match broken(played) {
        _ if played.evidence.holds() => "holds".into(),
        broken if broken.is_empty() => "nothing was judged".into(),
        broken => format!("fails: {}", broken.join(", ")),
    };
    match &played.again_at {
        Some(speed) => format!("{verdict} (told again, at speed {speed})"),
        None => verdict,
    }
}

fn broken(played: &PlayedWay) -> Vec<String> {
    let broken = played
        .evidence
        .readings
        .iter()
        .filter(|reading| !reading.holds());
    broken
        .map(|reading| counted(reading.value, &reading.measure.to_string()))
        .collect()
}

/// A count and what is counted: of one, the first word that is in the plural is not.
fn counted(value: f64, what: &str) -> String {
    let value = round(value);
    match what
        .find("s ")
        .or_else(|| what.ends_with('s').then(|| what.len() - 1))
    {
        Some(plural) if value == "1" => {
            format!("{value} {}{}", &what[..plural], &what[plural + 1..])
        }
        _ => format!("{value} {what}"),
    }
}

/// A count as one, a time with a digit.
pub(super) fn round(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// A cross or a tick.
pub(super) fn sign(played: &PlayedWay) -> &'static str {
    if played.evidence.holds() {
        "\u{2713}"
    } else {
        "\u{2717}"
    }
}

/// How it is drawn.
pub(super) fn class(played: &PlayedWay) -> &'static str {
    if played.evidence.holds() {
        "holds"
    } else {
        "fails"
    }
}

/// The verdict of a way.
pub(super) fn badge(played: &PlayedWay) -> Markup {
    html! { span class={ "badge " (class(played)) } { span aria-hidden="true" { (sign(played)) " " } (verdict(played)) } }
}

/// Whether it went as it is told.
pub(super) fn as_told(is_as_told: bool) -> Markup {
    html! { @if is_as_told { span.told { "as told" } } @else { span.badge.untold { "not as told" } } }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1.0, "units oversold"), "1 unit oversold");
        assert_eq!(
            counted(1.0, "orders with two units"),
            "1 order with two units"
        );
        assert_eq!(counted(1.0, "lost updates"), "1 lost update");
        assert_eq!(counted(1.0, "charged in vain"), "1 charged in vain");
        assert_eq!(counted(2.0, "units oversold"), "2 units oversold");
        assert_eq!(counted(0.5, "seconds stuck"), "0.5 seconds stuck");
    }
}
