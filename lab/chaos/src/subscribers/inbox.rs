//! What a subscriber has got.

use std::collections::HashSet;

use serde_json::Value;

/// A message that has arrived.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The id of the event, as the message's own headers name it.
    pub id: String,
    /// The event.
    pub event: Value,
    /// What is wrong with the message, whatever it tells.
    pub defect: Option<String>,
}

/// The messages of one subscriber, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    /// All of them.
    pub deliveries: Vec<Delivery>,
    /// The ids of those that the subscriber has accepted, without repeats.
    pub accepted: Vec<String>,
    known: HashSet<String>,
}

impl Delivery {
    /// Reads a message. Its body must be the event that its headers name.
    pub fn new(id: &str, body: &[u8]) -> Self {
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let defect = match event["id"].as_str() {
            Some(inside) if inside == id => None,
            Some(inside) => Some(format!("the event inside is {inside}")),
            None => Some(format!("no event: {}", String::from_utf8_lossy(body))),
        };
        Self {
            id: id.to_owned(),
            event,
            defect,
        }
    }
}

impl Inbox {
    /// Notes a message, and whether the subscriber keeps it.
    pub fn add(&mut self, delivery: Delivery, accepted: bool) {
        if accepted && self.known.insert(delivery.id.clone()) {
            self.accepted.push(delivery.id.clone());
        }
        self.deliveries.push(delivery);
    }

    /// Whether the subscriber has accepted the event.
    pub fn has(&self, id: &str) -> bool {
        self.known.contains(id)
    }
}
