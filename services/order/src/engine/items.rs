//! Creates, shows, opens and closes items, and changes their stock.

use std::time::Duration;

use domain::{IdempotencyKey, Item, ItemId, ItemState, TransferId};
use futures::future::join_all;
use ledger::{
    Changed, Created, ItemChange, ListedItem, SegmentRow, StockChange, StockPart, TransferState,
};
use serde::Serialize;
use stock::{Inspection, InspectionEntries};
use utoipa::ToSchema;

use super::{Engine, EngineError};

/// An item with its current counts.
#[derive(Debug, Clone)]
pub struct ItemView {
    /// The item.
    pub item: Item,
    /// Units that can be sold.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// The same counts for each segment.
    pub(crate) segments: Vec<SegmentView>,
}

/// A segment and its counts.
// Admins get it as it is: each field is one of the API.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SegmentBody)]
pub(crate) struct SegmentView {
    /// Number of the segment.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that can be sold.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Pending spillovers of orders whose home is this segment.
    pub spillovers: u64,
    /// Outbox entries that are not trimmed, including the anchor.
    pub outbox: u64,
}

impl Engine {
    /// Creates the item, or returns the one that an earlier request created. `None`: a different
    /// item has this id. May be repeated after any failure. The journal of a new item begins with
    /// its creation by `actor`.
    pub async fn create_item(&self, item: &Item, actor: &str) -> Result<Option<Item>, EngineError> {
        let created = self.ledger.create_item_by(item, Some(actor)).await;
        let (Created::New(item) | Created::Same(item)) = created.map_err(EngineError::of_change)?
        else {
            return Ok(None);
        };
        let rows = self.ledger.segments(&item.id).await;
        for row in rows.map_err(EngineError::after_change)? {
            // A segment with a checkpoint has been opened before. If Redis has lost it, it must not
            // start again with all of its units.
            if row.checkpoint.is_none() {
                let opened = self.stock.open_segment(&item, row.key.segment).await;
                opened.map_err(EngineError::after_change)?;
            }
        }
        self.cache(item.clone());
        Ok(Some(item))
    }

    /// Changes state, limit or window. The ledger decides; the segments follow, by epoch. May be
    /// repeated after any failure.
    pub async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Result<Item, Unchanged>, EngineError> {
        let changed = self.ledger.change_item(id, change, expected, actor).await;
        let changed = made(changed.map_err(EngineError::of_change)?);
        if let Ok(item) = &changed {
            let configured = self.stock.configure(item).await;
            configured.map_err(EngineError::after_change)?;
            self.cache(item.clone());
        }
        Ok(changed)
    }

    /// Adds or withdraws units of the item. The ledger records the transfers and a reconciler
    /// executes them; this waits for them up to `SETTLE_TIMEOUT`. Repeats with the same key are
    /// the same change.
    pub async fn change_stock(
        &self,
        id: &ItemId,
        request: StockRequest,
        key: &IdempotencyKey,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Result<Stocked, Unchanged>, EngineError> {
        self.change_stock_of(id, request, ChangeKey::Caller(key), expected, actor)
            .await
    }

    async fn change_stock_of(
        &self,
        id: &ItemId,
        request: StockRequest,
        key: ChangeKey<'_>,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Result<Stocked, Unchanged>, EngineError> {
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(Err(Unchanged::NoItem));
        };
        if item.state == ItemState::Archived {
            return Ok(Err(Unchanged::Archived));
        }
        let change = self.stock_change(&item, request, key).await?;
        let changed = self
            .ledger
            .change_stock_by(id, &change, request.units(), expected, actor)
            .await;
        if let Err(why) = made(changed.map_err(EngineError::of_change)?) {
            return Ok(Err(why));
        }
        let stocked = self.wait_for_transfers(&change).await;
        stocked.map(Ok).map_err(EngineError::after_change)
    }

    /// Sets the item's stock to `wanted`, if its version is `expected` and no withdrawal is open:
    /// the units of an open withdrawal still count as stock, and how many will leave is not known
    /// yet. The version takes the place of a key: a repeat finds another version.
    pub async fn set_stock(
        &self,
        id: &ItemId,
        wanted: u64,
        expected: u64,
        actor: &str,
    ) -> Result<StockSet, EngineError> {
        let Some(seen) = self.view_item(id).await? else {
            return Ok(StockSet::Unchanged(Unchanged::NoItem));
        };
        if seen.item.version != expected {
            let other = Unchanged::OtherVersion(seen.item.version);
            return Ok(StockSet::Unchanged(other));
        }
        if seen.item.state == ItemState::Archived {
            return Ok(StockSet::Unchanged(Unchanged::Archived));
        }
        // A withdrawal that begins or ends after the item was read changes the version.
        if self.withdrawing(id).await? > 0 {
            return Ok(StockSet::WithdrawalOpen);
        }
        let request = match wanted.checked_sub(seen.item.stock) {
            Some(0) => return self.has_version(id, expected).await,
            Some(more) => StockRequest::Add(more),
            None => StockRequest::Withdraw(seen.item.stock - wanted),
        };
        if matches!(request, StockRequest::Withdraw(units) if units > seen.available) {
            return Ok(StockSet::NotEnough {
                available: seen.available,
            });
        }
        let key = ChangeKey::Version(expected);
        let stocked = self
            .change_stock_of(id, request, key, Some(expected), actor)
            .await?;
        Ok(match stocked {
            // Another request for the same version came first.
            Err(Unchanged::KeyReused(version)) => {
                StockSet::Unchanged(Unchanged::OtherVersion(version))
            }
            Err(why) => StockSet::Unchanged(why),
            Ok(Stocked {
                settled: true,
                moved,
            }) if moved == request.units() => StockSet::Done,
            Ok(Stocked {
                settled: true,
                moved: 0,
            }) => StockSet::NothingLeft,
            Ok(_) => StockSet::NotYetOrNotAll,
        })
    }

