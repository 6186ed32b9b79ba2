//! The history of a cart: several items that its buyer gets all or none of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use ::judge::life::after_hold;
use client::CartState;
use uuid::Uuid;

use super::SaleItem;

/// The outcome of placing a cart, as its buyer observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CartPlacement {
    /// The service acknowledged the cart with this id, and an order for each item.
    Acknowledged {
        /// The name of the cart.
        id: Uuid,
        /// The names of its orders, by item.
        orders: BTreeMap<String, Uuid>,
    },
    /// The service refused the cart.
    Refused {
        /// The code.
        code: String,
        /// The item of the line that was refused, if there was one.
        item: Option<String>,
        /// Whether it is final for the key. A refusal that wrote nothing is not.
        is_final: bool,
    },
    /// No attempt got a response that settles the outcome.
    Unknown,
}

/// The history of one cart.
#[derive(Clone, Debug)]
pub struct CartHistory {
    /// The items, and the units of each. No item occurs twice.
    pub lines: Vec<(Arc<SaleItem>, u32)>,
    /// The name of the buyer.
    pub buyer: String,
    /// The idempotency key.
    pub key: String,
    /// Number of requests under this key.
    pub requests: u32,
    /// The outcome of placing the cart.
    pub placement: CartPlacement,
    /// The payment that the service acknowledged for this cart.
    pub payment: Option<String>,
    /// Every acknowledged state, the oldest first.
    pub acknowledged: Vec<CartState>,
    /// Every requested state, with or without a response.
    pub requested: BTreeSet<CartState>,
    /// Responses that contradict the API or an earlier response.
    pub contradictions: Vec<String>,
    /// From the first request to the response. `None`: it was never sent.
    pub span: Option<(Instant, Instant)>,
}

impl CartHistory {
    /// A cart of which nothing is known yet.
    pub fn new(
        lines: Vec<(Arc<SaleItem>, u32)>,
        buyer: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        Self {
            lines,
            buyer: buyer.into(),
            key: key.into(),
            requests: 0,
            placement: CartPlacement::Unknown,
            payment: None,
            acknowledged: Vec::new(),
            requested: BTreeSet::new(),
            contradictions: Vec::new(),
            span: None,
        }
    }

    /// The states in which the ledger may have an acknowledged cart, once every hold has ended.
    pub fn allowed(&self) -> BTreeSet<CartState> {
        after_hold(&self.acknowledged, &self.requested)
    }

    /// Whether the ledger may have had it as held although its buyer cannot name it: no response
    /// arrived, or one of several requests was refused before it wrote anything.
    pub fn may_exist_unacknowledged(&self) -> bool {
        match self.placement {
            CartPlacement::Acknowledged { .. } => false,
            CartPlacement::Refused { is_final, .. } => !is_final && self.requests > 1,
            CartPlacement::Unknown => true,
        }
    }

    /// Units of an item that the cart may have taken, if only for a while: lines are taken by item,
    /// up to the one that is refused.
    pub fn may_have_taken(&self, item: &str) -> u64 {
        let is_before_refusal = match &self.placement {
            CartPlacement::Refused {
                item: Some(refused),
                ..
            } => self.requests > 1 || item < refused.as_str(),
            _ => true,
        };
        let of_item = self.lines.iter().filter(|(line, _)| line.id == item);
        let units = of_item.map(|(_, quantity)| u64::from(*quantity)).sum();
        if is_before_refusal { units } else { 0 }
    }

    /// Items and units, as the ledger lists them.
    pub fn units(&self) -> BTreeMap<&str, u64> {
        let lines = self.lines.iter();
        lines
            .map(|(item, quantity)| (&*item.id, u64::from(*quantity)))
            .collect()
    }
}
