//! The reconciler on real servers: whatever is left half-way, wrong or lost is put right, and nothing is done twice.
//!
//! Every test ends with an audit of each of its items: nothing drifts, nothing is on its way, and the counts of buyers are what they have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod authority;
mod balance;
mod deaf;
mod drift;
mod expiry;
mod explain;
mod failover;
mod history;
mod identity;
mod locks;
mod metrics;
mod returns;
mod shop;
mod stock_changes;
mod walks;
