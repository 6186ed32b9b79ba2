//! Work under the item's lock. The fencing token of the lock claims the item's row.

use std::sync::Arc;

use domain::{ItemId, SegmentKey};
use futures::FutureExt;
use lock::{FencingToken, Guard, LockError};
use tokio::time::{Instant, sleep};

use crate::{
    COMMAND_RETRY_PAUSE, Reconciler, ReconcilerError,
    anomaly::{Anomaly, PendingWork},
    archive, balance, home_check, repair, transfers,
};

/// Does the pending work if no other process has the item's lock. Returns what stands against an
/// archive that belongs to the work. `None`: another process has the lock.
pub(crate) async fn work_under_lock(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    work: PendingWork,
) -> Result<Option<Vec<String>>, ReconcilerError> {
    let name = lock_name(id);
    let Some(mut guard) = acquire(reconciler, &name).await? else {
        return Ok(None);
    };
    let token = number(guard.token());
    reconciler.settings.locks.taken(id, token);
    // If the lock is lost, `run` drops the work where it is. The stores refuse requests that are
    // still under way, unless they arrive before a higher token.
    let done = guard
        .run(|_| Box::pin(do_all(Arc::clone(reconciler), id.clone(), token, work)))
        .await;
    release(guard).await;
    reconciler.settings.locks.given_up(id, token);
    let done = done?;
    if let Some(fence) = done.as_ref().err().and_then(ReconcilerError::fence) {
        // New lock servers start with low tokens, and so does a restored database.
        note(reconciler, &name, fence);
    }
    done.map(Some)
}

/// The lock, unless another process has it.
async fn acquire(reconciler: &Reconciler, name: &str) -> Result<Option<Guard>, LockError> {
    let until = Instant::now() + reconciler.lock_patience;
    loop {
        match reconciler.lock.try_acquire(name).await {
            Ok(guard) => return Ok(Some(guard)),
            Err(LockError::Held { .. }) => return Ok(None),
            Err(error) if !error.is_retryable() || Instant::now() >= until => return Err(error),
            Err(error) => tracing::info!(name, %error, "asking for the item's lock once more"),
        }
        sleep(COMMAND_RETRY_PAUSE).await;
    }
}

async fn release(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "could not release the item's lock; it ends with its lease");
    }
}

fn note(reconciler: &Reconciler, name: &str, fence: FencingToken) {
    tracing::info!(
        name,
        fence = fence.get(),
        "the lock issues lower tokens than the item has seen; asking it for higher ones"
    );
    if let Err(error) = reconciler.lock.observe(name, fence) {
        tracing::warn!(name, %error, "could not raise the lock's tokens to the item's");
    }
}

/// The name of the item's lock.
pub(crate) fn lock_name(id: &ItemId) -> String {
    format!("item:{id}")
}

/// The segments whose anomaly is unchanged. The previous holder of the lock may have repaired some
/// since, and a different anomaly is not confirmed yet.
async fn still_anomalous(
    reconciler: &Reconciler,
    id: &ItemId,
    anomalies: Vec<(SegmentKey, Anomaly)>,
) -> Result<Vec<SegmentKey>, ReconcilerError> {
    if anomalies.is_empty() {
        return Ok(Vec::new());
    }
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    let (settings, snapshots) = (
        (&item).into(),
        audit::snapshots(&reconciler.stock, &*reconciler.ledger, id).await?,
    );
    let is_so = |segment: &SegmentKey, was: &Anomaly| {
        snapshots.iter().any(|snapshot| {
            snapshot.row.key == *segment && Anomaly::of(snapshot, &settings).as_ref() == Some(was)
        })
    };
    Ok(anomalies
        .into_iter()
        .filter(|(segment, was)| is_so(segment, was))
        .map(|(segment, _)| segment)
        .collect())
}

fn number(token: FencingToken) -> u64 {
    token.get().unsigned_abs()
}

async fn do_all(
    reconciler: Arc<Reconciler>,
    id: ItemId,
    token: u64,
    work: PendingWork,
) -> Result<Vec<String>, ReconcilerError> {
    reconciler.ledger.claim_item(&id, token).await?;
    if work.rebuild {
        repair::rebuild(&reconciler, &id, token).await?;
    }
    let mut repair = still_anomalous(&reconciler, &id, work.repair).await?;
    if !work.check.is_empty() {
        // Boxed: it is rare, and its type is deep.
        let checked = home_check::check(&reconciler, &id, token, work.check).boxed();
        repair.extend(checked.await?);
    }
    if !repair.is_empty() {
        repair::repair(&reconciler, &id, token, &repair).await?;
    }
    if work.balance {
        balance::plan(&reconciler, &id, token, work.wanted).await?;
    }
    if work.transfers || work.balance {
        transfers::drive(&reconciler, &id, token).await?;
    }
    match work.archive {
        Some(work) => {
            // Boxed: it is rare, and its type is deep.
            archive::archive(&reconciler, &id, token, work)
                .boxed()
                .await
        }
        None => Ok(Vec::new()),
    }
}
