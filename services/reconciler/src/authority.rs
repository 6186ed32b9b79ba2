//! The item's lock, and with its token the authority over the item's row.

use std::sync::Arc;

use domain::{ItemId, SegmentKey};
use ledger::LedgerError;
use lock::{FencingToken, Guard, LockError};

use crate::{
    Reconciler, ReconcilerError, balance, mend,
    needs::{Needs, Wrong},
    transfers,
};

/// Does what the item needs, if nobody else has its lock. Whether it was done.
pub(crate) async fn work(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    needs: Needs,
) -> Result<bool, ReconcilerError> {
    let name = lock_name(id);
    let mut guard = match reconciler.lock.try_acquire(&name).await {
        Ok(guard) => guard,
        Err(LockError::Held { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let token = number(guard.token());
    // When the lock is lost the body is dropped where it stands. Whatever it had sent by then is refused by the stores, or was in time.
    let done = guard
        .run(|_| do_all(Arc::clone(reconciler), id.clone(), token, needs))
        .await;
    release(guard).await;
    let done = done?;
    if let Err(ReconcilerError::Ledger(LedgerError::Fenced { fence, .. })) = &done {
        // Lock servers that were set up anew begin with low tokens; the row remembers higher ones.
        note(reconciler, &name, *fence);
    }
    done.map(|()| true)
}

async fn release(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "the item's lock was not given back; its lease ends it");
    }
}

fn note(reconciler: &Reconciler, name: &str, fence: u64) {
    if let Some(token) = i64::try_from(fence).ok().and_then(FencingToken::new) {
        tracing::info!(
            name,
            fence,
            "the lock's tokens are behind the row's; the next ones will be higher if the lock's servers allow it"
        );
        reconciler.lock.note_token(name, token);
    }
}

/// The name of the item's lock.
pub(crate) fn lock_name(id: &ItemId) -> String {
    format!("item:{id}")
}

/// Those that are wrong in the very way that they were: whoever had the lock before us may have mended them since, and what is wrong in another way has
/// not stood yet.
async fn still_wrong(
    reconciler: &Reconciler,
    id: &ItemId,
    wrong: Vec<(SegmentKey, Wrong)>,
) -> Result<Vec<SegmentKey>, ReconcilerError> {
    if wrong.is_empty() {
        return Ok(Vec::new());
    }
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    let (settings, looks) = (
        (&item).into(),
        audit::look(&reconciler.stock, &*reconciler.ledger, id).await?,
    );
    let is_so = |segment: &SegmentKey, was: &Wrong| {
        looks.iter().any(|look| {
            look.row.key == *segment && Wrong::of(look, &settings).as_ref() == Some(was)
        })
    };
    Ok(wrong
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
    needs: Needs,
) -> Result<(), ReconcilerError> {
    reconciler.ledger.claim_item(&id, token).await?;
    let mend = still_wrong(&reconciler, &id, needs.mend).await?;
    if !mend.is_empty() {
        mend::mend(&reconciler, &id, token, &mend).await?;
    }
    if needs.balance {
        balance::plan(&reconciler, &id, token, needs.wanted).await?;
    }
    if needs.transfers || needs.balance {
        transfers::drive(&reconciler, &id, token).await?;
    }
    Ok(())
}
