//! The models. See the documentation of the crate.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop at whatever goes wrong, and say what it measured"
)]

#[macro_use]
mod check;
mod lock;
mod payment;
mod stock;
