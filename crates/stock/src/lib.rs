//! The stock of an item in Redis: segments, the scripts that change them, natural batching, and the walk.
//!
//! This crate is the only one that knows the name of a stock key. It must not know SQL, HTTP or who may do what: it learns that an entry
//! has been recorded from a checkpoint that somebody publishes, and nothing more.
//!
//! | module | is |
//! |---|---|
//! | [`connection`] | one Redis server, a cluster of them, or whichever the sentinels name, behind one type |
//! | `server` | what a server must be before we trust it with stock |
//! | `keys` | every key name and channel name |
//! | `script` | one typed call per file in `lua/`, on the shared connection or until replicas have confirmed it |
//! | `answer` | what a segment remembers for an order |
//! | [`outbox`] | the log of a segment, read, trimmed and announced |
//! | `lane` | natural batching |
//! | `walk` | home, then around the ring |
//! | `admission` | the sold-out hint, and who may walk when few units are left |
//! | `checkpoint` | who waits for which entry to be recorded |
//! | `gather` | waits for units that lie in fragments |
//! | `give_back` | returns the units of orders, and their buyers' counts |
//! | `mend` | what a reconciler does to a segment, under its fencing token |
//! | [`walks`] | finishes and forgets the walks that nobody else did |

mod admission;
mod answer;
mod checkpoint;
mod clock;
pub mod connection;
mod error;
mod gather;
mod give_back;
mod item;
mod keys;
mod lane;
mod mend;
mod message;
pub mod outbox;
mod reply;
mod script;
mod server;
mod stock;
mod walk;
pub mod walks;

pub(crate) use answer::Answer;
pub use checkpoint::Fate;
pub use connection::RedisSettings;
pub use error::StockError;
pub use give_back::GiveBack;
pub use item::{ItemStock, Unrecorded};
pub use mend::{Halted, Moved, Restoration, TransferMemory};
pub use outbox::{Announcement, OutboxRead, RecordedEntries, Trimmed};
pub use script::{Adjusted, Inspection, InspectionEntries, Opened, StateSet};
pub use stock::{Stock, StockSettings};
pub use walk::{Acknowledge, Ask, Outcome};
