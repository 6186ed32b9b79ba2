//! Audits: proof that every unit of an item is accounted for.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The comparison of an item's stock counters in Redis with the ledger.
///
/// Every number is required. A missing one must not read as "no drift".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The name of the item.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Units that can be bought, according to Redis.
    pub available: u64,
    /// Units of orders that wait for a payment, according to the ledger.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of ended orders that are not available again yet.
    pub returning: u64,
    /// Units on their way between segments, into the stock, or out of it.
    pub in_transit: u64,
    /// Units that were reserved in Redis and are not in the ledger yet.
    pub in_flight: u64,
    /// Units that are not accounted for, summed over the segments without sign. Must be 0.
    pub drift: u64,
    /// Units by which orders and segment counters of the ledger differ. Part of `drift`. Must be 0.
    pub miscounted: u64,
    /// Units promised beyond the stock. Must be 0.
    pub oversold: u64,
    /// Number of orders that the ledger could not cover. They were answered `sold_out`.
    pub rejected_orders: u64,
    /// Whether `drift` and `oversold` are 0.
    pub ok: bool,
    /// When the orders themselves were compared with the ledger's counters. Releases that lack it
    /// compared them in every audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders_checked: Option<OrdersChecked>,
    /// When the item was archived. This is its final audit then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    /// When the last order of the archived item was dropped. The ledger has this audit alone then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_at: Option<Timestamp>,
    /// Each segment.
    pub segments: Vec<SegmentAudit>,
}

/// What is known of the orders of an item: the results of its last full audits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersChecked {
    /// When the last full audit began that found all orders to agree with the counters. `None`:
    /// there was none yet.
    pub at: Option<Timestamp>,
    /// Whether the counters are those that all orders add up to: none has changed since that audit,
    /// or those that have were compared, too.
    pub current: bool,
    /// The fault that the last full audit has found, until a later one finds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<OrdersFault>,
}

/// What a full audit has found wrong with the orders of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersFault {
    /// When it was found.
    pub at: Timestamp,
    /// Units by which the orders differed from the counters.
    pub miscounted: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
}

/// The comparison of one stock counter with the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentAudit {
    /// The number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that can be bought, according to Redis; `None`: Redis does not have the segment.
    pub available: Option<u64>,
    /// Units that could be bought at the checkpoint.
    pub available_at_checkpoint: u64,
    /// Units of orders that wait for a payment, at the checkpoint.
    pub held: u64,
    /// Units of paid orders, at the checkpoint.
    pub confirmed: u64,
    /// Units of ended orders that are not available again yet, at the checkpoint.
    pub returning: u64,
    /// Units that were reserved after the checkpoint.
    pub in_flight: u64,
    /// The last outbox entry that the ledger has.
    pub checkpoint: Option<String>,
    /// The last outbox entry.
    pub last: Option<String>,
    /// Units that Redis has beyond what the ledger implies; negative if it has fewer. Must be 0.
    pub drift: i64,
    /// A description of the difference, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

impl Audit {
    /// Whether two audits of an item at rest say the same, besides when its orders were checked.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let without = |audit: &Self| Self {
            orders_checked: None,
            ..audit.clone()
        };
        without(self) == without(other)
    }

    /// Units that buyers have, according to the ledger.
    pub fn promised(&self) -> u64 {
        self.held + self.confirmed
    }

    /// Whether no unit is on its way: to the ledger, back to the stock, or between segments.
    pub fn is_at_rest(&self) -> bool {
        self.in_flight == 0 && self.returning == 0 && self.in_transit == 0
    }
}
