//! An event as CloudEvents 1.0 JSON.

use jiff::Timestamp;
use ledger::Event;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The `source` of every event.
pub const SOURCE: &str = "stockade";

/// What every `type` starts with; the kind follows.
pub const TYPE_PREFIX: &str = "stockade.";

/// The envelope of an event. The fields are those of CloudEvents 1.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CloudEvent {
    /// `1.0`.
    #[schema(example = "1.0")]
    pub specversion: &'static str,
    /// Identifies the event: a repeat has the same. It is also the cursor behind the event.
    #[schema(example = "812-14")]
    pub id: String,
    /// `stockade`.
    pub source: &'static str,
    /// `stockade.` and the kind.
    #[serde(rename = "type")]
    #[schema(example = "stockade.order.held")]
    pub kind: String,
    /// The item; `test` in a test of a webhook.
    pub subject: String,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// `application/json`.
    pub datacontenttype: &'static str,
    /// `orders`, the ids of the orders that it happened to, and properties of the kind.
    #[schema(value_type = Object)]
    pub data: Value,
}

impl From<Event> for CloudEvent {
    fn from(event: Event) -> Self {
        let mut data = match event.data {
            Value::Object(data) => data,
            _ => Map::new(),
        };
        if !event.orders.is_empty() {
            data.insert("orders".into(), json!(event.orders));
        }
        Self {
            id: event.cursor.to_string(),
            kind: format!("{TYPE_PREFIX}{}", event.kind),
            subject: event.item.to_string(),
            time: event.at,
            data: Value::Object(data),
            ..Self::empty()
        }
    }
}

impl CloudEvent {
    /// An event that tells of nothing: it shows that a webhook is reached.
    pub fn test(id: String) -> Self {
        Self {
            id,
            kind: format!("{TYPE_PREFIX}webhook.test"),
            subject: "test".into(),
            ..Self::empty()
        }
    }

    fn empty() -> Self {
        Self {
            specversion: "1.0",
            id: String::new(),
            source: SOURCE,
            kind: String::new(),
            subject: String::new(),
            time: Timestamp::now(),
            datacontenttype: "application/json",
            data: json!({}),
        }
    }

    /// The event as JSON.
    pub fn to_json(&self) -> String {
        // Strings and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use ledger::{Event, EventCursor};
    use serde_json::{Value, json};

    use super::CloudEvent;

    #[test]
    fn an_envelope_has_the_required_attributes_and_the_orders() {
        let order = "8ae0c0b2-3f4e-8c1d-9a75-0d6f3f6d2b11";
        let event = Event {
            cursor: "812-14".parse::<EventCursor>().unwrap(),
            at: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
            item: "vase".parse().unwrap(),
            kind: "order.confirmed".into(),
            orders: vec![order.parse().unwrap()],
            data: json!({ "payment": "pay-1" }),
        };
        let envelope: Value = serde_json::from_str(&CloudEvent::from(event).to_json()).unwrap();
        assert_eq!(
            envelope,
            json!({
                "specversion": "1.0",
                "id": "812-14",
                "source": "stockade",
                "type": "stockade.order.confirmed",
                "subject": "vase",
                "time": "2023-11-14T22:13:20.123Z",
                "datacontenttype": "application/json",
                "data": { "payment": "pay-1", "orders": [order] },
            })
        );
    }
}
