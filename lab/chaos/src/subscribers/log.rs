//! The events of the service, as `GET /v1/events` answers them.

use anyhow::Result;
use serde_json::Value;

use crate::api::Api;

/// All events since the beginning, in the order in which they were read.
#[derive(Default)]
pub struct EventLog {
    /// The events.
    pub events: Vec<Value>,
    next: Option<String>,
}

impl EventLog {
    /// Reads the events since the last call.
    pub async fn read(&mut self, api: &Api) -> Result<()> {
        loop {
            let page = api.events(self.next.as_deref()).await?;
            self.next = Some(page.next);
            if page.data.is_empty() {
                return Ok(());
            }
            self.events.extend(page.data);
        }
    }
}

/// The id of an event.
pub fn id_of(event: &Value) -> &str {
    event["id"].as_str().unwrap_or_default()
}

/// The kind of an event, such as `order.held`.
pub fn kind_of(event: &Value) -> &str {
    let kind = event["type"].as_str().unwrap_or_default();
    kind.strip_prefix("stockade.").unwrap_or(kind)
}
