//! Changes of an item's stock while it sells.

use serde::Serialize;

use crate::{Error, IdempotencyKey, Item, Response};

/// Units to be added or withdrawn. The same value, or a copy of it, is always the same change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockChange {
    #[serde(flatten)]
    units: Units,
    #[serde(skip)]
    key: IdempotencyKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Units {
    Add(u64),
    Withdraw(u64),
}

/// What became of a change of stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockChanged {
    /// The item as it is now.
    pub item: Item,
    /// Whether the change is complete (200). Otherwise (202) units are still on their way, or
    /// buyers took some first; [`Item::stock`] says what has come of it so far.
    pub settled: bool,
}

impl StockChange {
    /// Adds `units`, with a random key.
    pub fn add(units: u64) -> Self {
        Self::new(Units::Add(units))
    }

    /// Withdraws `units`, or as many of them as are unsold, with a random key.
    pub fn withdraw(units: u64) -> Self {
        Self::new(Units::Withdraw(units))
    }

    fn new(units: Units) -> Self {
        Self {
            units,
            key: IdempotencyKey::random(),
        }
    }

    /// The same change with a key of your own.
    #[must_use]
    pub fn with_key(self, key: IdempotencyKey) -> Self {
        Self { key, ..self }
    }

    /// What makes every repeat the same change.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }
}

impl StockChanged {
    pub(crate) fn read(response: &Response) -> Result<Self, Error> {
        Ok(Self {
            item: Item::read(response)?,
            settled: response.status == 200,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::StockChange;

    #[test]
    fn the_body_names_the_direction() {
        let json = |change: &StockChange| serde_json::to_string(change).unwrap();
        assert_eq!(json(&StockChange::add(5)), r#"{"add":5}"#);
        assert_eq!(json(&StockChange::withdraw(5)), r#"{"withdraw":5}"#);
    }
}
