//! The vocabulary of Stockade: items, orders, quantities, and the order's state machine.
//!
//! This crate does no I/O and is not async. It must not depend on Redis, SQL, HTTP, or the current
//! time.

mod cart;
mod id;
mod item;
mod memory;
mod order;
mod outbox;
mod quantity;
mod safety_check;
mod time;

pub use cart::{Cart, CartId, CartLine, CartRefusal, CartState, RefusalReason};
pub use id::{
    BuyerId, IdempotencyKey, Invalid, ItemId, ItemTag, OrderId, PaymentId, SegmentKey, SessionId,
    TransferId,
};
pub use item::{Durability, Item, ItemState, SegmentConfig, Wave, Window};
pub use memory::Memory;
pub use order::{Order, OrderState, Stated, Units};
pub use outbox::{Change, Entry, EntryId, ParseEntryIdError, TakenOrder, Transferred};
pub use quantity::Quantity;
pub use safety_check::{SafetyCheck, script_source};
#[cfg(feature = "ablation")]
pub use safety_check::{ScriptPatch, patch_scripts};
pub use time::GivenTime;