    async fn has_version(&self, id: &ItemId, expected: u64) -> Result<StockSet, EngineError> {
        Ok(match self.ledger.item(id).await? {
            Some(item) if item.version == expected => StockSet::Done,
            Some(item) => StockSet::Unchanged(Unchanged::OtherVersion(item.version)),
            None => StockSet::Unchanged(Unchanged::NoItem),
        })
    }

    /// Units of open withdrawals that are still part of the item's stock.
    pub async fn withdrawing(&self, id: &ItemId) -> Result<u64, EngineError> {
        let open = self.ledger.open_transfers(Some(id)).await?;
        let leaving = open.iter().filter(|transfer| transfer.to.is_none());
        Ok(leaving
            .map(|transfer| {
                if transfer.state == TransferState::Planned {
                    transfer.quantity
                } else {
                    transfer.moved
                }
            })
            .sum())
    }

    async fn stock_change(
        &self,
        item: &Item,
        request: StockRequest,
        key: ChangeKey<'_>,
    ) -> Result<StockChange, EngineError> {
        let part = |segment: u16, units| StockPart {
            transfer: key.transfer(&item.id, segment),
            segment,
            units,
        };
        let parts = |units: Vec<u64>| {
            (0..item.segments)
                .zip(units)
                .map(|(segment, units)| part(segment, units))
                .collect()
        };
        Ok(match request {
            StockRequest::Add(units) => {
                let shares = (0..item.segments).map(|segment| item.share_of(units, segment));
                StockChange::TopUp(parts(shares.collect()))
            }
            StockRequest::Withdraw(units) => {
                let available = self
                    .cache(item.clone())
                    .stock
                    .inspect(InspectionEntries::None)
                    .await?;
                let available: Vec<u64> =
                    available.iter().map(|segment| segment.available).collect();
                StockChange::Withdraw(parts(shares_of(units, &available)))
            }
        })
    }

    /// Waits up to [`SETTLE_TIMEOUT`] until all transfers of the change are done, including those
    /// of an earlier request for the same change.
    async fn wait_for_transfers(&self, change: &StockChange) -> Result<Stocked, EngineError> {
        let ids: Vec<_> = change.parts().iter().map(|part| part.transfer).collect();
        let until = tokio::time::Instant::now() + SETTLE_TIMEOUT;
        loop {
            let transfers = self.ledger.transfers(&ids).await?;
            let settled = transfers
                .iter()
                .all(|transfer| transfer.state == TransferState::Done);
            if settled || tokio::time::Instant::now() > until {
                return Ok(Stocked {
                    settled,
                    moved: transfers.iter().map(|transfer| transfer.moved).sum(),
                });
            }
            tokio::time::sleep(SETTLE_POLL_INTERVAL).await;
        }
    }

    /// The item without its counts.
    pub async fn item(&self, id: &ItemId) -> Result<Option<Item>, EngineError> {
        Ok(self.ledger.item(id).await?)
    }

    /// The item with its counts.
    pub async fn view_item(&self, id: &ItemId) -> Result<Option<ItemView>, EngineError> {
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(None);
        };
        let rows = self.ledger.segments(id).await?;
        let known = self.cache(item.clone());
        let segments: Vec<_> = if known.is_archived() {
            rows.iter().map(view_of_archived).collect()
        } else {
            let inspections = known.stock.inspect(InspectionEntries::None).await?;
            rows.iter()
                .zip(&inspections)
                .map(|(row, inspection)| view(row, inspection))
                .collect()
        };
        let sum = |units: fn(&SegmentView) -> u64| segments.iter().map(units).sum();
        Ok(Some(ItemView {
            available: sum(|segment| segment.available),
            held: sum(|segment| segment.held),
            confirmed: sum(|segment| segment.confirmed),
            returning: sum(|segment| segment.returning),
            segments,
            item,
        }))
    }

    /// Those of these items that exist, with the sums of their counts and no segments: one
    /// statement, and one round of Redis, in which all segments are read concurrently. A segment
    /// that cannot be read fails its own item only.
    pub async fn view_items(
        &self,
        ids: &[ItemId],
    ) -> Result<Vec<(ItemId, Result<ItemView, EngineError>)>, EngineError> {
        let listed = self.ledger.listed_items(ids).await?;
        let view = async |listed: ListedItem| {
            let id = listed.item.id.clone();
            (id, self.view_listed(listed).await)
        };
        Ok(join_all(listed.into_iter().map(view)).await)
    }

    async fn view_listed(&self, listed: ListedItem) -> Result<ItemView, EngineError> {
        let ListedItem {
            item,
            available,
            held,
            confirmed,
            returning,
        } = listed;
        let known = self.cache(item.clone());
        let (available, held) = match known.is_archived() {
            true => (available, held),
            false => {
                let inspections = known.stock.inspect(InspectionEntries::None).await?;
                let free = inspections.iter().map(|segment| segment.available).sum();
                (free, (available + held).saturating_sub(free))
            }
        };
        Ok(ItemView {
            item,
            available,
            held,
            confirmed,
            returning,
            segments: Vec::new(),
        })
    }
}

