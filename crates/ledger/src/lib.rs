//! The SQL truth: items, segments, orders, and what happens to them.
//!
//! Per segment the ledger keeps *the segment replayed up to a checkpoint* (`replay.rs`). This crate is the only one that knows a table's
//! name. It must not know Redis or HTTP: outbox entries reach it as [`domain::Entry`] values.

mod changes;
mod columns;
mod contract;
mod convert;
mod error;
mod life;
mod limits;
mod mending;
mod postgres;
mod recording;
mod replay;
mod sqlite;
mod totals;
mod touched;
mod transaction;

pub use changes::{
    Changed, ItemChange, JournalEntry, NewJournalEntry, StockChange, StockPart, Transfer,
    TransferPlan, TransferState,
};
pub use contract::{
    ByOrders, Claim, Created, ItemTotals, Ledger, Recorded, SegmentReplay, SegmentRow, connect,
    connect_again,
};
pub use error::LedgerError;
pub use life::{PendingReturn, Transition};
pub use mending::{Mended, Mending};
