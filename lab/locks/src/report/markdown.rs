//! The tables as part of a Markdown document, between two marks. A second run replaces the part
//! between the marks and leaves the rest of the document unchanged.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::{
    columns::{columns, values},
    labels::{CellText, Labels},
};
use crate::comparison::Comparison;

const BEGIN: &str = "<!-- locks compare: begin -->";
const END: &str = "<!-- locks compare: end -->";

/// The document with the tables of this run in place of its present ones.
pub fn replaced(
    document: &str,
    comparison: &Comparison,
    command: &str,
    labels: &Labels,
) -> Result<String> {
    let marks = || format!("expected a line {BEGIN} before a line {END}");
    let (before, rest) = document.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    let tables = tables(comparison, command, labels);
    Ok(format!("{before}{BEGIN}\n{tables}{END}{after}"))
}

fn tables(comparison: &Comparison, command: &str, labels: &Labels) -> String {
    let caption = (labels.caption)(command, &comparison.machine);
    let mut text = format!("\n{caption}\n\n");
    if !comparison.faults.is_empty() {
        let _ = writeln!(text, "{}", safety(comparison, labels));
    }
    if !comparison.figures.is_empty() {
        let _ = writeln!(text, "{}", load(comparison, labels));
    }
    if !comparison.absent.is_empty() {
        let names = comparison.absent.iter();
        let names: Vec<_> = names.map(|(backend, _)| format!("`{backend}`")).collect();
        let _ = writeln!(text, "{}: {}.\n", labels.not_compared, names.join(", "));
    }
    text
}

fn safety(comparison: &Comparison, labels: &Labels) -> String {
    let mut text = format!("| {} |", labels.lock);
    for fault in &comparison.faults {
        let _ = write!(text, " {} |", labels.fault(*fault));
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(comparison.faults.len()));
    let bold_lost = format!("**{}**", labels.lost);
    for backend in &comparison.backends {
        let _ = write!(text, "| `{backend}` |");
        for fault in &comparison.faults {
            let cell = comparison.cell(*backend, *fault);
            let _ = match cell.map(|cell| labels.cell(cell)) {
                Some(CellText::Safety { inside, rows }) => {
                    let rows = rows.replace(labels.lost, &bold_lost);
                    write!(text, " {inside}<br>{rows} |")
                }
                Some(CellText::Single(single)) => write!(text, " {single} |"),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text
}

fn load(comparison: &Comparison, labels: &Labels) -> String {
    let shown = columns(&comparison.loads);
    let header: Vec<_> = shown.iter().map(|column| labels.load[*column]).collect();
    let mut text = format!(
        "| {} | {} |\n|---|{}\n",
        labels.lock,
        header.join(" | "),
        "--:|".repeat(shown.len())
    );
    for figures in &comparison.figures {
        let values = values(figures, labels.polls);
        let cells: Vec<_> = shown
            .iter()
            .map(|column| values[*column].as_str())
            .collect();
        let _ = writeln!(text, "| `{}` | {} |", figures.backend, cells.join(" | "));
    }
    text
}
