//! The verdict table of a case for the terminal.

use reporting::table::{align_right, framed, wrap};

use super::verdict::{counts, name, verdict};
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

fn row(run: &VariantRun) -> [String; HEADER.len()] {
    let [sold, oversold, stranded, holders] = counts(run, "-");
    let stuck = run.measurements.longest_stuck_seconds;
    let as_expected = if run.is_as_expected() { "yes" } else { "NO" };
    [
        name(run),
        sold,
        oversold,
        stranded,
        holders,
        format!("{stuck:.1} s"),
        verdict(run),
        as_expected.to_owned(),
    ]
}
