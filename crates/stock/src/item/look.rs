//! An order that meets something wrong has recorders and reconcilers look at the item.
//!
//! They look at an item at rest rarely. A segment whose keys are gone, or whose repair was given
//! up, writes no entry, and so sends no wake-up: the orders that meet it are the first to know.

use std::{sync::Arc, time::Duration};

use super::ItemStock;
use crate::keys::OUTBOX_CHANNEL;

/// Interval between two requests, however many orders fail.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

impl ItemStock {
    /// Requests a look at the item, in the background. The runtime of the caller sends it.
    pub fn request_look(self: &Arc<Self>) {
        if !self.look_turn.is_due(REQUEST_INTERVAL) {
            return;
        }
        let item = Arc::clone(self);
        tokio::spawn(async move {
            let mut cmd = redis::cmd("PUBLISH");
            // A wake-up of any segment is one of its item.
            cmd.arg(OUTBOX_CHANNEL).arg(format!("{}:0", item.id));
            let mut connection = item.shared.connection.clone();
            let published = item.shared.runtime.host(cmd.exec_async(&mut connection));
            if let Err(error) = published.await {
                tracing::debug!(item = %item.id, %error, "failed to request a look");
            }
        });
    }
}
