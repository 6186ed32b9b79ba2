//! Items: what is sold.

use jiff::Timestamp;

use crate::{Error, Item, ItemPatch, Items, NewItem, Response, Wave};

impl Items {
    /// The items in a response.
    pub fn read(response: &Response) -> Result<Self, Error> {
        response.json()
    }
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
    use crate::{ItemPatch, Items, NewItem};

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
