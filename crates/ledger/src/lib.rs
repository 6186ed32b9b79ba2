//! The SQL system of record: items, segments, orders, and their changes.
//!
//! For each segment the ledger stores its counters, replayed up to a checkpoint in the segment's
//! outbox (`replay.rs`). Only this crate uses table names. It must not depend on Redis or HTTP:
//! outbox entries reach it as [`domain::Entry`] values.

mod acts;
mod archive;
mod audited;
mod carts;
mod changes;
mod clock;
mod columns;
mod connect;
mod contract;
mod convert;
mod drops;
mod erasure;
mod error;
mod events;
mod inspection;
mod life;
mod limits;
mod listing;
mod live;
mod migrations;
mod pieces;
#[cfg(test)]
mod plans;
mod postgres;
mod processes;
mod recording;
mod refunds;
mod repair;
mod replay;
mod scope;
mod since;
mod sinks;
mod sqlite;
mod statements;
mod terms;
mod totals;
mod touched;
mod transaction;
mod webhooks;
mod words;

pub use acts::{Act, NewAct};
pub use archive::{Archival, FinalAudit};
pub use audited::{AuditResult, ComparedSums, FailedAudit, GoodAudit, LastAudits};
pub use carts::{CartStep, CreatedCart, SteppedCart, expiry::ExpiredCarts, line::ReturnedLine};
pub use changes::{
    Changed, ItemChange, JournalEntry, NewJournalEntry, StockChange, StockPart, Transfer,
    TransferPlan, TransferState,
};
pub use clock::{ClocksDiffer, earlier_time};
pub use connect::{
    PoolSettings, StatementLimits, connect, connect_again, connect_existing, connect_with,
};
pub use contract::{
    Acts, Archives, Audits, ByOrders, Carts, ChangedItem, Claim, Created, Drops, EventLog,
    ItemRows, ItemTotals, Ledger, ListedItem, Listing, LiveItem, OrderLife, Pace, Page, Processes,
    Reading, Recorded, Recording, Refunds, SegmentReplay, SegmentRow, Sinks, StockOperations,
    WalkProgress, Webhooks, WithoutPause,
};
pub use drops::{
    DropEnd, DropRequest, DroppedRows, ExportPage, ExportedRow, SaleTable, VerifiedExport,
};
pub use erasure::Erased;
pub use error::{LedgerError, NotWritable, ReadOnly, TimeLimit};
pub use events::{Event, EventCursor, EventKind, Events, InvalidCursor};
pub use inspection::{DatabaseConnections, DatabaseReplica, DatabaseReport};
pub use life::{Actors, PendingReturn, Transition};
pub use live::{ListChanges, LiveItems};
pub use postgres::postgres_connections;
pub use processes::{ProcessReport, ReportedLock, RequestCounts, SeenProcess};

pub use refunds::{NotedRefund, Payer, PaymentReturn, RefundReport, RefundState, ReturnedPayment};
pub use repair::{Repair, Repaired};
pub use scope::ItemScope;
pub use since::Sums;
pub use sinks::KnownSink;
pub use webhooks::{FailedAttempt, NewWebhook, Webhook};
