//! What tells the reconcile loop which items to look at.

use std::{sync::Arc, time::Duration};

use stock::StockError;

use crate::Reconciler;

/// Interval between two looks at the histories of the masters.
const HISTORIES_INTERVAL: Duration = Duration::from_secs(1);
/// Limit for one look. The next one follows anyway.
const HISTORIES_TIMEOUT: Duration = Duration::from_secs(5);

/// Notes which items have new entries, also while a round of the loop is long.
pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let mut wakeups = reconciler.stock.outbox_wakeups();
    while let Some(Some(wakeup)) = reconciler.stop.run_until_cancelled(wakeups.recv()).await {
        reconciler.woken.note(&wakeup);
    }
}

/// Looks for masters that were promoted or restarted, where no subscription breaks with them: such
/// a master may have lost orders. A look costs one call of each master.
pub(crate) async fn watch_histories(reconciler: Arc<Reconciler>) {
    if !reconciler.stock.may_lose_messages() {
        return reconciler.stop.cancelled().await;
    }
    let mut known = Vec::new();
    loop {
        let reading = tokio::time::timeout(HISTORIES_TIMEOUT, reconciler.stock.histories());
        let timed_out = |_| Err(StockError::OutcomeUnknown(HISTORIES_TIMEOUT));
        match reading.await.unwrap_or_else(timed_out) {
            Ok(histories) if histories == known => {}
            Ok(histories) => {
                known = histories;
                reconciler.woken.look_everywhere();
            }
            Err(error) => tracing::debug!(%error, "could not read the histories of the masters"),
        }
        if reconciler.pause(HISTORIES_INTERVAL).await {
            return;
        }
    }
}
