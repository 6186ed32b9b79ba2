//! The reconciler on real servers: it completes interrupted work and repairs wrong or lost state,
//! each exactly once.
//!
//! Every test ends with an audit of each of its items: no drift, no units in transit, and buyers'
//! counts that match their orders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ablation;
mod archiving;
mod audits;
mod backlog;
mod balance;
mod closing;
mod drift;
mod dropping;
mod env;
mod expiry;
mod failover;
mod forgotten;
mod gauges;
mod history;
mod idle;
mod invariant;
mod item_lock;
mod large_repair;
mod locks;
mod metrics;
mod plan;
mod returns;
mod silent;
mod spillovers;
mod stock_changes;
mod unresponsive;
mod waves;
