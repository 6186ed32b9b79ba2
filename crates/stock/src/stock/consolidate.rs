//! Requests to consolidate units: `item/consolidate.rs` publishes them.

use domain::ItemId;
use tokio::sync::mpsc;

use super::{MESSAGES_MAX, Stock};
use crate::keys::CONSOLIDATE_CHANNEL;

impl Stock {
    /// Items for which an order wants so many units, while no segment has as many. `None`: messages
    /// may have been missed, because the connection to Redis is new.
    pub fn consolidation_requests(&self) -> mpsc::Receiver<Option<(ItemId, u64)>> {
        let mut messages = self.subscribe(CONSOLIDATE_CHANNEL);
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let Some(text) = message.text() else { continue };
                let request = text
                    .split_once(' ')
                    .and_then(|(item, units)| Some((item.parse().ok()?, units.parse().ok()?)));
                let is_known = request.is_some() || text.is_empty();
                if is_known && sender.send(request).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }
}
