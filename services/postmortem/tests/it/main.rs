//! The lab from outside: what it shows of what was played.
#![allow(missing_docs, clippy::unwrap_used)]

mod browser;
mod command_line;
mod matrix;
mod page;
mod sample;
mod translation;
mod verdicts;
