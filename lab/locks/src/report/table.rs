//! The tables for a terminal of 120 columns.

use std::fmt::Write;

use reporting::table::{Table, align_right, framed, set_min_width, wrap};

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
        add_note(&mut text, &notes::how_to_read(&comparison.faults));
        for (cells, reason) in notes::not_applicable(comparison) {
            add_note(&mut text, &format!("n/a: {cells}: {reason}."));
        }
        text.push('\n');
    }
    if !comparison.figures.is_empty() {
        let _ = writeln!(text, "Locks under load\n{}", load(comparison));
        add_note(&mut text, &format!("{}.", notes::LOADS));
        text.push('\n');
    }
    for (backend, reason) in &comparison.absent {
        add_note(&mut text, &format!("{backend} is not compared: {reason}."));
    }
    let machine = format!("{}, {}", comparison.machine, notes::SAME_MACHINE);
    let took = comparison.took.as_secs_f64();
    let _ = write!(text, "{machine}; took {took:.0} s.");
    text
}

/// Appends a note, in lines no longer than the table is wide.
fn add_note(text: &mut String, note: &str) {
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

fn new_table<'a>(header: impl Iterator<Item = &'a str>) -> Table {
    let mut table = framed(std::iter::once(ENGLISH.lock).chain(header));
    wrap(&mut table, |terminal| {
        let width = terminal.unwrap_or(WIDTH_MAX);
        width.clamp(WIDTH_MIN, WIDTH_MAX)
    });
    table
}

fn safety(comparison: &Comparison) -> Table {
    let faults = &comparison.faults;
    let mut table = new_table(faults.iter().map(|fault| ENGLISH.fault(*fault)));
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
    let mut table = new_table(shown.iter().map(|column| HEADER[*column]));
    for figures in &comparison.figures {
        let values = values(figures, ENGLISH.polls);
        let cells = shown.iter().map(|column| values[*column].clone());
        table.add_row(std::iter::once(figures.backend.to_string()).chain(cells));
    }
    align_right(&mut table, 1..=shown.len());
    table
}
