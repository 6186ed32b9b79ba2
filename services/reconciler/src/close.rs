//! Closes items whose window has ended.
//!
//! The window alone ends the sale: from its last moment on, no segment takes an order. Closing the
//! item lets every process stop working for it. The ledger changes first, by compare-and-set on the
//! version that was read: of several reconcilers one closes the item, and an admin who moves the
//! window at the same moment is not overruled.

use domain::{ItemId, ItemState, SegmentConfig};
use jiff::{SignedDuration, Timestamp};
use ledger::{Changed, ItemChange};

use crate::{Reconciler, ReconcilerError, clock};

/// When the item's window has ended, and long enough ago for its last orders. `None`: it is closed,
/// or its window does not end.
pub(crate) fn due_at(config: &SegmentConfig, delay: SignedDuration) -> Option<Timestamp> {
    match config.state {
        ItemState::Closed | ItemState::Archived => None,
        _ => config.window.closes_at?.checked_add(delay).ok(),
    }
}

/// Whether the item is to be closed at `now`.
pub(crate) fn is_due(config: &SegmentConfig, delay: SignedDuration, now: Timestamp) -> bool {
    due_at(config, delay).is_some_and(|due_at| due_at <= now)
}

/// Closes the item if its window has ended by the earlier of this process's time and Redis's.
pub(crate) async fn close(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let now = clock::now(reconciler).await?;
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(());
    };
    if !is_due(&(&item).into(), reconciler.close_delay(), now) {
        return Ok(());
    }
    let change = ItemChange {
        state: Some(ItemState::Closed),
        ..ItemChange::default()
    };
    let changed = reconciler
        .ledger
        .change_item(id, &change, Some(item.version), "reconciler")
        .await?;
    if let Changed::Item(item) = changed {
        metrics::counter!("stockade_closed_items_total").increment(1);
        tracing::info!(item = %id, "closed the item: its window has ended");
        // A segment that misses this is set by a recorder's sweep.
        reconciler.stock.configure(&item).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::{ItemState, SegmentConfig, Window};
    use jiff::{SignedDuration, Timestamp};

    use super::is_due;

    #[test]
    fn an_item_is_closed_after_its_window_and_the_delay() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let config = |state, closes_at| SegmentConfig {
            state,
            limit_per_buyer: None,
            price: None,
            window: Window {
                opens_at: None,
                closes_at,
            },
            epoch: 1,
        };
        let due = |state, now| {
            is_due(
                &config(state, Some(at(100))),
                SignedDuration::from_secs(5),
                at(now),
            )
        };
        for state in [ItemState::Open, ItemState::Paused] {
            assert!(!due(state, 104) && due(state, 105), "{state}");
        }
        for state in [ItemState::Closed, ItemState::Archived] {
            assert!(!due(state, 200), "{state}");
        }
        let endless = config(ItemState::Open, None);
        assert!(!is_due(&endless, SignedDuration::ZERO, Timestamp::MAX));
    }
}
