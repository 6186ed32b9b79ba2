//! The stock against real servers. After every test the books of every item that it opened are audited (`audit.rs`).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at whatever goes wrong, and say what it measured"
)]

mod audit;
mod cost;
mod crowd;
mod devices;
mod differential;
mod faults;
mod headers;
mod hint;
mod mending;
mod model;
mod recorded;
mod replicated;
mod returns;
mod sale;
mod scripts;
mod selling;
mod sentinel;
mod site;
mod spread;
mod transitions;
mod walks;
