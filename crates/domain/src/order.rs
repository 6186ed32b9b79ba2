//! A buyer's claim on units of an item.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{BuyerId, ItemId, OrderId, Quantity, item::named_enum};

/// A buyer's claim on a quantity of one item, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its name.
    pub id: OrderId,
    /// What was ordered.
    pub item: ItemId,
    /// The segment that gave the units.
    pub segment: u16,
    /// Who ordered.
    pub buyer: BuyerId,
    /// How many units.
    pub quantity: Quantity,
    /// Where it stands.
    pub state: OrderState,
    /// When the hold is over.
    pub expires_at: Timestamp,
    /// Rises with every transition.
    pub version: u64,
}

named_enum! {
    /// Where an order stands.
    OrderState {
        /// The units are the buyer's until the hold is over.
        Held = "held",
        /// The ledger could not cover it. Nothing was taken.
        Rejected = "rejected",
    }
}
