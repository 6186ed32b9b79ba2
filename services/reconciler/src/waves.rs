//! Adds the units of waves at their time.
//!
//! The ledger notes that a wave was added with the same update that adds its units. So any number
//! of reconcilers may try, and one that dies has either added the wave or not. The units travel
//! like those that an operator adds: as transfers, which the next round carries out under the
//! item's lock.

use domain::{ItemId, ItemState, Wave};
use jiff::Timestamp;
use ledger::{Changed, LiveItem};

use crate::{Reconciler, ReconcilerError, clock};

/// When the item's next wave is due. One that is closed gets no more units, unless it is opened
/// again.
pub(crate) fn due_at(item: &LiveItem) -> Option<Timestamp> {
    let wave = item.next_wave.filter(|_| sells_again(item.config.state));
    wave.map(|wave| wave.at)
}

/// Whether the item's next wave is due at `now`.
pub(crate) fn is_due(item: &LiveItem, now: Timestamp) -> bool {
    due_at(item).is_some_and(|due_at| due_at <= now)
}

fn sells_again(state: ItemState) -> bool {
    matches!(state, ItemState::Open | ItemState::Paused)
}

/// Adds the waves that are due by the earlier of this process's time and Redis's.
pub(crate) async fn add(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let now = clock::now(reconciler).await?;
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(());
    };
    let due = |wave: &&Wave| !wave.is_added && wave.at <= now;
    for wave in item.waves.iter().filter(due) {
        let added = reconciler
            .ledger
            .add_wave(&item, wave, "reconciler")
            .await?;
        if let Changed::Item(item) = added
            && item.with_wave_added(wave).is_none()
        {
            tracing::info!(item = %id, units = wave.units, at = %wave.at, "a wave was added");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::{ItemState, SegmentConfig, Wave, Window};
    use jiff::Timestamp;
    use ledger::LiveItem;

    use super::is_due;

    #[test]
    fn a_wave_is_due_at_its_time_while_the_item_may_sell() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let item = |state, next_wave| LiveItem {
            id: "vase".parse().unwrap(),
            config: SegmentConfig {
                state,
                limit_per_buyer: None,
                price: None,
                window: Window::default(),
                epoch: 1,
            },
            closed_at: None,
            archive_by: None,
            next_wave,
        };
        let wave = Some(Wave {
            at: at(100),
            units: 5,
            is_added: false,
        });
        for state in [ItemState::Open, ItemState::Paused] {
            assert!(!is_due(&item(state, wave), at(99)), "{state}");
            assert!(is_due(&item(state, wave), at(100)), "{state}");
            assert!(!is_due(&item(state, None), at(100)), "{state}");
        }
        for state in [ItemState::Closed, ItemState::Archived] {
            assert!(!is_due(&item(state, wave), at(100)), "{state}");
        }
    }
}
