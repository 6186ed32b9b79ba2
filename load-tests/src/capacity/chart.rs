//! Draws latency against rate as a self-contained SVG for light and dark pages.

use std::fmt::Write as _;

use super::step::Step;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 52.0;

const STYLE: &str = "<style>
svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#333}.title{font-weight:600}.grid{stroke:#ddd}.bound{stroke:#b3261e;stroke-dasharray:6 4}
.boundtext{fill:#b3261e}.line{fill:none;stroke-width:2}.p50{stroke:#1b7f5c}.p99{stroke:#1f5fbf}.p999{stroke:#8a4bbf}
.dot.p50{fill:#1b7f5c}.dot.p99{fill:#1f5fbf}.dot.p999{fill:#8a4bbf}.best{stroke:#777;stroke-dasharray:2 3}
@media(prefers-color-scheme:dark){svg{background:#15181c}text{fill:#d8dbe0}.grid{stroke:#333840}.bound{stroke:#ff8a80}.boundtext{fill:#ff8a80}
.p50{stroke:#5fd3a8}.p99{stroke:#7fb0ff}.p999{stroke:#c99bff}.dot.p50{fill:#5fd3a8}.dot.p99{fill:#7fb0ff}.dot.p999{fill:#c99bff}.best{stroke:#999}}
</style>";

type Series = (&'static str, &'static str, fn(&Step) -> f64);

const SERIES: [Series; 3] = [
    ("p50", "p50", |step| step.latency_ms_p50),
    ("p99", "p99", |step| step.latency_ms_p99),
    ("p999", "p99.9", |step| step.latency_ms_p999),
];

/// Maps rates and latencies to the page. The axis of latencies is logarithmic with whole decades,
/// because the latency of a queue is unbounded.
struct Scale {
    rate_max: f64,
    decade_first: i32,
    decade_last: i32,
}

impl Scale {
    fn new(steps: &[&Step], bound_ms: f64) -> Self {
        let latencies = || {
            steps
                .iter()
                .flat_map(|step| SERIES.map(|(.., latency)| latency(step)))
                .chain([bound_ms])
        };
        let least = latencies().fold(bound_ms, f64::min).max(0.01);
        let most = latencies().fold(bound_ms, f64::max);
        let rate_max = steps
            .iter()
            .map(|step| number(step.rate))
            .fold(1.0, f64::max);
        let (decade_first, decade_last) =
            (whole(least.log10().floor()), whole(most.log10().ceil()));
        Self {
            rate_max,
            decade_first,
            decade_last: decade_last.max(decade_first + 1),
        }
    }

    fn x(&self, rate: f64) -> f64 {
        LEFT + rate / self.rate_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, latency_ms: f64) -> f64 {
        let (first, last) = (f64::from(self.decade_first), f64::from(self.decade_last));
        let share = (latency_ms.max(1e-3).log10().clamp(first, last) - first) / (last - first);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws steps, which must be sorted by rate.
pub fn draw(steps: &[&Step], bound_ms: u64, highest_rate: Option<u64>) -> String {
    let bound = number(bound_ms);
    let scale = Scale::new(steps, bound);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Latency against the rate of orders, open loop">"#
    );
    svg.push_str(STYLE);
    let parts = [
        title(highest_rate, bound_ms),
        grid(&scale),
        limits(&scale, bound, highest_rate),
        series(&scale, steps),
    ];
    svg.extend(parts);
    svg.push_str("</svg>\n");
    svg
}

fn title(highest_rate: Option<u64>, bound_ms: u64) -> String {
    let found =
        highest_rate.map_or_else(|| "no rate".to_owned(), |rate| format!("{rate} requests/s"));
    format!(
        r#"<text class="title" x="{LEFT}" y="22">Latency against rate, open loop: {found} with p99 within {bound_ms} ms</text>"#
    )
}

fn grid(scale: &Scale) -> String {
    let mut grid = String::new();
    for decade in scale.decade_first..=scale.decade_last {
        let latency = 10_f64.powi(decade);
        let y = scale.y(latency);
        let _ = write!(
            grid,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
            WIDTH - RIGHT
        );
        let _ = write!(
            grid,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{latency}</text>"#,
            LEFT - 8.0,
            y + 4.0
        );
    }
    for part in 0..=5 {
        let rate = scale.rate_max * f64::from(part) / 5.0;
        let _ = write!(
            grid,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{rate:.0}</text>"#,
            scale.x(rate),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = write!(
        grid,
        r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">scheduled requests per second</text>"#,
        HEIGHT - 12.0
    );
    let _ = write!(
        grid,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">ms</text>"#,
        LEFT - 8.0,
        TOP - 12.0
    );
    grid
}

fn limits(scale: &Scale, bound: f64, highest_rate: Option<u64>) -> String {
    let (y, right) = (scale.y(bound), WIDTH - RIGHT);
    let mut limits =
        format!(r#"<line class="bound" x1="{LEFT}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#);
    let _ = write!(
        limits,
        r#"<text class="boundtext" x="{:.1}" y="{:.1}">{bound} ms</text>"#,
        LEFT + 4.0,
        y - 5.0
    );
    if let Some(rate) = highest_rate {
        let x = scale.x(number(rate));
        let _ = write!(
            limits,
            r#"<line class="best" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{:.1}"/>"#,
            HEIGHT - BOTTOM
        );
    }
    limits
}

fn series(scale: &Scale, steps: &[&Step]) -> String {
    let mut all = String::new();
    for (class, name, latency) in SERIES {
        let points: Vec<_> = steps
            .iter()
            .map(|step| (scale.x(number(step.rate)), scale.y(latency(step))))
            .collect();
        let line: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            all,
            r#"<polyline class="line {class}" points="{}"/>"#,
            line.join(" ")
        );
        for ((x, y), step) in points.iter().zip(steps) {
            let tip = format!("{name} {:.1} ms at {}/s", latency(step), step.rate);
            let _ = write!(
                all,
                r#"<circle class="dot {class}" cx="{x:.1}" cy="{y:.1}" r="3"><title>{tip}</title></circle>"#
            );
        }
    }
    all + &legend()
}

/// Draws the legend next to the plot, where no line crosses it.
fn legend() -> String {
    let mut legend = String::new();
    for ((class, name, _), y) in SERIES
        .iter()
        .rev()
        .zip([TOP + 10.0, TOP + 32.0, TOP + 54.0])
    {
        let x = WIDTH - RIGHT + 16.0;
        let _ = write!(
            legend,
            r#"<line class="line {class}" x1="{x}" x2="{}" y1="{y}" y2="{y}"/>"#,
            x + 18.0
        );
        let _ = write!(
            legend,
            r#"<text x="{}" y="{}">{name}</text>"#,
            x + 24.0,
            y + 4.0
        );
    }
    legend
}

#[expect(clippy::cast_precision_loss, reason = "no rate or bound is near 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a decade of milliseconds is a small whole number"
)]
fn whole(decade: f64) -> i32 {
    decade as i32
}

#[cfg(test)]
mod tests {
    use super::{Scale, draw};
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
    }

    #[test]
    fn slower_is_higher_and_more_is_further_right() {
        let steps = [step(500, 4.0), step(2_000, 4_000.0)];
        let scale = Scale::new(&steps.iter().collect::<Vec<_>>(), 50.0);
        assert!(scale.y(4_000.0) < scale.y(50.0) && scale.y(50.0) < scale.y(4.0));
        assert!(scale.x(500.0) < scale.x(2_000.0));
    }

    #[test]
    fn a_chart_without_steps_is_valid() {
        assert!(!draw(&[], 50, None).contains("NaN"));
    }
}
