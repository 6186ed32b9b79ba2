//! How what was played is shown: a table for the terminal, a page for the browser, JSON for machines.

pub mod html;
pub mod json;
pub mod markdown;
pub mod table;

// What the page is made of.
mod figure;
mod index;
pub(crate) mod prose;
mod section;
mod style;
mod verdict;
mod ways;
