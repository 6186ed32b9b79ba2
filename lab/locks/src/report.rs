//! How a comparison is shown: tables for the terminal, a page for the browser, a part of a Markdown
//! document, JSON for programs.

pub mod html;
pub mod json;
pub mod markdown;
pub mod table;

// What several of them use.
mod columns;
mod labels;
mod notes;

pub use labels::{Labels, labels_for};
