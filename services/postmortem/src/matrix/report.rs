//! How the matrix is shown: two tables for the terminal, a page for the browser, a document's part in Markdown, JSON for machines.

pub mod html;
pub mod json;
pub mod markdown;
pub mod table;

mod notes;
mod words;

pub use words::{Words, words_for};
