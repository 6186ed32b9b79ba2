//! What entries touch besides their segment's row: orders, pending returns, transfers.
//!
//! It is read before the replay, as the ledger has it, and the replay keeps it up to date, so that what one entry did is there for the next. What is
//! different in the end is written.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::{BuyerId, OrderId, OrderState, TransferId};

use crate::{PendingReturn, Transfer};

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
    /// Only where history has diverged: what Redis took then is not known to be within the buyers' limit.
    pub limit: Option<Limit>,
    /// What is to be written.
    pub changes: Changes,
}

impl Touched {
    /// Whether the buyer may have these units as well. If so, they are counted.
    pub(crate) fn allow(&mut self, buyer: &BuyerId, units: u64) -> bool {
        let Some(limit) = &mut self.limit else { return true };
        let held = limit.held.entry(buyer.clone()).or_default();
        let allowed = *held + units <= limit.units;
        *held += if allowed { units } else { 0 };
        allowed
    }
}

/// A limit, and what counts against it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit {
    /// Units that one buyer may hold.
    pub units: u64,
    /// What buyers hold.
    pub held: HashMap<BuyerId, u64>,
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
