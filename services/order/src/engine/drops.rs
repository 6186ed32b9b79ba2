//! Asking for the deletion of an archived item's orders. A reconciler does it.

use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use ledger::DropRequest;

use super::{Engine, EngineError};

/// Result of asking for the drop of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropRequested {
    /// The item's orders are deleted.
    Dropped,
    /// The request is recorded, and a reconciler will delete the item's orders.
    Pending,
    /// The item is not archived.
    NotArchived,
    /// The item keeps its orders until this time.
    TooEarly(Timestamp),
    /// No folder for exports is set, so no reconciler would drop it.
    NoFolder,
    /// There is no such item.
    NoItem,
}

impl Engine {
    /// Records that the orders of the item are to be deleted for `actor`. May be repeated after any
    /// failure.
    pub async fn drop_item(&self, id: &ItemId, actor: &str) -> Result<DropRequested, EngineError> {
        let retention =
            SignedDuration::try_from(self.settings.drop_retention).unwrap_or(SignedDuration::MAX);
        // A clock that runs ahead deletes nothing early: the ledger has dated the archive.
        let now = Timestamp::now().min(self.ledger.time().await?);
        let archived_before = match self.settings.has_drop_exports {
            true => now.checked_sub(retention).unwrap_or(Timestamp::MIN),
            // No item is old enough, and an archived one is left as it is.
            false => Timestamp::MIN,
        };
        let requested = self.ledger.request_drop(id, archived_before, actor);
        Ok(match requested.await.map_err(EngineError::of_change)? {
            DropRequest::Noted => DropRequested::Pending,
            DropRequest::Dropped => DropRequested::Dropped,
            DropRequest::NotArchived => DropRequested::NotArchived,
            DropRequest::TooEarly(_) if !self.settings.has_drop_exports => DropRequested::NoFolder,
            DropRequest::TooEarly(at) => {
                DropRequested::TooEarly(at.checked_add(retention).unwrap_or(Timestamp::MAX))
            }
            DropRequest::NoItem => DropRequested::NoItem,
        })
    }
}
