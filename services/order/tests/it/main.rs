//! The order service over HTTP, on real servers.
//!
//! Every test runs in [`shop::open`], which audits every item of the test when it is over: each test is also a test of the identity.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod api;
mod clerk;
mod cost;
mod durability;
mod faults;
mod item_changes;
mod late;
mod levels;
mod life;
mod limits;
mod payments;
mod races;
mod returned;
mod sale;
mod shop;
mod slow_ledger;
mod stock_operations;
