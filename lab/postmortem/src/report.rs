//! Reports of a run: tables for the terminal, a page for the browser, a Markdown document and JSON.

pub mod html;
pub mod json;
pub mod markdown;
pub mod prose;
pub mod table;

// Parts of the page.
mod figure;
mod index;
mod section;
mod style;
mod variants;
mod verdict;
