//! Requests to consolidate units: `item/consolidate.rs` publishes them.

use domain::ItemId;
use tokio::sync::mpsc;

use super::{MESSAGES_MAX, Stock};
use crate::keys::CONSOLIDATE_CHANNEL;

impl Stock {
    /// Items for which an order wants so many units, while no segment has as many.
    pub fn consolidation_requests(&self) -> mpsc::Receiver<(ItemId, u64)> {
        let mut messages = self.subscribe(CONSOLIDATE_CHANNEL);
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            while let Some(text) = messages.recv().await {
                let request = text
                    .split_once(' ')
                    .and_then(|(item, units)| Some((item.parse().ok()?, units.parse().ok()?)));
                if let Some(request) = request
                    && sender.send(request).await.is_err()
                {
                    return;
                }
            }
        });
        receiver
    }
}
