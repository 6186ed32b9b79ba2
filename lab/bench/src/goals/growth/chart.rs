//! The chart of a run, with small charts for each ledger.
//!
//! A chart shows what was measured so far. A curve without a figure is left out, and so is a chart
//! without a curve.

use reporting::chart::{self, Group};

use super::results::{Expiries, Series};
use crate::options::LedgerKind;

mod panels;

/// Draws every step.
pub fn draw(series: &[Series], expiries: &[Expiries]) -> String {
    chart::draw("How cost grows", &groups(series, expiries))
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
        heading: Some(heading(ledger)),
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

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::draw;
    use crate::{
        goals::growth::{
            results::{Expiries, Series},
            samples::{expiry, idle, step},
            series::Step,
        },
        options::{LedgerKind, SeriesKind},
    };

    /// Steps with this many of it.
    fn series(ledger: LedgerKind, grows: SeriesKind, sizes: &[u64]) -> Series {
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
        let kinds = SeriesKind::value_variants().iter();
        kinds
            .map(|grows| series(ledger, *grows, &[0, 100, 500, 2_000]))
            .collect()
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
        let orders = series(ledger, SeriesKind::Orders, &[0, 25_000, 250_000, 2_500_000]);
        let svg = draw(&[orders], &[expiries(ledger)]);
        assert_well_formed(&svg);
        assert!(!svg.contains(" items") && !svg.contains("Idle"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), 3);
    }

    #[test]
    fn idle_time_that_is_not_reported_has_no_chart() {
        let mut items = series(LedgerKind::Postgres, SeriesKind::OpenItems, &[0, 100]);
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
        let first = series(LedgerKind::Postgres, SeriesKind::OpenItems, &[0]);
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
