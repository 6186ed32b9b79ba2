//! The stock against real servers. After every test the books of every item that it opened are
//! audited (`audit.rs`).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at whatever goes wrong, and say what it measured"
)]

mod ablation;
mod audit;
mod cost;
mod crowd;
mod differential;
mod early;
mod faults;
mod growth;
mod headers;
mod long_outbox;
mod operators;
mod proof;
mod reconnecting;
mod recorded;
mod refusals;
mod repair;
mod replicated;
mod returns;
mod sale;
mod scripts;
mod selling;
mod sentinel;
mod site;
mod sold_out_cache;
mod spillovers;
mod spread;
mod transitions;
mod unchecked;
mod writable;
