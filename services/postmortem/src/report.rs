//! How what was played is shown: a table for the terminal, a page for the browser, JSON for machines.

pub mod html;
pub mod json;
pub mod markdown;
mod svg;
pub mod table;
