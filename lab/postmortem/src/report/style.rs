//! The style sheet of the page.

use maud::{Markup, PreEscaped};

const SHEET: &str = include_str!("style.css");

/// Returns the style sheet without its comments.
pub(crate) fn sheet() -> Markup {
    let lines = SHEET
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("/*"));
    PreEscaped(lines.collect::<Vec<_>>().join("\n"))
}
