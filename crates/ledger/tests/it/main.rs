//! The ledger on real databases. After every test the books of every item that it created are audited (`site.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

mod claims;
mod faults;
mod items;
mod reads;
mod recording;
mod schema;
mod site;
