//! What the page looks like.

use maud::{Markup, PreEscaped};

const SHEET: &str = include_str!("style.css");

/// Everything, without what only its writers read.
pub(crate) fn sheet() -> Markup {
    let lines = SHEET
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("/*"));
    PreEscaped(lines.collect::<Vec<_>>().join("\n"))
}
