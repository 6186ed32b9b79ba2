//! The rows that entries touch besides their segment's: orders, pending returns, transfers.
//!
//! They are read before the replay, as the ledger has them. The replay keeps them up to date, so
//! that each entry sees the effects of the earlier ones. The changed rows are written at the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::{BuyerId, ItemId, OrderId, TransferId};

use crate::{PendingReturn, Transfer, limits::Watched, statements::ReacquiredOrder};

/// The rows that entries touch, read from the ledger and updated by the replay.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Orders that the ledger already has.
    pub orders: HashSet<OrderId>,
    /// Orders whose units were reacquired, by the order's own id.
    pub reacquired: HashMap<OrderId, ReacquiredOrder>,
    /// Pending returns that the entries complete.
    pub returns: HashMap<OrderId, PendingReturn>,
    /// Transfers whose units left or arrived.
    pub transfers: HashMap<TransferId, Transfer>,
    /// By item, the buyers whose orders are checked against its limit.
    pub watched: HashMap<ItemId, Watched>,
    /// Changes to write.
    pub changes: Changes,
}

impl Touched {
    /// Whether the limit allows the buyer these units, taken at `taken_ms`.
    pub(crate) fn allows(&self, item: &ItemId, buyer: &BuyerId, units: u64, taken_ms: i64) -> bool {
        self.watched
            .get(item)
            .is_none_or(|watched| watched.allows(buyer, units, taken_ms))
    }

    /// Adds the units to those that the buyer holds.
    pub(crate) fn count(&mut self, item: &ItemId, buyer: &BuyerId, units: u64) {
        if let Some(watched) = self.watched.get_mut(item) {
            watched.count(buyer, units);
        }
    }
}

/// Rows that a replay has changed, sorted: all transactions write in the same order, so that no
/// cycle of lock waits can form.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub reacquired: BTreeMap<OrderId, ReacquiredOrder>,
    pub returns: BTreeMap<OrderId, PendingReturn>,
    pub transfers: BTreeMap<TransferId, Transfer>,
}
