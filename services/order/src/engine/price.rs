//! What a unit of an item costs.

use std::fmt;

use domain::{Item, Order, Quantity};
use serde::{Serialize, Serializer};

/// The price of a unit. It never changes, and copying it allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    /// In the currency's smallest unit.
    pub unit: u64,
    /// ISO 4217.
    pub currency: Currency,
}

impl Price {
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            unit: item.price,
            currency: Currency::of(&item.currency),
        }
    }

    /// The price of so many units.
    pub fn amount(self, quantity: Quantity) -> u64 {
        self.unit.saturating_mul(u64::from(quantity.get()))
    }

    /// What an order of the item costs: the total of the shop, or the price of its units.
    pub fn of_order(self, order: &Order) -> u64 {
        order.amount.unwrap_or_else(|| self.amount(order.quantity))
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
