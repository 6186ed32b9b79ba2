//! The recorder between a real Redis and real databases. After every test Redis and the ledger are held against each other (`shop.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

mod cost;
mod devices;
mod faults;
mod history;
mod messages;
mod recording;
mod shop;
