//! The SQL truth: items, segments, orders.
//!
//! Per segment the ledger keeps *the segment replayed up to a checkpoint* (see [`replay`]). This crate is the only one that knows a table's
//! name. It must not know Redis or HTTP: outbox entries reach it as [`domain::Entry`] values.

mod contract;
mod convert;
mod error;
mod postgres;
mod recording;
pub mod replay;
mod sqlite;

pub use contract::{Claim, Created, ItemTotals, Ledger, Recorded, SegmentReplay, SegmentRow, connect};
pub use error::LedgerError;
