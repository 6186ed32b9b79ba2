//! The ledger on real databases. After every test the books of every item that it created are audited (`site.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

mod changes;
mod claims;
mod cost;
mod devices;
mod faults;
mod items;
mod life;
mod limits;
mod mending;
mod races;
mod reads;
mod recording;
mod retakes;
mod schema;
mod site;
mod transfers;
