//! What is due for an item in a round.

use std::time::Instant;

use domain::ItemState;
use jiff::Timestamp;
use ledger::{LiveItem, Transfer};

use super::item::ArchiveAttempts;
use crate::{Reconciler, archive, close, waves};

/// An item that is due, as the ledger has it.
pub(super) struct DueItem {
    pub item: LiveItem,
    pub end: End,
    pub wave: bool,
    pub transfers: Vec<Transfer>,
    pub wanted: u64,
}

/// What is due for the end of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    None,
    /// Its window has ended, and it is not closed.
    Close,
    /// It is to be archived by this actor.
    Archive(String),
    /// It is archived, and Redis still has its keys.
    RemoveKeys,
}

impl End {
    pub(super) fn of(
        reconciler: &Reconciler,
        item: &LiveItem,
        attempts: Option<&ArchiveAttempts>,
        now: Instant,
    ) -> Self {
        let (settings, time) = (&reconciler.settings, (reconciler.settings.clock)());
        if close::is_due(&item.config, reconciler.close_delay(), time) {
            return Self::Close;
        }
        if attempts.is_some_and(|attempts| !attempts.is_due(now)) {
            return Self::None;
        }
        if item.config.state == ItemState::Archived {
            return Self::RemoveKeys;
        }
        archive::actor(item, settings.archive_after, time).map_or(Self::None, Self::Archive)
    }
}

/// The first moment at which the clock makes something due for the item: its end, or a wave. `None`:
/// it never does, as long as the item stays as it is.
pub(super) fn first_moment(reconciler: &Reconciler, item: &LiveItem) -> Option<Timestamp> {
    let keys = (item.config.state == ItemState::Archived).then_some(Timestamp::MIN);
    let moments = [
        close::due_at(&item.config, reconciler.close_delay()),
        archive::due_at(item, reconciler.settings.archive_after),
        waves::due_at(item),
        keys,
    ];
    moments.into_iter().flatten().min()
}
