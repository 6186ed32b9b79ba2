//! Archives items: the final audit is written down, the ledger ends the item, and Redis forgets it.
//!
//! The order of the steps matters. The ledger archives the item only if nothing has changed since
//! the audit. From then on no process changes the item, so its keys may go. A crash in between
//! leaves an archived item that still has keys: it stays in the list of live items, and the next
//! reconciler removes them.

use std::time::Duration;

use audit::{Against, Archivable};
use domain::{ItemId, ItemState};
use jiff::{SignedDuration, Timestamp};
use ledger::LiveItem;

use crate::{Reconciler, ReconcilerError, anomaly::ArchiveWork, audits, clock};

/// Name in the journal of items that are archived without a request.
pub(crate) const ACTOR: &str = "reconciler";

/// When the item is to be archived: at once if an admin has asked for it, or the configured time
/// after it was closed. `None`: it is not closed, or neither is so.
pub(crate) fn due_at(item: &LiveItem, archive_after: Option<Duration>) -> Option<Timestamp> {
    if item.config.state != ItemState::Closed {
        return None;
    }
    if item.archive_by.is_some() {
        return Some(Timestamp::MIN);
    }
    let after = SignedDuration::try_from(archive_after?).ok()?;
    item.closed_at?.checked_add(after).ok()
}

/// Who archives the item now: who has asked for it, or this process after the configured time.
/// `None`: the time has not come, and no admin has asked for it.
pub(crate) fn actor(
    item: &LiveItem,
    archive_after: Option<Duration>,
    now: Timestamp,
) -> Option<String> {
    due_at(item, archive_after).filter(|due_at| *due_at <= now)?;
    let asked = item.archive_by.clone();
    Some(asked.unwrap_or_else(|| ACTOR.to_owned()))
}

/// Whether the item is settled, and to be archived by the earliest of all clocks. An admin's
/// request needs no clock. An error if the clocks differ by seconds: an archive is final.
pub(crate) async fn is_due(
    reconciler: &Reconciler,
    item: &LiveItem,
) -> Result<bool, ReconcilerError> {
    if reconciler.ledger.has_open_work(&item.id).await? {
        return Ok(false);
    }
    if item.archive_by.is_some() {
        return Ok(true);
    }
    let now = clock::earliest(reconciler).await?;
    Ok(actor(item, reconciler.settings.archive_after, now).is_some())
}

/// Archives the item under its lock. Returns what stands against it; nothing if it is archived.
pub(crate) async fn archive(
    reconciler: &Reconciler,
    id: &ItemId,
    token: u64,
    ArchiveWork { actor, orders }: ArchiveWork,
) -> Result<Vec<String>, ReconcilerError> {
    let (stock, ledger) = (&reconciler.stock, &*reconciler.ledger);
    let found = audit::archivable(stock, ledger, id, &actor, token, orders).await?;
    let archival = match found {
        None => return Ok(Vec::new()),
        Some(Archivable::No(Against { reasons, audited })) => {
            if let Some(audited) = audited {
                audits::take_in(reconciler, id, *audited).await?;
            }
            return Ok(reasons);
        }
        Some(Archivable::Already) => return remove_keys(reconciler, id, token).await,
        Some(Archivable::Yes(archival)) => archival,
    };
    if !ledger.archive(&archival).await? {
        return Ok(vec!["the item has changed since its audit".into()]);
    }
    metrics::counter!("stockade_archived_items_total").increment(1);
    tracing::info!(item = %id, actor, token, "archived the item");
    remove_keys(reconciler, id, token).await
}

/// Removes the keys of an archived item. A repeat changes nothing.
async fn remove_keys(
    reconciler: &Reconciler,
    id: &ItemId,
    token: u64,
) -> Result<Vec<String>, ReconcilerError> {
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(Vec::new());
    };
    if item.state == ItemState::Archived {
        reconciler.stock.archive(&item, token).await?;
        reconciler.ledger.note_keys_removed(id, token).await?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{ItemState, SegmentConfig, Window};
    use jiff::Timestamp;
    use ledger::LiveItem;

    use super::actor;

    #[test]
    fn a_closed_item_is_archived_on_request_or_after_the_configured_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let item = LiveItem {
            id: "vase".parse().unwrap(),
            config: SegmentConfig {
                state: ItemState::Closed,
                limit_per_buyer: None,
                price: None,
                window: Window::default(),
                epoch: 2,
            },
            closed_at: Some(at(100)),
            archive_by: None,
            next_wave: None,
        };
        let ten = Some(Duration::from_secs(10));
        assert_eq!(actor(&item, None, at(1_000)), None, "never by default");
        assert_eq!(actor(&item, ten, at(109)), None);
        assert_eq!(actor(&item, ten, at(110)).as_deref(), Some("reconciler"));
        let asked = LiveItem {
            archive_by: Some("eve".into()),
            ..item.clone()
        };
        assert_eq!(actor(&asked, None, at(100)).as_deref(), Some("eve"));
        let mut open = asked;
        open.config.state = ItemState::Open;
        assert_eq!(actor(&open, ten, at(1_000)), None);
    }
}
