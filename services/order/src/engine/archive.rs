//! Archived items: asking for the archive of one, and answering for one from the ledger alone.
//!
//! Being archived is for good, so an item that the cache has as archived needs no other look. A
//! process that has it as something else learns of it from the first segment that is missing.

use std::sync::Arc;

use domain::{ItemId, ItemState, OrderId, Quantity};
use stock::StockError;
use tokio::time::Instant;

use super::{Engine, EngineError, KnownItem, Placed, Price, items};

/// Result of asking for the archive of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveRequested {
    /// The item is archived.
    Archived,
    /// The request is recorded, and a reconciler will archive the item.
    Pending,
    /// The item cannot be archived, for these reasons.
    Refused(Vec<String>),
    /// The item has this version, not the one that the request was decided on.
    OtherVersion(u64),
    /// There is no such item.
    NoItem,
}

impl KnownItem {
    pub(crate) fn is_archived(&self) -> bool {
        self.item.state == ItemState::Archived
    }
}

impl Engine {
    /// Records that the item is to be archived for `actor`, and waits a while for a reconciler to
    /// do it. May be repeated after any failure.
    pub async fn archive_item(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<ArchiveRequested, EngineError> {
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(ArchiveRequested::NoItem);
        };
        let is_archived = item.state == ItemState::Archived;
        if !is_archived && expected.is_some_and(|expected| expected != item.version) {
            return Ok(ArchiveRequested::OtherVersion(item.version));
        }
        // A reconciler reads the orders.
        let Some(reasons) = audit::against_archive(&self.stock, &*self.ledger, id).await? else {
            return Ok(ArchiveRequested::NoItem);
        };
        if !reasons.is_empty() {
            return Ok(ArchiveRequested::Refused(reasons));
        }
        let requested = self.ledger.request_archive(id, expected, actor).await;
        match requested.map_err(EngineError::of_change)? {
            ledger::Changed::OtherVersion(item) => Ok(ArchiveRequested::OtherVersion(item.version)),
            ledger::Changed::NoItem => Ok(ArchiveRequested::NoItem),
            _ => {
                let archived = self.wait_for_archive(id).await;
                archived.map_err(EngineError::after_change)
            }
        }
    }

    async fn wait_for_archive(&self, id: &ItemId) -> Result<ArchiveRequested, EngineError> {
        let until = Instant::now() + items::SETTLE_TIMEOUT;
        loop {
            if self.archived(id).await?.is_some() {
                return Ok(ArchiveRequested::Archived);
            }
            if Instant::now() > until {
                return Ok(ArchiveRequested::Pending);
            }
            tokio::time::sleep(items::SETTLE_POLL_INTERVAL).await;
        }
    }

    /// The item, if the ledger has archived it.
    pub(super) async fn archived(
        &self,
        id: &ItemId,
    ) -> Result<Option<Arc<KnownItem>>, EngineError> {
        let item = self.ledger.item(id).await?;
        Ok(item
            .filter(|item| item.state == ItemState::Archived)
            .map(|item| self.cache(item)))
    }

    /// Whether `error` comes from a segment that is gone because its item is archived.
    pub(super) async fn is_of_archived(
        &self,
        id: &ItemId,
        error: &StockError,
    ) -> Result<bool, EngineError> {
        Ok(matches!(error, StockError::Missing(_)) && self.archived(id).await?.is_some())
    }

    /// The result for an order of an archived item: the earlier order with this id, or a refusal.
    pub(super) async fn place_archived(
        &self,
        known: &KnownItem,
        id: OrderId,
        quantity: Quantity,
    ) -> Result<Placed, EngineError> {
        let refused = Placed::NotOpen {
            state: ItemState::Archived.to_string(),
            opens_at: known.item.window.opens_at,
            // Its segments are gone, so no attempt that is still under way can take units.
            is_final: true,
        };
        Ok(self
            .in_ledger(id, quantity, Price::of(&known.item))
            .await?
            .unwrap_or(refused))
    }

    /// The result for an order whose segment is gone.
    pub(super) async fn place_without_segment(
        &self,
        known: &KnownItem,
        id: OrderId,
        quantity: Quantity,
        error: StockError,
    ) -> Result<Placed, EngineError> {
        match self.archived(&known.item.id).await? {
            Some(known) => self.place_archived(&known, id, quantity).await,
            None => Err(error.into()),
        }
    }
}
