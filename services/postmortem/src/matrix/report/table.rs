//! The tables for a terminal of 120 columns.

use std::fmt::Write;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets::UTF8_BORDERS_ONLY,
};

use super::{
    notes,
    words::{ENGLISH, figures},
};
use crate::matrix::{load::Load, run::Matrix};

const WIDTH: u16 = 120;
/// Of the longest name, and a space on either side.
const NAME: u16 = 21;
/// Of `lost/no token`, with its spaces.
const CELL: u16 = 15;

/// All that was asked for.
pub fn tables(matrix: &Matrix) -> String {
    let mut text = String::new();
    if !matrix.faults.is_empty() {
        let _ = writeln!(text, "What a lock does under a fault\n{}", safety(matrix));
        note(&mut text, &notes::how_to_read(&matrix.faults));
        for (whom, why) in notes::not_applicable(matrix) {
            note(&mut text, &format!("n/a: {whom}: {why}."));
        }
        text.push('\n');
    }
    if !matrix.figures.is_empty() {
        let _ = writeln!(text, "What a lock costs\n{}", load(matrix));
        note(&mut text, &format!("{}.", notes::LOADS));
        text.push('\n');
    }
    for (contestant, why) in &matrix.absent {
        note(&mut text, &format!("{contestant} is not compared: {why}."));
    }
    let machine = format!("{}, {}", matrix.machine, notes::SAME_MACHINE);
    let _ = write!(text, "{machine}; took {:.0} s.", matrix.took.as_secs_f64());
    text
}

/// In lines that are no longer than the table is wide.
fn note(text: &mut String, said: &str) {
    let mut length = 0;
    for word in said.split(' ') {
        let next = word.chars().count() + 1;
        if length > 0 && length + next > usize::from(WIDTH) {
            text.push('\n');
            length = 0;
        }
        let _ = write!(text, "{}{word}", if length > 0 { " " } else { "" });
        length += next;
    }
    text.push('\n');
}

fn empty<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.set_width(table.width().map_or(WIDTH, |width| width.clamp(80, WIDTH)));
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

fn safety(matrix: &Matrix) -> Table {
    let faults = matrix.faults.iter().map(|fault| ENGLISH.fault(*fault));
    let mut table = empty(std::iter::once(ENGLISH.backend).chain(faults));
    let widths = matrix.faults.iter().map(|fault| {
        if fault.is_about_waiting() {
            None
        } else {
            Some(CELL)
        }
    });
    for (place, width) in std::iter::once(Some(NAME)).chain(widths).enumerate() {
        if let (Some(column), Some(width)) = (table.column_mut(place), width) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
    }
    for contestant in &matrix.contestants {
        let cells = matrix.faults.iter().map(|fault| {
            match matrix
                .cell(*contestant, *fault)
                .map(|cell| ENGLISH.cell(cell))
            {
                Some((inside, Some(fates))) => format!("{inside}\n{fates}"),
                Some((wait, None)) => wait,
                None => String::new(),
            }
        });
        table.add_row(std::iter::once(contestant.to_string()).chain(cells));
    }
    table
}

fn load(matrix: &Matrix) -> Table {
    const HEADER: [&str; 8] = [
        "alone\np50 ms",
        "\np99 ms",
        "\nper s",
        "16 want it\np50 ms",
        "\np99 ms",
        "\nper s",
        "mess-\nages",
        "woken\nof 8",
    ];
    let shown = columns(&matrix.loads);
    let mut table =
        empty(std::iter::once("lock").chain(shown.iter().map(|column| HEADER[*column])));
    for of_one in &matrix.figures {
        let figures = figures(of_one, &ENGLISH);
        let cells = shown.iter().map(|column| figures[*column].clone());
        table.add_row(std::iter::once(of_one.contestant.to_string()).chain(cells));
    }
    for column in 1..=shown.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Of the eight, those that were measured.
pub(super) fn columns(loads: &[Load]) -> Vec<usize> {
    let of = |load: &Load| match load {
        Load::Alone => 0..3,
        Load::Contended => 3..6,
        Load::Messages => 6..7,
        Load::Wakeups => 7..8,
    };
    Load::ALL
        .iter()
        .filter(|load| loads.contains(load))
        .flat_map(of)
        .collect()
}
