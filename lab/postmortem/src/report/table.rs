//! The verdict table of a case for the terminal.

use reporting::table::{align_right, framed, wrap};

use super::verdict::verdict;
use crate::run::{CaseRun, VariantRun};

const HEADER: [&str; 8] = [
    "variant",
    "sold",
    "over-\nsold",
    "strand-\ned",
    "concurrent\nholders",
    "longest\nstuck",
    "result",
    "as ex-\npected?",
];

/// Largest width. A narrower terminal is respected as well.
const WIDTH: u16 = 100;

/// Returns the table of one case, with its title, or a line that it was skipped.
pub fn table(run: &CaseRun) -> String {
    if let Some(why) = &run.skipped {
        return format!("SKIPPED: {}: {why}", run.case);
    }
    let mut table = framed(HEADER);
    wrap(&mut table, |terminal| {
        terminal.map_or(WIDTH, |width| width.min(WIDTH))
    });
    for variant in &run.variants {
        table.add_row(row(variant));
    }
    align_right(&mut table, 1..=5);
    format!("{}: {}\n{table}", run.case, run.scenario.title)
}

fn row(run: &VariantRun) -> Vec<String> {
    let (info, measurements) = (&run.variant, &run.measurements);
    let count = |count: u64| {
        if measurements.stock == 0 {
            "-".to_owned()
        } else {
            count.to_string()
        }
    };
    vec![
        if info.faulty {
            format!("{} (faulty)", info.name)
        } else {
            info.name.clone()
        },
        count(measurements.units_sold),
        count(measurements.oversold),
        count(measurements.stranded),
        if measurements.holders_at_once == 0 {
            "-".into()
        } else {
            measurements.holders_at_once.to_string()
        },
        format!("{:.1} s", measurements.longest_stuck_seconds),
        verdict(run),
        if run.is_as_expected() {
            "yes".into()
        } else {
            "NO".into()
        },
    ]
}
