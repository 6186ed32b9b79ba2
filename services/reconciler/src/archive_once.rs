//! Archives one item for a command, outside the reconciler's loop.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ItemId;
use ledger::Ledger;
use lock::Lock;
use stock::{Stock, WokenItems};
use tokio_util::sync::CancellationToken;

use crate::{
    Reconciler, ReconcilerError, ReconcilerSettings, anomaly::PendingWork, audits::Audits,
    gauges::Backlog, item_lock,
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

/// Limit for archiving one item.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(200);

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
    let reconciler = Arc::new(Reconciler {
        stock,
        ledger,
        lock,
        settings: ReconcilerSettings::default(),
        stop: CancellationToken::new(),
        backlog: Backlog::default(),
        audits: Audits::default(),
        woken: WokenItems::default(),
    });
    let until = Instant::now() + ARCHIVE_TIMEOUT;
    loop {
        let work = PendingWork {
            archive: Some(actor.to_owned()),
            ..PendingWork::default()
        };
        match item_lock::work_under_lock(&reconciler, id, work).await? {
            Some(reasons) if reasons.is_empty() => return Ok(Some(Archived::Done)),
            Some(reasons) => return Ok(Some(Archived::Refused(reasons))),
            None if Instant::now() > until => return Ok(Some(Archived::Locked)),
            None => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}
