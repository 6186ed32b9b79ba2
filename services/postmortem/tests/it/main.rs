//! The lab from outside: what it shows of what was played.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

mod browser;
mod page;
mod sample;
