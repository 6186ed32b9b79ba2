//! Draws latency against rate.

use reporting::chart::{self, Group, Named, Panel, curves};

use super::step::Step;

const LATENCIES: [Named<Step>; 3] = [
    ("p50", |step| Some(step.latency_ms_p50)),
    ("p99", |step| Some(step.latency_ms_p99)),
    ("p99.9", |step| Some(step.latency_ms_p999)),
];

/// Draws steps, which must be sorted by rate.
pub fn draw(steps: &[&Step], bound_ms: u64, highest_rate: Option<u64>) -> String {
    let found =
        highest_rate.map_or_else(|| "no rate".to_owned(), |rate| format!("{rate} requests/s"));
    let title = format!("Latency against rate, open loop: {found} with p99 within {bound_ms} ms");
    let panel = Panel {
        title: "Latency",
        unit: "ms",
        grows: "scheduled requests per second".to_owned(),
        curves: curves(steps.iter().copied(), |step| step.rate, &LATENCIES),
        is_large: true,
        is_linear: true,
        bound: Some(number(bound_ms)),
        best: highest_rate.map(number),
    };
    let group = Group {
        heading: None,
        panels: vec![panel],
    };
    chart::draw(&title, &[group])
}

#[expect(clippy::cast_precision_loss, reason = "no rate or bound is near 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::capacity::report::samples::step;

    #[test]
    fn the_chart_is_self_contained_and_suits_light_and_dark_pages() {
        let steps = [step(500, 4.0), step(1_000, 9.0), step(2_000, 4_000.0)];
        let svg = draw(&steps.iter().collect::<Vec<_>>(), 50, Some(1_000));
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains("prefers-color-scheme:dark")
                && !svg.contains("href")
                && !svg.contains("NaN"),
            "{svg}"
        );
        assert_eq!(
            (
                svg.matches("<polyline").count(),
                svg.matches("<circle").count()
            ),
            (3, 9)
        );
        assert!(
            svg.contains("1000 requests/s with p99 within 50 ms"),
            "{svg}"
        );
        assert!(
            svg.contains(">50 ms</text>") && svg.contains(r#"class="best""#),
            "{svg}"
        );
    }

    #[test]
    fn a_chart_without_steps_is_valid() {
        assert!(!draw(&[], 50, None).contains("NaN"));
    }
}