/// How long a request waits for its change of stock.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A change of an item's stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StockRequest {
    /// Add units.
    Add(u64),
    /// Withdraw unsold units: this many, or as many as there are.
    Withdraw(u64),
}

impl StockRequest {
    fn units(self) -> u64 {
        let (Self::Add(units) | Self::Withdraw(units)) = self;
        units
    }
}

/// What identifies a change of stock. No key of a caller is the same as one of our own.
#[derive(Debug, Clone, Copy)]
enum ChangeKey<'a> {
    /// The caller's.
    Caller(&'a IdempotencyKey),
    /// The version of the item that gets another stock.
    Version(u64),
}

impl ChangeKey<'_> {
    fn transfer(self, item: &ItemId, segment: u16) -> TransferId {
        match self {
            Self::Caller(key) => TransferId::derive(item, key, segment),
            Self::Version(version) => TransferId::of_version(item, version, segment),
        }
    }
}

/// Why a change of an item was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchanged {
    /// The item has this version, not the one that the change was decided on.
    OtherVersion(u64),
    /// The key belongs to another change of the item, which has this version.
    KeyReused(u64),
    /// The item would have more units than an item may, those of its coming waves included.
    AboveMaximum,
    /// The item is archived, and its end is for good.
    Archived,
    /// There is no such item.
    NoItem,
}

/// The item as it is now, if the change was made.
fn made(changed: Changed) -> Result<Item, Unchanged> {
    match changed {
        Changed::Item(item) => Ok(item),
        Changed::OtherVersion(item) => Err(Unchanged::OtherVersion(item.version)),
        Changed::OtherChange(item) => Err(Unchanged::KeyReused(item.version)),
        Changed::AboveMaximum(_) => Err(Unchanged::AboveMaximum),
        Changed::Archived(_) => Err(Unchanged::Archived),
        Changed::NoItem => Err(Unchanged::NoItem),
    }
}

/// A change of stock that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stocked {
    /// Whether all transfers are done. If not, units are still in transit.
    pub settled: bool,
    /// Units that have arrived or left, as recorded in the ledger.
    pub moved: u64,
}

/// Result of setting the stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StockSet {
    /// The item has the requested stock.
    Done,
    /// Units are still in transit; or buyers were faster, and fewer units than requested could be
    /// withdrawn.
    NotYetOrNotAll,
    /// More units would have to be withdrawn than are unsold.
    NotEnough {
        /// Number of unsold units.
        available: u64,
    },
    /// There were enough units at first, but buyers were faster, and none could be withdrawn.
    NothingLeft,
    /// A withdrawal is open.
    WithdrawalOpen,
    /// The change was not made, for this reason.
    Unchanged(Unchanged),
}

/// Takes units from each segment in turn until there are enough. The first segment always gets a
/// part, even an empty one: it identifies a repeat, which may find units in other segments.
fn shares_of(units: u64, available: &[u64]) -> Vec<u64> {
    let mut wanted = units;
    let share = |available: &u64| {
        let share = wanted.min(*available);
        wanted -= share;
        share
    };
    available.iter().map(share).collect()
}

/// Redis has the current number of available units, and the ledger that of confirmed ones. All
/// other units are held.
fn view(row: &SegmentRow, inspection: &Inspection) -> SegmentView {
    let available = inspection.available;
    SegmentView {
        segment: row.key.segment,
        allocated: row.allocated,
        available,
        held: row
            .allocated
            .saturating_sub(available)
            .saturating_sub(row.confirmed)
            .saturating_sub(row.returning),
        confirmed: row.confirmed,
        returning: row.returning,
        spillovers: inspection.spillovers,
        outbox: inspection.outbox,
    }
}

/// The ledger has all counts of an archived item.
fn view_of_archived(row: &SegmentRow) -> SegmentView {
    SegmentView {
        segment: row.key.segment,
        allocated: row.allocated,
        available: row.available,
        held: row.held,
        confirmed: row.confirmed,
        returning: row.returning,
        spillovers: 0,
        outbox: 0,
    }
}
