//! What a unit of an item costs.

use std::fmt;

use domain::{Item, Order, Quantity, Stated};
use serde::{Serialize, Serializer};

/// The price of a unit for an order. Copying it allocates nothing.
///
/// The segment that gives units says at which price, in the entry that the ledger records and in
/// its reply. The one that an item was created with needs no word. It never changes, so the cache
/// of items has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    /// In the currency's smallest unit.
    pub unit: u64,
    /// ISO 4217.
    pub currency: Currency,
}

impl Price {
    /// The first price of the item.
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            unit: item.price,
            currency: Currency::of(&item.currency),
        }
    }

    /// The price of an order that was given this one. `None`: the item's first one.
    #[must_use]
    pub(crate) fn given(self, unit: Option<u64>) -> Self {
        Self {
            unit: unit.unwrap_or(self.unit),
            ..self
        }
    }

    /// The price of so many units.
    pub fn amount(self, quantity: Quantity) -> u64 {
        self.unit.saturating_mul(u64::from(quantity.get()))
    }

    /// What so many units cost: the total of the shop, or the price of the units.
    pub(crate) fn total(self, quantity: Quantity, stated: &Stated) -> u64 {
        stated.amount.unwrap_or_else(|| self.amount(quantity))
    }

    /// What an order of an item of this first price costs.
    pub fn of_order(self, order: &Order) -> u64 {
        let given = self.given(order.price);
        given.total(order.quantity, &order.stated)
    }
}

/// A code of ISO 4217: three capital letters, or nothing for an unknown item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Currency([u8; 3]);

impl Currency {
    fn of(code: &str) -> Self {
        Self(code.as_bytes().try_into().unwrap_or_default())
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        let code = std::str::from_utf8(&self.0).unwrap_or_default();
        code.trim_end_matches('\0')
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
