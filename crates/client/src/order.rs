//! Orders: what a buyer requests, and what the service reports.

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::{Ended, Error, IdempotencyKey, Order, OrderState, Response};

/// An order to be placed. The same value, or a copy of it, is always the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    item: String,
    quantity: u32,
    key: IdempotencyKey,
    amount: Option<u64>,
    respond_async: bool,
}

/// An order that was placed, now or by an earlier request with the same key.
///
/// The calls that place orders return it only if the order has units. One that has ended since is
/// [`Error::NoLongerHeld`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The order as it is now. After a replay it may have moved on.
    pub order: Order,
    /// Whether an earlier request with this key had placed it.
    pub replayed: bool,
    /// Whether the ledger has the order (201). Otherwise (202) only Redis has it.
    pub recorded: bool,
}

#[derive(Serialize)]
struct Body {
    quantity: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<u64>,
}

impl NewOrder {
    /// An order of `quantity` units with a random key.
    pub fn new(item: impl Into<String>, quantity: u32) -> Self {
        Self {
            item: item.into(),
            quantity,
            key: IdempotencyKey::random(),
            amount: None,
            respond_async: false,
        }
    }

    /// The same order with a key of your own.
    #[must_use]
    pub fn with_key(self, key: IdempotencyKey) -> Self {
        Self { key, ..self }
    }

    /// The same order at the shop's total, with shipping and tax: payments are checked against it.
    /// By default it costs the price of its units, and a buyer states no less.
    #[must_use]
    pub fn with_amount(self, amount: u64) -> Self {
        Self {
            amount: Some(amount),
            ..self
        }
    }

    /// Asks for a response before the ledger has the order (`Prefer: respond-async`). See
    /// [`Placed::recorded`].
    #[must_use]
    pub fn respond_async(self) -> Self {
        Self {
            respond_async: true,
            ..self
        }
    }

    /// The name of the item.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// Number of units.
    pub fn quantity(&self) -> u32 {
        self.quantity
    }

    /// What makes every repeat the same order.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    pub(crate) fn prefers_async(&self) -> bool {
        self.respond_async
    }

    pub(crate) fn body(&self) -> Bytes {
        // Nearly all orders are for one or two units, and a load generator places many of them.
        match (self.quantity, self.amount) {
            (1, None) => Bytes::from_static(br#"{"quantity":1}"#),
            (2, None) => Bytes::from_static(br#"{"quantity":2}"#),
            (quantity, amount) => serde_json::to_vec(&Body { quantity, amount })
                .unwrap_or_default()
                .into(),
        }
    }

    /// Reads the response to this order, and verifies that it is about this order. After a replay
    /// the order may have ended, so look at [`OrderState::has_units`].
    pub fn read(&self, response: &Response) -> Result<Placed, Error> {
        let order: Order = response.json()?;
        if order.item != self.item || order.quantity != self.quantity {
            return Err(Error::Contract {
                status: response.status,
                violation: format!(
                    "expected an order of {} x {}, found one of {} x {}",
                    self.quantity, self.item, order.quantity, order.item
                ),
            });
        }
        // A cancelled order may cost what an earlier request said.
        if self.amount.is_some() && order.state.has_units() && order.amount != self.amount {
            return Err(Error::Contract {
                status: response.status,
                violation: format!(
                    "expected the amount {:?}, found {:?}",
                    self.amount, order.amount
                ),
            });
        }
        Ok(Placed {
            order,
            replayed: response.replayed,
            recorded: response.status == 201,
        })
    }
}

impl Placed {
    /// The same if the order has units, and else that its key is used up.
    pub(crate) fn with_units(self) -> Result<Self, Error> {
        match self.order.state.has_units() {
            true => Ok(self),
            false => Err(Error::NoLongerHeld(Box::new(Ended::Order(self.order)))),
        }
    }
}

impl Order {
    /// Reads a response about the order `id`, and verifies that it is about this one.
    pub fn read(response: &Response, id: Uuid) -> Result<Self, Error> {
        let order: Self = response.json()?;
        if order.id != id {
            return Err(Error::Contract {
                status: response.status,
                violation: format!("expected the order {id}, found {}", order.id),
            });
        }
        Ok(order)
    }
}

impl OrderState {
    /// Whether the units belong to the buyer: held or confirmed.
    pub fn has_units(self) -> bool {
        matches!(self, Self::Held | Self::Confirmed)
    }
}
