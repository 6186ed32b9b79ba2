//! The tables as part of a document: between two marks, so that whoever runs it again replaces them and nothing else.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::{
    table::columns,
    words::{Words, figures},
};
use crate::matrix::run::Matrix;

const BEGIN: &str = "<!-- matrix: begin -->";
const END: &str = "<!-- matrix: end -->";

/// The document with the tables of this run instead of those that it had.
pub fn replaced(document: &str, matrix: &Matrix, command: &str, words: &Words) -> Result<String> {
    let marks = || format!("it has no line {BEGIN} before a line {END}");
    let (before, rest) = document.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    Ok(format!(
        "{before}{BEGIN}\n{}{END}{after}",
        tables(matrix, command, words)
    ))
}

fn tables(matrix: &Matrix, command: &str, words: &Words) -> String {
    let mut text = format!("\n{}\n\n", (words.made)(command, &matrix.machine));
    if !matrix.faults.is_empty() {
        text.push_str(&safety(matrix, words));
        text.push('\n');
    }
    if !matrix.figures.is_empty() {
        text.push_str(&load(matrix, words));
        text.push('\n');
    }
    if !matrix.absent.is_empty() {
        let names: Vec<_> = matrix
            .absent
            .iter()
            .map(|(contestant, _)| format!("`{contestant}`"))
            .collect();
        let _ = writeln!(text, "{}: {}.\n", words.not_compared, names.join(", "));
    }
    text
}

fn safety(matrix: &Matrix, words: &Words) -> String {
    let mut text = format!("| {} |", words.backend);
    for fault in &matrix.faults {
        let _ = write!(text, " {} |", words.fault(*fault));
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(matrix.faults.len()));
    for contestant in &matrix.contestants {
        let _ = write!(text, "| `{contestant}` |");
        for fault in &matrix.faults {
            let _ = match matrix
                .cell(*contestant, *fault)
                .map(|cell| words.cell(cell))
            {
                Some((inside, Some(fates))) => write!(
                    text,
                    " {inside}<br>{} |",
                    fates.replace(words.lost, &format!("**{}**", words.lost))
                ),
                Some((wait, None)) => write!(text, " {wait} |"),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text
}

fn load(matrix: &Matrix, words: &Words) -> String {
    let shown = columns(&matrix.loads);
    let header: Vec<_> = shown.iter().map(|column| words.load[*column]).collect();
    let mut text = format!(
        "| {} | {} |\n|---|{}\n",
        words.backend,
        header.join(" | "),
        "--:|".repeat(shown.len())
    );
    for of_one in &matrix.figures {
        let figures = figures(of_one, words);
        let cells: Vec<_> = shown
            .iter()
            .map(|column| figures[*column].as_str())
            .collect();
        let _ = writeln!(text, "| `{}` | {} |", of_one.contestant, cells.join(" | "));
    }
    text
}
