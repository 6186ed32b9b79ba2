//! The client against a small server that follows a script.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a panic is how a test reports a failure"
)]

mod batches;
mod dropping;
mod lists;
mod lost;
mod problems;
mod requests;
mod retries;
mod server;
