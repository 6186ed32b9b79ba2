//! Draws a run as a self-contained SVG for light and dark pages: small charts, below each other for
//! each ledger.
//!
//! A chart shows what was measured so far. A curve without a figure is left out, and so is a chart
//! without a curve.

use std::fmt::Write as _;

use super::results::{Expiries, Series};
use crate::options::LedgerKind;

mod axis;
mod panel;
mod panels;

use panel::Panel;

const WIDTH: f64 = panel::WIDTH * PANELS_IN_ROW as f64;
const PANELS_IN_ROW: usize = 2;
/// Above the first ledger.
const TITLE_HEIGHT: f64 = 38.0;
/// Above the charts of a ledger.
const HEADING_HEIGHT: f64 = 32.0;
const LEFT: f64 = 16.0;

const STYLE: &str = "<style>
svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#333}.title{font-size:16px;font-weight:600}.heading{font-size:14px;font-weight:600}
.name,.tick,.label{font-size:12px}.grid{stroke:#ddd}.axis{stroke:#999}.curve{fill:none;stroke-width:2}.fromnone{stroke-dasharray:2 4}
.curve.one{stroke:#1b7f5c}.curve.two{stroke:#1f5fbf}.curve.three{stroke:#8a4bbf}
.fill.one{fill:#1b7f5c}.fill.two{fill:#1f5fbf}.fill.three{fill:#8a4bbf}
@media(prefers-color-scheme:dark){svg{background:#15181c}text{fill:#d8dbe0}.grid{stroke:#333840}.axis{stroke:#777}
.curve.one{stroke:#5fd3a8}.curve.two{stroke:#7fb0ff}.curve.three{stroke:#c99bff}
.fill.one{fill:#5fd3a8}.fill.two{fill:#7fb0ff}.fill.three{fill:#c99bff}}
</style>";

/// The charts of a ledger.
struct Group {
    heading: &'static str,
    panels: Vec<Panel>,
}

/// Draws every step.
pub fn draw(series: &[Series], expiries: &[Expiries]) -> String {
    let groups = groups(series, expiries);
    let height = TITLE_HEIGHT + groups.iter().map(Group::height).sum::<f64>();
    let label = label(&groups);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">"#
    );
    svg.push_str(STYLE);
    let _ = write!(
        svg,
        r#"<text class="title" x="{LEFT}" y="26">How cost grows</text>"#
    );
    let mut top = TITLE_HEIGHT;
    for group in &groups {
        svg.push_str(&group.draw(top));
        top += group.height();
    }
    svg.push_str("</svg>\n");
    svg
}

/// The ledgers in the order in which they were measured.
fn groups(series: &[Series], expiries: &[Expiries]) -> Vec<Group> {
    let measured = series.iter().map(|series| series.ledger);
    let mut ledgers = Vec::new();
    for ledger in measured.chain(expiries.iter().map(|expiries| expiries.ledger)) {
        if !ledgers.contains(&ledger) {
            ledgers.push(ledger);
        }
    }
    let group = |ledger| Group {
        heading: heading(ledger),
        panels: panels::of(ledger, series, expiries),
    };
    let groups = ledgers.into_iter().map(group);
    groups.filter(|group| !group.panels.is_empty()).collect()
}

fn heading(ledger: LedgerKind) -> &'static str {
    match ledger {
        LedgerKind::Postgres => "PostgreSQL",
        LedgerKind::Sqlite => "SQLite, whose idle time is part of the service's",
    }
}

/// What a reader who does not see the chart is told.
fn label(groups: &[Group]) -> String {
    let of_group = |group: &Group| {
        let panels: Vec<_> = group.panels.iter().map(Panel::label).collect();
        format!(". {}: {}", group.heading, panels.join("; "))
    };
    let groups: String = groups.iter().map(of_group).collect();
    format!("How cost grows{groups}")
}

impl Group {
    fn height(&self) -> f64 {
        let rows = self.panels.len().div_ceil(PANELS_IN_ROW);
        HEADING_HEIGHT + rows as f64 * panel::HEIGHT
    }

    fn draw(&self, top: f64) -> String {
        let (heading, y) = (self.heading, top + 20.0);
        let mut group = format!(r#"<text class="heading" x="{LEFT}" y="{y}">{heading}</text>"#);
        for (place, panel) in self.panels.iter().enumerate() {
            let (row, column) = (place / PANELS_IN_ROW, place % PANELS_IN_ROW);
            let x = column as f64 * panel::WIDTH;
            let y = top + HEADING_HEIGHT + row as f64 * panel::HEIGHT;
            let _ = write!(
                group,
                r#"<g transform="translate({x} {y})">{}</g>"#,
                panel.draw()
            );
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::{
        goals::growth::{
            results::{Expiries, Series},
            samples::{expiry, idle, step},
            series::{Kind, Step},
        },
        options::LedgerKind,
    };

    /// Steps with this many of it.
    fn series(ledger: LedgerKind, grows: Kind, sizes: &[u64]) -> Series {
        let server = match ledger {
            LedgerKind::Postgres => Some(7.0),
            LedgerKind::Sqlite => None,
        };
        let of_size = |size: &u64| Step {
            open_items: *size,
            closed_items: *size,
            orders: *size,
            ..step(idle(server))
        };
        Series {
            ledger,
            grows,
            steps: sizes.iter().map(of_size).collect(),
        }
    }

    fn expiries(ledger: LedgerKind) -> Expiries {
        Expiries {
            ledger,
            steps: [1_000, 10_000, 100_000].map(expiry).into(),
        }
    }

    fn all(ledger: LedgerKind) -> Vec<Series> {
        Kind::ALL
            .map(|grows| series(ledger, grows, &[0, 100, 500, 2_000]))
            .into()
    }

    fn assert_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{svg}");
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
        }
        assert!(open.is_empty(), "{open:?}: {svg}");
        assert_eq!(svg.matches('"').count() % 2, 0, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    }

    #[test]
    fn the_chart_is_self_contained_and_suits_light_and_dark_pages() {
        let svg = draw(
            &all(LedgerKind::Postgres),
            &[expiries(LedgerKind::Postgres)],
        );
        assert_well_formed(&svg);
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains("prefers-color-scheme:dark")
                && svg.contains(r#"role="img" aria-label="How cost grows. PostgreSQL: "#)
                && !svg.contains("href"),
            "{svg}"
        );
    }

    #[test]
    fn each_series_has_its_name_and_a_point_for_each_step() {
        let svg = draw(
            &all(LedgerKind::Postgres),
            &[expiries(LedgerKind::Postgres)],
        );
        let names = [
            ("service", 2),
            ("Redis", 2),
            ("ledger", 2),
            ("p50", 1),
            ("p99", 1),
            ("audit", 1),
            ("full audit", 1),
            ("in quiet", 1),
            ("meanwhile", 1),
        ];
        for (name, count) in names {
            let found = svg.matches(&format!(">{name}</text>")).count();
            assert_eq!(found, count, "{name}: {svg}");
        }
        // Three curves of idle time twice, and two of orders and of audits, of four steps each; and
        // two of holds, of three steps.
        assert_eq!(svg.matches("<circle").count(), 10 * 4 + 2 * 3);
    }

    #[test]
    fn sqlite_has_no_idle_time_of_its_own() {
        let svg = draw(&all(LedgerKind::Sqlite), &[]);
        assert_well_formed(&svg);
        assert!(
            svg.contains(">service</text>") && !svg.contains(">ledger</text>"),
            "{svg}"
        );
    }

    #[test]
    fn a_run_without_items_has_no_chart_of_them() {
        let ledger = LedgerKind::Postgres;
        let orders = series(ledger, Kind::Orders, &[0, 25_000, 250_000, 2_500_000]);
        let svg = draw(&[orders], &[expiries(ledger)]);
        assert_well_formed(&svg);
        assert!(!svg.contains(" items") && !svg.contains("Idle"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), 3);
    }

    #[test]
    fn idle_time_that_is_not_reported_has_no_chart() {
        let mut items = series(LedgerKind::Postgres, Kind::OpenItems, &[0, 100]);
        for step in &mut items.steps {
            step.idle = None;
        }
        let svg = draw(&[items], &[]);
        assert_well_formed(&svg);
        assert!(!svg.contains("<g ") && !svg.contains("PostgreSQL"), "{svg}");
    }

    #[test]
    fn a_run_that_began_has_a_chart() {
        assert_well_formed(&draw(&[], &[]));
        let first = series(LedgerKind::Postgres, Kind::OpenItems, &[0]);
        let svg = draw(&[first], &[]);
        assert_well_formed(&svg);
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn both_ledgers_have_their_charts() {
        let mut series = all(LedgerKind::Postgres);
        series.extend(all(LedgerKind::Sqlite));
        let svg = draw(&series, &[]);
        assert_well_formed(&svg);
        assert_eq!(svg.matches("<g ").count(), 8);
        assert_eq!(svg.matches(r#"class="heading""#).count(), 2);
    }
}
