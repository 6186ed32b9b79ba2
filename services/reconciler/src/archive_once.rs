//! Archives one item for a command, outside the reconciler's loop.

use std::{sync::Arc, time::Instant};

use domain::ItemId;
use ledger::Ledger;
use lock::Lock;
use stock::Stock;

use crate::{
    COMMAND_RETRY_PAUSE, COMMAND_TIMEOUT, Reconciler, ReconcilerError, ReconcilerSettings,
    anomaly::PendingWork, audits::BoundedPace, item_lock,
};

/// Result of [`archive_once`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Archived {
    /// The item is archived, now or before, and Redis has forgotten it.
    Done,
    /// It cannot be archived, for these reasons.
    Refused(Vec<String>),
    /// Another process has held the item's lock for the whole time.
    Locked,
}

/// Archives the item for `actor`. Waits while another process has the item's lock. `None`: there is
/// no such item.
pub async fn archive_once(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    id: &ItemId,
    actor: &str,
) -> Result<Option<Archived>, ReconcilerError> {
    if ledger.item(id).await?.is_none() {
        return Ok(None);
    }
    if let Some(reasons) = audit::against_archive(&stock, &*ledger, id).await?
        && !reasons.is_empty()
    {
        return Ok(Some(Archived::Refused(reasons)));
    }
    let reconciler = Reconciler::of_command(stock, ledger, lock, ReconcilerSettings::default());
    let pace = BoundedPace::new(&reconciler, id);
    let read = async || {
        let now = (reconciler.settings.clock)();
        audit::read_orders(&*reconciler.ledger, id, now, &pace).await
    };
    let mut orders = read().await?;
    let until = Instant::now() + COMMAND_TIMEOUT;
    loop {
        let work = PendingWork::archive(actor, orders.clone());
        match item_lock::work_under_lock(&reconciler, id, work).await {
            Ok(Some(reasons)) if reasons.is_empty() => return Ok(Some(Archived::Done)),
            // The process that had the lock may have repaired something.
            Ok(Some(reasons)) if reasons == [audit::CHANGED] && Instant::now() < until => {
                orders = read().await?;
            }
            Ok(Some(reasons)) => return Ok(Some(Archived::Refused(reasons))),
            Ok(None) if Instant::now() > until => return Ok(Some(Archived::Locked)),
            Ok(None) => {}
            // The lock has been asked for higher tokens.
            Err(error) if error.fence().is_some() && Instant::now() < until => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(COMMAND_RETRY_PAUSE).await;
    }
}
