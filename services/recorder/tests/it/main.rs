//! The recorder with a real Redis and real databases. Every test ends with a comparison of Redis
//! and the ledger (`env.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

mod ablation;
mod cost;
mod env;
mod faults;
mod history;
mod messages;
mod recording;
