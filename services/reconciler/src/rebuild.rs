//! Rebuilds one item for a command, after the ledger was restored from a backup.
//!
//! Redis then has decisions on orders that the ledger has lost. A repair writes the ledger's
//! decisions over them and leaves the others: a repeat of a lost order would wait for its recording
//! in vain, and its buyer would keep a count against the limit. So a rebuild drops everything that
//! the segments have stored of orders, and restores what the ledger and the outboxes have.

use std::{sync::Arc, time::Instant};

use domain::{ItemId, ItemState};
use ledger::Ledger;
use lock::Lock;
use stock::Stock;

use crate::{
    COMMAND_RETRY_PAUSE, COMMAND_TIMEOUT, Plan, Reconciler, ReconcilerError, ReconcilerSettings,
    anomaly::PendingWork, item_lock, plan::plan,
};

/// Rebuilds every segment of the item, and returns what is left to be done. It ends no hold:
/// payments that the ledger has lost can be reported again first. Waits while another process has
/// the item's lock. `None`: there is no such item. An archived item has no segments.
pub async fn rebuild_once(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    id: &ItemId,
) -> Result<Option<Plan>, ReconcilerError> {
    let item = ledger.item(id).await?;
    let reconciler = Reconciler::of_command(stock, ledger, lock, ReconcilerSettings::default());
    if item.is_some_and(|item| item.state != ItemState::Archived) {
        rebuild(&reconciler, id).await?;
    }
    plan(&reconciler.stock, &*reconciler.ledger, id).await
}

async fn rebuild(reconciler: &Arc<Reconciler>, id: &ItemId) -> Result<(), ReconcilerError> {
    let until = Instant::now() + COMMAND_TIMEOUT;
    loop {
        let work = PendingWork {
            rebuild: true,
            ..PendingWork::default()
        };
        match item_lock::work_under_lock(reconciler, id, work).await {
            Ok(Some(_)) => return Ok(()),
            // Another process has the lock.
            Ok(None) if Instant::now() < until => {}
            Ok(None) => return Err(ReconcilerError::Locked),
            // The lock has been asked for higher tokens.
            Err(error) if error.fence().is_some() && Instant::now() < until => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(COMMAND_RETRY_PAUSE).await;
    }
}
