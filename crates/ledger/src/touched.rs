//! What entries touch besides their segment's row: orders, pending returns, transfers.
//!
//! It is read before the replay, as the ledger has it, and the replay keeps it up to date, so that what one entry did is there for the next. What is
//! different in the end is written.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::{BuyerId, ItemId, OrderId, OrderState, TransferId};

use crate::{PendingReturn, Transfer, limits::Watched};

/// What entries touch, as the ledger has it and as the replay leaves it.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Orders that are there already.
    pub orders: HashSet<OrderId>,
    /// Orders whose units were taken anew, by their own id.
    pub retaken: HashMap<OrderId, RetakenOrder>,
    /// Returns that were pending, and that the entries say are done.
    pub returns: HashMap<OrderId, PendingReturn>,
    /// Transfers whose units left or arrived.
    pub transfers: HashMap<TransferId, Transfer>,
    /// By item, the buyers who are held against its limit.
    pub watched: HashMap<ItemId, Watched>,
    /// What is to be written.
    pub changes: Changes,
}

impl Touched {
    /// Whether the buyer may have these units, taken then, as well.
    pub(crate) fn allows(&self, item: &ItemId, buyer: &BuyerId, units: u64, taken_ms: i64) -> bool {
        self.watched
            .get(item)
            .is_none_or(|watched| watched.allows(buyer, units, taken_ms))
    }

    /// Counts what the buyer has got.
    pub(crate) fn count(&mut self, item: &ItemId, buyer: &BuyerId, units: u64) {
        if let Some(watched) = self.watched.get_mut(item) {
            watched.count(buyer, units);
        }
    }
}

/// What a replay has changed, sorted: everybody writes in the same order, and nobody waits in a circle.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub retaken: BTreeMap<OrderId, RetakenOrder>,
    pub returns: BTreeMap<OrderId, PendingReturn>,
    pub transfers: BTreeMap<TransferId, Transfer>,
}

/// What of an order decides on a retake, and what a retake changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetakenOrder {
    pub id: OrderId,
    pub state: OrderState,
    pub attempt: u8,
    pub segment: u16,
    pub quantity: domain::Quantity,
    pub expires_ms: i64,
}
