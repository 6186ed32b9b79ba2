//! The order service over HTTP, on real servers.
//!
//! Every test runs in [`env::open`], which audits every item of the test at the end: each test also
//! checks the conservation invariant.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ablation;
mod admins;
mod amounts;
mod api;
mod archive;
mod batch;
mod bodies;
mod carts;
mod clerk;
mod cost;
mod described;
mod direct;
mod durability;
mod env;
mod events;
mod faults;
mod forgotten;
mod holds;
mod idle;
mod item_changes;
mod late;
mod levels;
mod life;
mod limits;
mod lists;
mod names;
mod payments;
mod prices;
mod processor;
mod races;
mod rates;
mod readiness;
mod returned;
mod sale;
mod several;
mod slow_ledger;
mod stock_operations;
mod stripe;
mod terms;
mod threads;
mod webhooks;
