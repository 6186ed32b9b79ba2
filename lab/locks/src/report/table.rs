//! The tables for a terminal of 120 columns.

use std::fmt::Write;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets::UTF8_BORDERS_ONLY,
};

use super::{
    columns::{COLUMNS, columns, values},
    labels::{CellText, ENGLISH},
    notes,
};
use crate::comparison::Comparison;

/// Range of the width of a table, in characters.
const WIDTH_MIN: u16 = 80;
const WIDTH_MAX: u16 = 120;
/// Width of the longest name, with a space on either side.
const NAME_WIDTH: u16 = 21;
/// Width of `lost/no token`, with a space on either side.
const CELL_WIDTH: u16 = 15;

/// The tables of everything that was compared, with their notes.
pub fn tables(comparison: &Comparison) -> String {
    let mut text = String::new();
    if !comparison.faults.is_empty() {
        let _ = writeln!(text, "Locks under faults\n{}", safety(comparison));
        wrap(&mut text, &notes::how_to_read(&comparison.faults));
        for (cells, reason) in notes::not_applicable(comparison) {
            wrap(&mut text, &format!("n/a: {cells}: {reason}."));
        }
        text.push('\n');
    }
    if !comparison.figures.is_empty() {
        let _ = writeln!(text, "Locks under load\n{}", load(comparison));
        wrap(&mut text, &format!("{}.", notes::LOADS));
        text.push('\n');
    }
    for (backend, reason) in &comparison.absent {
        wrap(&mut text, &format!("{backend} is not compared: {reason}."));
    }
    let machine = format!("{}, {}", comparison.machine, notes::SAME_MACHINE);
    let took = comparison.took.as_secs_f64();
    let _ = write!(text, "{machine}; took {took:.0} s.");
    text
}

/// Appends a note, in lines no longer than the table is wide.
fn wrap(text: &mut String, note: &str) {
    let mut length = 0;
    for word in note.split(' ') {
        let next = word.chars().count() + 1;
        if length > 0 && length + next > usize::from(WIDTH_MAX) {
            text.push('\n');
            length = 0;
        }
        let _ = write!(text, "{}{word}", if length > 0 { " " } else { "" });
        length += next;
    }
    text.push('\n');
}

fn new_table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    let width = table.width().unwrap_or(WIDTH_MAX);
    table.set_width(width.clamp(WIDTH_MIN, WIDTH_MAX));
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

fn safety(comparison: &Comparison) -> Table {
    let faults = &comparison.faults;
    let header = faults.iter().map(|fault| ENGLISH.fault(*fault));
    let mut table = new_table(std::iter::once(ENGLISH.lock).chain(header));
    set_min_width(&mut table, 0, NAME_WIDTH);
    for (index, fault) in faults.iter().enumerate() {
        if !fault.measures_wait() {
            set_min_width(&mut table, index + 1, CELL_WIDTH);
        }
    }
    for backend in &comparison.backends {
        let cells = faults.iter().map(|fault| {
            let cell = comparison.cell(*backend, *fault);
            match cell.map(|cell| ENGLISH.cell(cell)) {
                Some(CellText::Safety { inside, rows }) => format!("{inside}\n{rows}"),
                Some(CellText::Single(text)) => text,
                None => String::new(),
            }
        });
        table.add_row(std::iter::once(backend.to_string()).chain(cells));
    }
    table
}

fn set_min_width(table: &mut Table, column: usize, width: u16) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
    }
}

fn load(comparison: &Comparison) -> Table {
    const HEADER: [&str; COLUMNS] = [
        "alone\np50 ms",
        "\np99 ms",
        "\nper s",
        "16 contend\np50 ms",
        "\np99 ms",
        "\nper s",
        "mess-\nages",
        "woken\nof 8",
    ];
    let shown = columns(&comparison.loads);
    let header = shown.iter().map(|column| HEADER[*column]);
    let mut table = new_table(std::iter::once(ENGLISH.lock).chain(header));
    for figures in &comparison.figures {
        let values = values(figures, ENGLISH.polls);
        let cells = shown.iter().map(|column| values[*column].clone());
        table.add_row(std::iter::once(figures.backend.to_string()).chain(cells));
    }
    for column in 1..=shown.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
