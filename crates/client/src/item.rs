//! Items: what is sold.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Error, Response};

/// An item to be created. Everything but the name and the stock has a default in the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NewItem {
    /// The name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub id: String,
    /// Number of units that exist.
    pub stock: u64,
    /// What buyers read. Default: the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The price of one unit in the currency's smallest unit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<u64>,
    /// Three capital letters (ISO 4217). Default: `USD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Units that one buyer may hold. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_per_buyer: Option<u32>,
    /// Number of stock counters. Default: chosen by the number of Redis masters and the stock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u16>,
    /// When the sale begins. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
    /// When the sale ends. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units. Default: 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u32>,
    /// Seconds up to which a hold can be extended. Default: `hold_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold_seconds: Option<u32>,
    /// Units that one order may ask for. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_order: Option<u32>,
    /// Units that are added later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<Wave>,
    /// When an order is acknowledged. Default: when the ledger has recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
}

/// Units that are added to an item at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// When they are added.
    pub at: Timestamp,
    /// Number of units.
    pub units: u64,
}

/// A wave of an item, to come or past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ItemWave {
    /// When its units are added.
    pub at: Timestamp,
    /// Number of units.
    pub units: u64,
    /// Whether they were added.
    pub added: bool,
}

/// When an order is acknowledged, and therefore what can lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the ledger has committed it (201).
    Recorded,
    /// When the configured number of Redis replicas have confirmed it (202).
    Replicated,
    /// When the Redis script has run (202). A crash of Redis can lose it.
    Accepted,
}

/// Whether an item sells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// It sells, within its times.
    Open,
    /// It does not sell for now.
    Paused,
    /// Its sale has ended.
    Closed,
    /// Its sale has ended for good, and it cannot be changed any more.
    Archived,
}

/// A change of an item. Fields that are not named stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ItemPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_per_buyer: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<Option<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closes_at: Option<Option<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waves: Option<Vec<Wave>>,
}

/// An item and the numbers of its units, as the service reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Item {
    /// The name.
    pub id: String,
    /// What buyers read.
    pub title: String,
    /// Whether the item sells.
    pub state: ItemState,
    /// Units that exist.
    pub stock: u64,
    /// Units that can be bought.
    pub available: u64,
    /// Units of orders that wait for a payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of ended orders that are not available again yet.
    pub returning: u64,
    /// Units that are being withdrawn and still count as stock. Only admins see it.
    pub withdrawing: Option<u64>,
    /// Whether no unit is available.
    pub sold_out: bool,
    /// The price of one unit in the currency's smallest unit.
    pub price: u64,
    /// ISO 4217.
    pub currency: String,
    /// Units that one buyer may hold; `None`: no limit.
    pub limit_per_buyer: Option<u32>,
    /// When the sale begins.
    pub opens_at: Option<Timestamp>,
    /// When the sale ends.
    pub closes_at: Option<Timestamp>,
    /// Seconds for which an order holds its units.
    pub hold_seconds: u32,
    /// Seconds up to which a hold can be extended.
    pub max_hold_seconds: u32,
    /// Units that one order may ask for; `None`: no limit.
    pub max_per_order: Option<u32>,
    /// The next units that will be added.
    pub next_wave: Option<Wave>,
    /// All waves, by time. Only admins see them.
    #[serde(default)]
    pub waves: Option<Vec<ItemWave>>,
    /// When an order is acknowledged.
    pub durability: Durability,
    /// Each stock counter. Only admins see them.
    pub segments: Option<Vec<Segment>>,
    /// The version for conditional changes. Only admins see it.
    #[serde(skip)]
    pub version: Option<u64>,
}

/// Several items, as the public sees them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Items {
    /// The items, in the order of the request.
    pub data: Vec<Item>,
    /// Names that no item has.
    pub unknown: Vec<String>,
    /// Items whose units could not be read now.
    pub unavailable: Vec<String>,
}

impl Items {
    /// The items in a response.
    pub fn read(response: &Response) -> Result<Self, Error> {
        response.json()
    }
}

/// A stock counter and the numbers of its units.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Segment {
    /// The number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that can be bought.
    pub available: u64,
    /// Units of orders that wait for a payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of ended orders that are not available again yet.
    pub returning: u64,
    /// Outbox entries that are not trimmed yet, the anchor included.
    pub outbox: u64,
}

impl NewItem {
    /// An item of `stock` units, with the defaults of the service.
    pub fn new(id: impl Into<String>, stock: u64) -> Self {
        Self {
            id: id.into(),
            stock,
            ..Self::default()
        }
    }
}

impl ItemPatch {
    /// Changes how many units one buyer may hold; `None` removes the limit.
    #[must_use]
    pub fn limit_per_buyer(self, limit: Option<u32>) -> Self {
        Self {
            limit_per_buyer: Some(limit),
            ..self
        }
    }

    /// Changes the price of one unit, in the currency's smallest unit, for orders to come. Orders
    /// that exist keep theirs.
    #[must_use]
    pub fn price(self, price: u64) -> Self {
        Self {
            price: Some(price),
            ..self
        }
    }

    /// Changes when the sale begins; `None`: it has begun.
    #[must_use]
    pub fn opens_at(self, time: Option<Timestamp>) -> Self {
        Self {
            opens_at: Some(time),
            ..self
        }
    }

    /// Changes when the sale ends; `None`: never.
    #[must_use]
    pub fn closes_at(self, time: Option<Timestamp>) -> Self {
        Self {
            closes_at: Some(time),
            ..self
        }
    }
}

impl ItemPatch {
    /// Replaces the waves that are to come.
    #[must_use]
    pub fn waves(self, waves: Vec<Wave>) -> Self {
        Self {
            waves: Some(waves),
            ..self
        }
    }
}

impl Item {
    /// The item in a response, with the version of its `ETag`.
    pub fn read(response: &Response) -> Result<Self, Error> {
        Ok(Self {
            version: response.version,
            ..response.json()?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ItemPatch, Items, NewItem};

    #[test]
    fn several_items_tell_which_names_are_unknown() {
        let item = r#"{"id":"vase","title":"Vase","state":"open","stock":3,"available":3,"held":0,
            "confirmed":0,"returning":0,"sold_out":false,"price":5,"currency":"EUR","limit_per_buyer":null,
            "opens_at":null,"closes_at":null,"hold_seconds":60,"max_hold_seconds":60,"max_per_order":null,
            "next_wave":null,"durability":"recorded"}"#;
        let text = format!(r#"{{"data":[{item}],"unknown":["jar"],"unavailable":[]}}"#);
        let items: Items = serde_json::from_str(&text).unwrap();
        assert_eq!((items.data[0].available, &*items.unknown[0]), (3, "jar"));
    }

    #[test]
    fn only_named_fields_are_sent_and_null_removes() {
        let json = |value: &ItemPatch| serde_json::to_string(value).unwrap();
        assert_eq!(json(&ItemPatch::default()), "{}");
        let patch = ItemPatch::default().limit_per_buyer(Some(3)).opens_at(None);
        assert_eq!(json(&patch), r#"{"limit_per_buyer":3,"opens_at":null}"#);
        let patch = ItemPatch::default().price(450);
        assert_eq!(json(&patch), r#"{"price":450}"#);
        let item = serde_json::to_string(&NewItem::new("vase", 9)).unwrap();
        assert_eq!(item, r#"{"id":"vase","stock":9}"#);
    }
}
