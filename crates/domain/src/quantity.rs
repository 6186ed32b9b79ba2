//! The number of units of one order.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A number of units that an order can ask for: 1 to [`Quantity::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Quantity(NonZeroU32);

impl Quantity {
    /// Larger than any real order, and small enough that sums of a batch stay exact in Lua's
    /// doubles.
    pub const MAX: u32 = 1_000_000;

    /// One unit.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// Refuses zero and quantities above [`Quantity::MAX`].
    pub fn new(units: u32) -> Result<Self, Invalid> {
        match NonZeroU32::new(units) {
            Some(units) if units.get() <= Self::MAX => Ok(Self(units)),
            _ => Err(Invalid::new(
                "quantity",
                format!("a whole number from 1 to {}", Self::MAX),
            )),
        }
    }

    /// The number of units.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl TryFrom<u32> for Quantity {
    type Error = Invalid;

    fn try_from(units: u32) -> Result<Self, Invalid> {
        Self::new(units)
    }
}

impl From<Quantity> for u32 {
    fn from(quantity: Quantity) -> Self {
        quantity.get()
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn zero_and_too_large_quantities_are_refused() {
        assert!(Quantity::new(0).is_err());
        assert!(Quantity::new(Quantity::MAX + 1).is_err());
        assert_eq!(Quantity::new(Quantity::MAX).unwrap().get(), Quantity::MAX);
        assert_eq!(Quantity::new(1).unwrap(), Quantity::ONE);
    }
}
