//! Tests of the lab's commands and reports from outside.
#![allow(missing_docs, clippy::unwrap_used)]

mod browser;
mod command_line;
mod figures;
mod growth;
mod locks;
mod page;
mod sample;
mod translation;
mod verdicts;
