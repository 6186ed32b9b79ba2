//! Verdicts as text and as badges. A verdict never depends on its colour alone.

use maud::{Markup, html};

use crate::run::{CaseRun, VariantRun};

/// Returns whether a variant holds, or the counts that exceed their bounds.
pub(super) fn verdict(run: &VariantRun) -> String {
    let verdict = match broken(run) {
        _ if run.measurements.holds() => "holds".into(),
        broken if broken.is_empty() => "nothing was judged".into(),
        broken => format!("fails: {}", broken.join(", ")),
    };
    match &run.retry_speed {
        Some(speed) => format!("{verdict} (retried at speed {speed})"),
        None => verdict,
    }
}

fn broken(run: &VariantRun) -> Vec<String> {
    let broken = run
        .measurements
        .readings
        .iter()
        .filter(|reading| !reading.holds());
    broken
        .map(|reading| counted(reading.value, &reading.measure.to_string()))
        .collect()
}

/// Returns a count with its noun. For one, the first plural in the phrase becomes a singular.
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

/// Returns the name of a variant, where nothing else says that it is faulty.
pub(super) fn name(run: &VariantRun) -> String {
    let fault = if run.variant.faulty { " (faulty)" } else { "" };
    format!("{}{fault}", run.variant.name)
}

/// Returns the units sold, oversold and stranded, and the concurrent holders. `dash` stands for a
/// count that the case does not have.
pub(super) fn counts(run: &VariantRun, dash: &str) -> [String; 4] {
    let measured = &run.measurements;
    let count = |exists: bool, count: u64| {
        if exists {
            count.to_string()
        } else {
            dash.to_owned()
        }
    };
    let units = |units| count(measured.stock > 0, units);
    let holders = measured.holders_at_once;
    [
        units(measured.units_sold),
        units(measured.oversold),
        units(measured.stranded),
        count(holders > 0, holders),
    ]
}

/// Formats a whole number as such, and a time with one decimal.
pub(super) fn round(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Returns a tick or a cross.
pub(super) fn sign(run: &VariantRun) -> &'static str {
    if run.measurements.holds() {
        "\u{2713}"
    } else {
        "\u{2717}"
    }
}

/// Returns the CSS class.
pub(super) fn class(run: &VariantRun) -> &'static str {
    if run.measurements.holds() {
        "holds"
    } else {
        "fails"
    }
}

/// Returns the badge of a variant.
pub(super) fn badge(run: &VariantRun) -> Markup {
    html! { span class={ "badge " (class(run)) } { span aria-hidden="true" { (sign(run)) " " } (verdict(run)) } }
}

/// Returns whether the verdict is the expected one.
pub(super) fn expectation(is_as_expected: bool) -> Markup {
    html! { @if is_as_expected { span.expected { "as expected" } } @else { span.badge.unexpected { "not as expected" } } }
}

/// Returns whether the verdicts of a case are the expected ones, or that it was skipped.
pub(super) fn outcome(run: &CaseRun) -> Markup {
    if run.skipped.is_some() {
        html! { span.expected { "skipped" } }
    } else {
        expectation(run.is_as_expected())
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn a_count_of_one_is_in_the_singular() {
        assert_eq!(counted(1.0, "units oversold"), "1 unit oversold");
        assert_eq!(
            counted(1.0, "orders with two units"),
            "1 order with two units"
        );
        assert_eq!(counted(1.0, "lost updates"), "1 lost update");
        assert_eq!(
            counted(1.0, "buyers charged without goods"),
            "1 buyer charged without goods"
        );
        assert_eq!(counted(2.0, "units oversold"), "2 units oversold");
        assert_eq!(counted(0.5, "seconds stuck"), "0.5 seconds stuck");
    }
}
