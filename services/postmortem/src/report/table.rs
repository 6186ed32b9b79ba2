//! The verdict table of a case.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};

use super::verdict::verdict;
use crate::run::{Played, PlayedWay};

const HEADER: [&str; 8] = [
    "way",
    "sold",
    "over-\nsold",
    "strand-\ned",
    "holders\nat once",
    "longest\nstuck",
    "holds?",
    "as\ntold?",
];

/// As wide as a terminal may be expected to be. A narrower one is not exceeded either.
const WIDTH: u16 = 100;

/// The table of one case, with its title.
pub fn table(played: &Played) -> String {
    let mut table = Table::new();
    table.set_width(table.width().map_or(WIDTH, |width| width.min(WIDTH)));
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(HEADER);
    for way in &played.ways {
        table.add_row(row(way));
    }
    for column in 1..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}: {}\n{table}", played.case, played.story.title)
}

fn row(played: &PlayedWay) -> Vec<String> {
    let (way, evidence) = (&played.way, &played.evidence);
    let count = |count: u64| {
        if evidence.stock == 0 {
            "-".to_owned()
        } else {
            count.to_string()
        }
    };
    vec![
        if way.faulty {
            format!("{} (faulty)", way.name)
        } else {
            way.name.to_owned()
        },
        count(evidence.units_sold),
        count(evidence.oversold),
        count(evidence.stranded),
        if evidence.holders_at_once == 0 {
            "-".into()
        } else {
            evidence.holders_at_once.to_string()
        },
        format!("{:.1} s", evidence.longest_stuck_seconds),
        verdict(played),
        if played.is_as_told() {
            "yes".into()
        } else {
            "NO".into()
        },
    ]
}
