//! Tests of the ledger on real databases. Every test ends with an audit of the items that it
//! created (`env.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

mod ablation;
mod archives;
mod changes;
mod claims;
mod cost;
mod env;
mod events;
mod expired_carts;
mod faults;
mod items;
mod late_carts;
mod life;
mod limits;
mod listing;
mod live;
mod names;
mod pooler;
mod prices;
mod processes;
mod races;
mod reacquisitions;
mod reads;
mod recording;
mod refunds;
mod refusals;
mod repair;
mod returned_lines;
mod schema;
mod since;
mod sinks;
mod transfers;
mod walks;
mod webhooks;
mod wrong_server;
