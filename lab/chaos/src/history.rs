//! What the clients were promised: the history of every order, as its buyer observed it.
//!
//! The judge compares this history with the ledger.

mod carts;
mod payments;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use ::judge::life::after_hold;
use client::{Durability, OrderState};
use uuid::Uuid;

pub use self::{
    carts::{CartHistory, CartPlacement},
    payments::{Answer, Note, PaymentHistory, Report},
};

/// What clients were promised in a round.
#[derive(Clone, Debug, Default)]
pub struct Histories {
    /// Every order that was placed by itself.
    pub orders: Vec<OrderHistory>,
    /// Every cart.
    pub carts: Vec<CartHistory>,
    /// Every payment of the item that has a price.
    pub payments: Vec<PaymentHistory>,
}

/// An item that the workload buys.
#[derive(Clone, Debug)]
pub struct SaleItem {
    /// The name.
    pub id: String,
    /// When its orders are acknowledged.
    pub durability: Durability,
    /// Number of units at the beginning.
    pub stock: u64,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Number of stock counters.
    pub segments: u16,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
}

impl SaleItem {
    /// The item of the tests.
    #[cfg(test)]
    pub fn vase() -> Self {
        Self {
            id: "vase".into(),
            durability: Durability::Recorded,
            stock: 9,
            limit: 9,
            segments: 1,
            hold_seconds: 2,
        }
    }

    /// Seconds to which a buyer may have a hold extended.
    pub fn max_hold_seconds(&self) -> u32 {
        self.hold_seconds * 2
    }
}

/// The outcome of placing an order, as its buyer observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The service acknowledged the order with this id.
    Acknowledged(Uuid),
    /// The service refused the order with this code.
    Refused(String),
    /// No attempt got a response that settles the outcome.
    Unknown,
}

/// The history of one order.
#[derive(Clone, Debug)]
pub struct OrderHistory {
    /// The item.
    pub item: Arc<SaleItem>,
    /// The name of the buyer.
    pub buyer: String,
    /// The idempotency key.
    pub key: String,
    /// Number of units that the order asks for.
    pub quantity: u32,
    /// Number of requests under this key. The response to one of several requests does not settle
    /// the outcome of the others.
    pub requests: u32,
    /// The outcome of placing the order.
    pub placement: Placement,
    /// The payment that the service acknowledged for this order.
    pub payment: Option<String>,
    /// Every acknowledged state, the oldest first.
    pub acknowledged: Vec<OrderState>,
    /// Every requested state, with or without a response.
    pub requested: BTreeSet<OrderState>,
    /// Responses that contradict the API or an earlier response.
    pub contradictions: Vec<String>,
    /// From the first request to the response. `None`: it was never sent.
    pub span: Option<(Instant, Instant)>,
}

impl OrderHistory {
    /// An order of which nothing is known yet.
    pub fn new(
        item: &Arc<SaleItem>,
        buyer: impl Into<String>,
        key: impl Into<String>,
        quantity: u32,
    ) -> Self {
        Self {
            item: Arc::clone(item),
            buyer: buyer.into(),
            key: key.into(),
            quantity,
            requests: 0,
            placement: Placement::Unknown,
            payment: None,
            acknowledged: Vec::new(),
            requested: BTreeSet::new(),
            contradictions: Vec::new(),
            span: None,
        }
    }

    /// The states in which the ledger may have the order, once every hold has ended.
    pub fn allowed(&self) -> BTreeSet<OrderState> {
        let mut allowed = after_hold(&self.acknowledged, &self.requested);
        // An order that may have expired had at most its hold acknowledged.
        let is_at_most_held = allowed.contains(&OrderState::Expired);
        let may_be_rejected =
            self.acknowledged.is_empty() || self.item.durability != Durability::Recorded;
        if is_at_most_held && may_be_rejected {
            allowed.insert(OrderState::Rejected);
        }
        allowed
    }

    /// Whether the ledger may have an order that its buyer cannot name: no response arrived, or one
    /// of several requests was refused. A refusal from the sold-out cache leaves no record, so
    /// another request with the same key may have reserved units.
    pub fn may_exist_unacknowledged(&self) -> bool {
        match self.placement {
            Placement::Acknowledged(_) => false,
            Placement::Refused(_) => self.requests > 1,
            Placement::Unknown => true,
        }
    }

    /// Whether it was refused as sold out.
    pub fn is_sold_out(&self) -> bool {
        matches!(&self.placement, Placement::Refused(code) if code == "sold_out")
    }

    /// Whether some request may have taken units for it.
    pub fn may_have_units(&self) -> bool {
        matches!(self.placement, Placement::Acknowledged(_)) || self.may_exist_unacknowledged()
    }

    /// Number of acknowledgements that the buyer received.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use client::{
        Durability,
        OrderState::{self, *},
    };
    use uuid::Uuid;

    use super::{OrderHistory, Placement, SaleItem};

    fn history(
        durability: Durability,
        acknowledged: &[OrderState],
        requested: &[OrderState],
    ) -> OrderHistory {
        let item = SaleItem {
            durability,
            ..SaleItem::vase()
        };
        OrderHistory {
            requests: 1,
            placement: Placement::Acknowledged(Uuid::nil()),
            acknowledged: acknowledged.into(),
            requested: requested.iter().copied().collect(),
            ..OrderHistory::new(&Arc::new(item), "ann", "k", 1)
        }
    }

    #[test]
    fn the_last_acknowledgement_decides_the_allowed_states() {
        let table: [(&[OrderState], &[OrderState], &[OrderState]); 9] = [
            (&[Held], &[], &[Expired]),
            (&[Held], &[Confirmed], &[Expired, Confirmed, RefundDue]),
            (&[Held], &[Cancelled], &[Expired, Cancelled]),
            (&[Held, Confirmed], &[Confirmed], &[Confirmed]),
            (
                &[Held, Confirmed],
                &[Confirmed, Refunded],
                &[Confirmed, Refunded],
            ),
            (
                &[Held, Confirmed, Refunded],
                &[Confirmed, Refunded],
                &[Refunded],
            ),
            (&[Held, Cancelled], &[Cancelled], &[Cancelled]),
            (&[Held, RefundDue], &[Confirmed], &[RefundDue]),
            (&[], &[], &[Expired, Rejected]),
        ];
        for (acknowledged, requested, allowed) in table {
            let history = history(Durability::Recorded, acknowledged, requested);
            assert_eq!(
                history.allowed(),
                allowed.iter().copied().collect::<BTreeSet<_>>(),
                "{acknowledged:?} {requested:?}"
            );
        }
    }

    #[test]
    fn the_ledger_may_reject_only_orders_acknowledged_before_it_recorded_them() {
        assert!(
            !history(Durability::Recorded, &[Held], &[])
                .allowed()
                .contains(&Rejected)
        );
        assert!(
            history(Durability::Accepted, &[Held], &[])
                .allowed()
                .contains(&Rejected)
        );
        assert!(
            !history(Durability::Accepted, &[Held, Confirmed], &[Confirmed])
                .allowed()
                .contains(&Rejected)
        );
    }
}
