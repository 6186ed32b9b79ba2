//! What is due for an item in a round.

use std::time::Instant;

use domain::ItemState;
use jiff::Timestamp;
use ledger::{LiveItem, Transfer};

use crate::{Reconciler, archive, close, waves};

/// An item that is due, as the ledger has it.
pub(super) struct DueItem {
    pub item: LiveItem,
    /// Whether it is to be closed.
    pub close: bool,
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
    /// It is to be archived by this actor, or it is archived, and Redis still has its keys.
    Archive(String),
}

impl End {
    pub(super) fn of(reconciler: &Reconciler, item: &LiveItem, now: Instant) -> Self {
        let (settings, time) = (&reconciler.settings, (reconciler.settings.clock)());
        if close::is_due(&item.config, reconciler.close_delay(), time) {
            return Self::Close;
        }
        if !reconciler.archives.is_due(&item.id, now) {
            return Self::None;
        }
        let actor = match item.config.state {
            ItemState::Archived => Some(archive::ACTOR.to_owned()),
            _ => archive::actor(item, settings.archive_after, time),
        };
        actor.map_or(Self::None, Self::Archive)
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
