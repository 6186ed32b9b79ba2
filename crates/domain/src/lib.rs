//! What Stockade sells and to whom: items, orders, quantities, and the order's state machine.
//!
//! This crate does no I/O and is not async. It must not know Redis, SQL, HTTP, or what time it is now.

mod id;
mod item;
mod memory;
mod order;
mod outbox;
mod quantity;

pub use id::{
    BuyerId, IdempotencyKey, Invalid, ItemId, ItemTag, OrderId, PaymentId, SegmentKey, TransferId,
};
pub use item::{Durability, Item, ItemState, SegmentConfig, Window};
pub use memory::Memory;
pub use order::{Order, OrderState, Units};
pub use outbox::{Change, Entry, EntryId, ParseEntryIdError, TakenOrder, Transferred};
pub use quantity::Quantity;
