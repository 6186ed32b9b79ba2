//! The stock of an item in Redis: segments, the scripts that change them, request coalescing, and
//! the spillover of an order from its home segment to the next ones.
//!
//! This crate is the only one that knows the name of a stock key. It must not know SQL, HTTP or
//! permissions. It learns that an entry has been recorded from a published message, and nothing
//! more.
//!
//! Modules depend on those above them:
//!
//! | module | is |
//! |---|---|
//! | `settings`, `error`, `keys`, `clock` | what the rest refers to |
//! | `decision` | the decision that a segment stores for an order |
//! | `reply` | reads a script's reply field by field |
//! | `outbox` | the log of a segment: its entries, their bytes and fingerprints |
//! | [`connection`] | one Redis server, a cluster, or the master that Sentinel names, behind one type |
//! | `message` | pub/sub subscriptions that survive a lost connection |
//! | `admission` | the sold-out cache, and how many orders may proceed when few units are left |
//! | `replies` | replies to orders whose callers run on other threads |
//! | `request` | an order on its way to the segments, and their reply |
//! | `script` | one typed call per file in `lua/` |
//! | `snapshot` | a snapshot of a segment with its outbox, in bounded replies |
//! | `checkpoint` | which orders wait for which outbox entry to be recorded |
//! | `batcher` | request coalescing: one batch in flight, the next one collects meanwhile |
//! | `refusal` | answers that prove that a script has not run |
//! | `runtime` | the runtime that the connections to Redis belong to |
//! | `shared` | what all items of a process share |
//! | `item` | one item: reserve, settle spillovers, release, wait for consolidation |
//! | `inspection` | what the servers say of themselves before a sale |
//! | `writable` | whether every master would take an order |
//! | `stock` | the entry point: open, configure, inspect, outboxes, repair, consolidation requests |

mod admission;
mod batcher;
mod checked;
mod checkpoint;
mod clock;
pub mod connection;
mod decision;
mod error;
mod inspection;
mod item;
mod keys;
mod message;
mod outbox;
mod refusal;
mod replies;
mod reply;
mod request;
mod runtime;
mod script;
mod settings;
mod shared;
mod snapshot;
mod stock;
mod woken;
mod writable;

pub use checkpoint::Resolution;
pub use connection::{REDIS_SCHEMES, ServerMemory, lists_hosts};
pub use error::StockError;
pub use inspection::{RedisReport, ReplicaReport, inspect};
pub use item::{Foreseen, Foresight, Found, ItemStock, Release, Settled, Unrecorded};
pub use outbox::{Announcement, OutboxRead, RecordedEntries, Trimmed};
pub use redis::{ClientTlsConfig, TlsCertificates};
pub use replies::ReplyThread;
pub use request::{Acknowledge, Outcome, Reservation};
pub use script::{
    Adjusted, Inspection, InspectionEntries, OffHomeOrder, OldMemory, Opened, StateSet,
};
pub use settings::{RedisSettings, StockSettings};
pub use stock::{Halted, Moved, Rehearsed, Restoration, Restoring, Stock, TransferMemory, Wakeup};
pub use woken::{Woken, WokenItems};
pub use writable::{WriteCheck, check_writable};
