//! What segments must remember of orders, read in pages: an item may have more orders than fit into
//! memory.
//!
//! A page is two statements and no snapshot. That is enough, because its readers have halted the
//! segments before. An order that ends between the two statements has its units on their way back,
//! which a segment remembers as taken, and so it does before the order ends.

use std::collections::{BTreeMap, HashSet};

use domain::{BuyerId, Memory, OrderId, OrderState, Quantity, Units};

use crate::PendingReturn;

/// The columns of an order that a segment must remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RememberedOrder {
    pub id: OrderId,
    pub segment: u16,
    pub buyer: BuyerId,
    pub quantity: Quantity,
    pub state: OrderState,
    pub expires_ms: i64,
    pub attempt: u8,
}

/// The ids under which units of these orders may be on their way back.
pub(crate) fn ids_of_attempts(orders: &[RememberedOrder]) -> Vec<OrderId> {
    let attempts = |order: &RememberedOrder| {
        let id = order.id;
        (0..=order.attempt).map(move |attempt| id.reacquire(attempt))
    };
    orders.iter().flat_map(attempts).collect()
}

/// The ranges of ids of the buyers of these orders, in order. Each range is listed once.
pub(crate) fn ranges_of(orders: &[OrderId]) -> Vec<[OrderId; 2]> {
    let mut seen = HashSet::new();
    let mut ranges: Vec<_> = orders
        .iter()
        .map(|order| order.buyers_range())
        .filter(|range| seen.insert(*range))
        .collect();
    ranges.sort_unstable();
    ranges
}

/// The latest attempt of each order, followed by its earlier attempts whose return is pending.
pub(crate) fn memories(orders: &[RememberedOrder], returns: Vec<PendingReturn>) -> Vec<Memory> {
    let mut pending: BTreeMap<OrderId, Vec<PendingReturn>> = BTreeMap::new();
    for back in returns {
        pending.entry(back.id.first()).or_default().push(back);
    }
    let mut memories = Vec::with_capacity(orders.len());
    for order in orders {
        let mut latest = Memory {
            order: order.id,
            attempt: order.attempt,
            segment: order.segment,
            buyer: order.buyer.clone(),
            quantity: order.quantity,
            expires_ms: order.expires_ms,
            taken: order.state.units() != Units::None,
        };
        let (current, earlier): (Vec<_>, Vec<_>) = pending
            .remove(&order.id)
            .unwrap_or_default()
            .into_iter()
            .partition(|back| back.id.attempt() == order.attempt);
        latest.taken |= !current.is_empty();
        let earlier = earlier.into_iter().map(|back| Memory {
            attempt: back.id.attempt(),
            segment: back.segment.segment,
            quantity: back.quantity,
            taken: true,
            ..latest.clone()
        });
        let earlier: Vec<_> = earlier.collect();
        memories.push(latest);
        memories.extend(earlier);
    }
    memories
}
