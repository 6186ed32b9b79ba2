//! Carts: orders of several items that a buyer gets all or none of.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::{AmountCheck, Cart, CartState, Ended, Error, IdempotencyKey, Response};

/// A cart to be placed. The same value, or a copy of it, is always the same cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCart {
    lines: Vec<NewCartLine>,
    key: IdempotencyKey,
    amount: Option<CartAmount>,
}

/// What the shop says that a cart costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CartAmount {
    /// This total, with shipping, tax and vouchers, in the currency's smallest unit.
    Of(u64),
    /// A payment of any amount pays the cart: the shop checks it.
    Unchecked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct NewCartLine {
    item: String,
    quantity: u32,
}

/// A cart that was placed, now or by an earlier request with the same key.
///
/// [`Buyer::place_cart`](crate::Buyer::place_cart) returns it only if the cart has units. One that
/// has ended since is [`Error::NoLongerHeld`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedCart {
    /// The cart as it is now. After a replay it may have moved on.
    pub cart: Cart,
    /// Whether an earlier request with this key had placed it.
    pub replayed: bool,
}

#[derive(Serialize)]
pub(crate) struct CartBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    buyer: Option<&'a str>,
    lines: &'a [NewCartLine],
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<CartAmount>,
}

impl Serialize for CartAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Of(amount) => serializer.serialize_u64(*amount),
            Self::Unchecked => serializer.serialize_str("unchecked"),
        }
    }
}

impl From<u64> for CartAmount {
    fn from(amount: u64) -> Self {
        Self::Of(amount)
    }
}

impl Default for NewCart {
    fn default() -> Self {
        Self::new()
    }
}

impl NewCart {
    /// A cart without lines, with a random key.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            key: IdempotencyKey::random(),
            amount: None,
        }
    }

    /// The cart with another line. A cart has 20 at most.
    #[must_use]
    pub fn with(mut self, item: impl Into<String>, quantity: u32) -> Self {
        let item = item.into();
        self.lines.push(NewCartLine { item, quantity });
        self
    }

    /// The same cart with a key of your own.
    #[must_use]
    pub fn with_key(self, key: IdempotencyKey) -> Self {
        Self { key, ..self }
    }

    /// The same cart at the shop's total, which payments are checked against. By default it costs
    /// the price of its lines. Only an admin states less than that, or [`CartAmount::Unchecked`].
    #[must_use]
    pub fn with_amount(self, amount: impl Into<CartAmount>) -> Self {
        Self {
            amount: Some(amount.into()),
            ..self
        }
    }

    /// What makes every repeat the same cart.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The body of a request; an admin names the buyer.
    pub(crate) fn body<'a>(&'a self, buyer: Option<&'a str>) -> CartBody<'a> {
        CartBody {
            buyer,
            lines: &self.lines,
            amount: self.amount,
        }
    }

    /// Reads the response to this cart, and verifies that it is about this cart. After a replay the
    /// cart may have ended, so look at [`CartState::has_units`].
    pub fn read(&self, response: &Response) -> Result<PlacedCart, Error> {
        let cart: Cart = response.json()?;
        let wanted = self.lines.iter().map(|line| (&*line.item, line.quantity));
        let found = cart.lines.iter().map(|line| (&*line.item, line.quantity));
        let (wanted, found) = (units(wanted), units(found));
        if wanted != found || cart.lines.len() != wanted.len() {
            return Err(Error::Contract {
                status: response.status,
                violation: format!("expected a cart of {wanted:?}, found one of {found:?}"),
            });
        }
        if self.amount.is_some_and(|amount| amount != cart.costs()) {
            return Err(Error::Contract {
                status: response.status,
                violation: format!("expected {:?}, found {:?}", self.amount, cart.costs()),
            });
        }
        Ok(PlacedCart {
            cart,
            replayed: response.replayed,
        })
    }
}

impl PlacedCart {
    /// The same if the cart has units, and else that its key is used up.
    pub(crate) fn with_units(self) -> Result<Self, Error> {
        match self.cart.state.has_units() {
            true => Ok(self),
            false => Err(Error::NoLongerHeld(Box::new(Ended::Cart(self.cart)))),
        }
    }
}

impl CartState {
    /// Whether the units of all lines belong to the buyer: held or confirmed.
    pub fn has_units(self) -> bool {
        matches!(self, Self::Held | Self::Confirmed)
    }
}

/// The units of each item: the service sums lines of the same item.
fn units<'a>(lines: impl Iterator<Item = (&'a str, u32)>) -> BTreeMap<&'a str, u64> {
    let mut units = BTreeMap::new();
    for (item, quantity) in lines {
        *units.entry(item).or_default() += u64::from(quantity);
    }
    units
}

impl Cart {
    fn costs(&self) -> CartAmount {
        match self.amount_check {
            Some(AmountCheck::Unchecked) => CartAmount::Unchecked,
            None => CartAmount::Of(self.amount),
        }
    }

    /// Reads a response about the cart `id`, and verifies that it is about this one.
    pub fn read(response: &Response, id: Uuid) -> Result<Self, Error> {
        let cart: Self = response.json()?;
        if cart.id != id {
            return Err(Error::Contract {
                status: response.status,
                violation: format!("expected the cart {id}, found {}", cart.id),
            });
        }
        Ok(cart)
    }
}
