//! Orders for more units than any one segment has, while all segments together have enough.
//!
//! Every segment would decline such an order. So before it enters it waits a moment, and requests
//! that the units be consolidated in one segment. If no reconciler does it, the order enters like
//! any other, and waits after its spillover (`reserve/end.rs`).

use std::time::Duration;

use domain::Quantity;

use super::ItemStock;
use crate::keys::CONSOLIDATE_CHANNEL;

/// Time limit for the wait, if the order has twice as long: it has to enter afterwards.
const WAIT_MAX: Duration = Duration::from_millis(750);

/// Interval between two requests, however many orders wait.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until one segment has so many units, or until the item has not, or until a time limit.
pub(super) async fn wait(item: &ItemStock, units: u64, within: Duration) {
    let _ = tokio::time::timeout(WAIT_MAX.min(within / 2), async {
        while item.admission.is_fragmented(units) {
            request_in_turn(item, units).await;
            let _ = tokio::time::timeout(REQUEST_INTERVAL, item.admission.more_units()).await;
        }
    })
    .await;
}

impl ItemStock {
    /// Requests that so many units be consolidated in one segment, if one buyer may have them.
    pub(super) async fn request_consolidation(&self, quantity: Quantity) {
        let units = u64::from(quantity.get());
        if self.limit.allows(units) {
            request_in_turn(self, units).await;
        }
    }
}

async fn request_in_turn(item: &ItemStock, units: u64) {
    if item.consolidation_turn.is_due(REQUEST_INTERVAL) {
        request(item, units).await;
    }
}

async fn request(item: &ItemStock, units: u64) {
    let mut cmd = redis::cmd("PUBLISH");
    cmd.arg(CONSOLIDATE_CHANNEL)
        .arg(format!("{} {units}", item.id));
    let mut connection = item.shared.connection.clone();
    let published = item.shared.runtime.host(cmd.exec_async(&mut connection));
    if let Err(error) = published.await {
        tracing::debug!(item = %item.id, %error, "failed to request consolidation");
    }
}
