//! Tables for a terminal, and the rows of those in Markdown.

pub use comfy_table::Table;
use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Row, Width,
    presets::{UTF8_BORDERS_ONLY, UTF8_FULL_CONDENSED},
};

/// A table with lines between its columns.
pub fn ruled(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    table
}

/// A table with lines around it and below its header.
pub fn framed(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// Wraps the text of cells in a table that would be wider. `width` gets the width of the terminal,
/// or none if the output goes elsewhere.
pub fn wrap(table: &mut Table, width: impl FnOnce(Option<u16>) -> u16) {
    let width = width(table.width());
    table
        .set_width(width)
        .set_content_arrangement(ContentArrangement::Dynamic);
}

/// Keeps a column at least this wide where text is wrapped.
pub fn set_min_width(table: &mut Table, column: usize, width: u16) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
    }
}

/// Aligns columns of numbers.
pub fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A row of a table in Markdown.
pub fn markdown_row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}
