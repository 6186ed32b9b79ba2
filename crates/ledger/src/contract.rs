//! The contract between the engine and the SQL databases, cut by user.
//!
//! Each trait serves one role: [`Recording`] the recorder, [`OrderLife`] and [`Refunds`] the order
//! service and the expiry, [`Carts`] the same for orders of several items, [`StockOperations`]
//! operators and the reconciler, [`Archives`] and [`Drops`] the end of an item, [`Audits`] what
//! audits have found, [`Reading`] everything that only looks at the tables, [`Listing`] the lists
//! of the API, [`EventLog`], [`Webhooks`] and [`Sinks`] what leaves the engine, [`Processes`] what
//! runs. [`Ledger`] is all of them; its users hold an `Arc<dyn Ledger>`.

mod acts;
mod archives;
mod carts;
mod drops;
mod events;
mod listing;
mod order_life;
mod processes;
mod reading;
mod recording;
mod refunds;
mod sinks;
mod stock_operations;
mod webhooks;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{DatabaseReport, LedgerError};
pub use {
    acts::Acts,
    archives::Archives,
    carts::Carts,
    drops::{Audits, Drops},
    events::EventLog,
    listing::{ListedItem, Listing, Page},
    order_life::OrderLife,
    processes::Processes,
    reading::{ByOrders, ItemRows, ItemTotals, Pace, Reading, WalkProgress, WithoutPause},
    recording::{ChangedItem, Claim, LiveItem, Recorded, Recording, SegmentReplay, SegmentRow},
    refunds::Refunds,
    sinks::Sinks,
    stock_operations::{Created, StockOperations},
    webhooks::Webhooks,
};

/// Old events do not stay for a sink that no publisher has had for so long.
pub(crate) const SINK_UNUSED_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

/// A ledger. Every method is one transaction; every change is version-checked.
#[async_trait]
pub trait Ledger:
    Recording
    + OrderLife
    + Carts
    + StockOperations
    + Acts
    + Archives
    + Drops
    + Audits
    + Refunds
    + Reading
    + Listing
    + EventLog
    + Webhooks
    + Sinks
    + Processes
{
    /// Brings the schema up to date. Several processes may call it concurrently.
    async fn migrate(&self) -> Result<(), LedgerError>;

    /// Versions of the migrations that the schema lacks, in order. Those of a newer release do not
    /// count.
    async fn missing_migrations(&self) -> Result<Vec<i64>, LedgerError>;

    /// What the database says of itself.
    async fn inspect(&self) -> Result<DatabaseReport, LedgerError>;

    /// Returns as soon as the database has answered a trivial query.
    async fn ping(&self) -> Result<(), LedgerError>;

    /// The time of the database. What it dates by itself, such as events, has this time.
    async fn time(&self) -> Result<Timestamp, LedgerError>;

    /// Fails unless the database takes writes now: a server that is a standby or whose transactions
    /// are read only fails, and so does a file that is read only or whose disk is full. Cheap
    /// enough for once a second.
    ///
    /// PostgreSQL is asked on a connection of its own, which a full pool does not delay. SQLite
    /// commits one page, and waits for other writers as an order does.
    async fn check_writable(&self) -> Result<(), LedgerError>;
}
