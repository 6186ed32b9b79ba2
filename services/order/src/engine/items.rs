//! Creating, showing, opening and closing items.

use std::time::Duration;

use domain::{IdempotencyKey, Item, ItemId, TransferId};
use ledger::{
    Changed, Created, ItemChange, JournalEntry, SegmentRow, StockChange, StockPart, TransferState,
};
use stock::{Inspection, InspectionEntries};

use super::{Engine, EngineError};

/// An item with its numbers as they are now.
#[derive(Debug, Clone)]
pub struct ItemView {
    /// The item.
    pub item: Item,
    /// Units that nobody has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// The same by segment.
    pub segments: Vec<SegmentView>,
}

/// A segment with its numbers as they are now.
#[derive(Debug, Clone)]
pub struct SegmentView {
    /// Which one.
    pub segment: u16,
    /// Units that belong to it.
    pub allocated: u64,
    /// Units that nobody has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Walks from here that are not forgotten yet.
    pub walks: u64,
    /// Outbox entries that are not trimmed yet, the anchor included.
    pub outbox: u64,
}

impl Engine {
    /// Creates the item, or finds it as it was created. `None`: another item has this id. May be repeated after any failure.
    pub async fn create_item(&self, item: &Item) -> Result<Option<Item>, EngineError> {
        let (Created::New(item) | Created::Same(item)) = self.ledger.create_item(item).await?
        else {
            return Ok(None);
        };
        for row in self.ledger.segments(&item.id).await? {
            // A segment of which something was recorded is in Redis, or its history is lost: then it must not start again with all units.
            if row.checkpoint.is_none() {
                self.stock.open_segment(&item, row.key.segment).await?;
            }
        }
        self.know(item.clone());
        Ok(Some(item))
    }

    /// Changes state, limit or window. The ledger decides; the segments follow, by epoch. May be repeated after any failure.
    pub async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, EngineError> {
        let changed = self.ledger.change_item(id, change, expected, actor).await?;
        if let Changed::Item(item) = &changed {
            self.stock.configure(item).await?;
            self.know(item.clone());
        }
        Ok(changed)
    }

    /// Makes units of the item more or fewer. The ledger says what is to be moved, and a reconciler moves it; this waits for it a little.
    /// The same key is the same change, however often it is repeated.
    pub async fn change_stock(
        &self,
        id: &ItemId,
        wish: StockWish,
        key: &IdempotencyKey,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Stocked, EngineError> {
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(Stocked::NoItem);
        };
        let change = self.stock_change(&item, wish, key).await?;
        match self
            .ledger
            .change_stock_by(id, &change, wish.units(), expected, actor)
            .await?
        {
            Changed::NoItem => Ok(Stocked::NoItem),
            Changed::OtherVersion(item) => Ok(Stocked::OtherVersion(item.version)),
            Changed::OtherChange(item) => Ok(Stocked::KeyReused {
                version: item.version,
            }),
            Changed::Item(_) => self.wait_for_transfers(&change).await,
        }
    }

    /// Makes the item's stock `wanted`, if its version is `expected` and no units are being taken back: these are still in its stock, and nobody knows
    /// yet how many of them will leave. `key` stands for the version: a repeat finds another one.
    pub async fn set_stock(
        &self,
        id: &ItemId,
        wanted: u64,
        key: &IdempotencyKey,
        expected: u64,
        actor: &str,
    ) -> Result<StockSet, EngineError> {
        let Some(seen) = self.view_item(id).await? else {
            return Ok(StockSet::NoItem);
        };
        if seen.item.version != expected {
            return Ok(StockSet::OtherVersion(seen.item.version));
        }
        // Whoever begins or ends a take-back after the item was read makes another version of it.
        if self.taking_back(id).await? > 0 {
            return Ok(StockSet::TakeBackOpen);
        }
        let wish = match wanted.checked_sub(seen.item.stock) {
            Some(0) => return self.has_version(id, expected).await,
            Some(more) => StockWish::Add(more),
            None => StockWish::TakeBack(seen.item.stock - wanted),
        };
        if matches!(wish, StockWish::TakeBack(units) if units > seen.available) {
            return Ok(StockSet::NotEnough {
                available: seen.available,
            });
        }
        Ok(
            match self
                .change_stock(id, wish, key, Some(expected), actor)
                .await?
            {
                Stocked::NoItem => StockSet::NoItem,
                // Somebody else's wish for the same version came first.
                Stocked::OtherVersion(version) | Stocked::KeyReused { version } => {
                    StockSet::OtherVersion(version)
                }
                Stocked::Item {
                    settled: true,
                    moved,
                } if moved == wish.units() => StockSet::Done,
                Stocked::Item {
                    settled: true,
                    moved: 0,
                } => StockSet::NothingLeft,
                Stocked::Item { .. } => StockSet::NotYetOrNotAll,
            },
        )
    }

    async fn has_version(&self, id: &ItemId, expected: u64) -> Result<StockSet, EngineError> {
        Ok(match self.ledger.item(id).await? {
            Some(item) if item.version == expected => StockSet::Done,
            Some(item) => StockSet::OtherVersion(item.version),
            None => StockSet::NoItem,
        })
    }

    /// Units that somebody asked to take back and that are still part of the item's stock.
    pub async fn taking_back(&self, id: &ItemId) -> Result<u64, EngineError> {
        let open = self.ledger.open_transfers(Some(id)).await?;
        let leaving = open.iter().filter(|transfer| transfer.to.is_none());
        Ok(leaving
            .map(|transfer| {
                if transfer.state == TransferState::Planned {
                    transfer.asked
                } else {
                    transfer.moved
                }
            })
            .sum())
    }

    async fn stock_change(
        &self,
        item: &Item,
        wish: StockWish,
        key: &IdempotencyKey,
    ) -> Result<StockChange, EngineError> {
        let part = |segment: u16, units| StockPart {
            transfer: TransferId::derive(&item.id, key, segment),
            segment,
            units,
        };
        let parts = |units: Vec<u64>| {
            (0..item.segments)
                .zip(units)
                .map(|(segment, units)| part(segment, units))
                .collect()
        };
        Ok(match wish {
            StockWish::Add(units) => StockChange::TopUp(parts(even_shares(units, item.segments))),
            StockWish::TakeBack(units) => {
                let available = self
                    .know(item.clone())
                    .stock
                    .inspect(InspectionEntries::None)
                    .await?;
                let available: Vec<u64> =
                    available.iter().map(|segment| segment.available).collect();
                StockChange::TakeBack(parts(shares_of(units, &available)))
            }
        })
    }

    /// Waits a little until every part is where it shall be, those included that an earlier request of the same change has asked for.
    async fn wait_for_transfers(&self, change: &StockChange) -> Result<Stocked, EngineError> {
        let ids: Vec<_> = change.parts().iter().map(|part| part.transfer).collect();
        let until = tokio::time::Instant::now() + SETTLE_WITHIN;
        loop {
            let transfers = self.ledger.transfers(&ids).await?;
            let settled = transfers
                .iter()
                .all(|transfer| transfer.state == TransferState::Done);
            if settled || tokio::time::Instant::now() > until {
                return Ok(Stocked::Item {
                    settled,
                    moved: transfers.iter().map(|transfer| transfer.moved).sum(),
                });
            }
            tokio::time::sleep(SETTLE_LOOK).await;
        }
    }

    /// The item as it is described.
    pub async fn item(&self, id: &ItemId) -> Result<Option<Item>, EngineError> {
        Ok(self.ledger.item(id).await?)
    }

    /// The latest entries of the item's journal, newest first.
    pub async fn journal(
        &self,
        id: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, EngineError> {
        Ok(self.ledger.journal(id, at_most).await?)
    }

    /// The item with its numbers.
    pub async fn view_item(&self, id: &ItemId) -> Result<Option<ItemView>, EngineError> {
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(None);
        };
        let rows = self.ledger.segments(id).await?;
        let inspections = self
            .know(item.clone())
            .stock
            .inspect(InspectionEntries::None)
            .await?;
        let segments: Vec<_> = rows
            .iter()
            .zip(&inspections)
            .map(|(row, inspection)| view(row, inspection))
            .collect();
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
}

/// How long a change of stock is waited for.
const SETTLE_WITHIN: Duration = Duration::from_secs(3);
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// What shall become of an item's stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StockWish {
    /// More units.
    Add(u64),
    /// Fewer: as many of these as nobody has.
    TakeBack(u64),
}

impl StockWish {
    fn units(self) -> u64 {
        let (Self::Add(units) | Self::TakeBack(units)) = self;
        units
    }
}

/// What a change of stock came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stocked {
    /// It is made.
    Item {
        /// The units are where they shall be; if not, they are on their way.
        settled: bool,
        /// How many have come, or have left, so far as the ledger knows.
        moved: u64,
    },
    /// The key stands for another change.
    KeyReused {
        /// The item's version.
        version: u64,
    },
    /// The item has this version, not the one that the change was decided on.
    OtherVersion(u64),
    /// There is no such item.
    NoItem,
}

/// What came of setting the stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StockSet {
    /// The item has the stock that was wanted.
    Done,
    /// Units are still on their way; or buyers were faster, and fewer could be taken back than was asked.
    NotYetOrNotAll,
    /// More units than nobody has would have to go.
    NotEnough {
        /// How many nobody has.
        available: u64,
    },
    /// There seemed to be enough, but buyers were faster, and none could be taken back.
    NothingLeft,
    /// Units are being taken back.
    TakeBackOpen,
    /// The item has this version, not the one that the change was decided on.
    OtherVersion(u64),
    /// There is no such item.
    NoItem,
}

/// Even shares, the first ones taking the rest: the same for every repeat.
fn even_shares(units: u64, segments: u16) -> Vec<u64> {
    let segments = u64::from(segments);
    (0..segments)
        .map(|segment| units / segments + u64::from(segment < units % segments))
        .collect()
}

/// From each segment in turn as much as it has, until there is enough. The first one is always named, also if it gives nothing: by its part a repeat is
/// known, which may by then find units elsewhere.
fn shares_of(units: u64, available: &[u64]) -> Vec<u64> {
    let mut wanted = units;
    let share = |available: &u64| {
        let share = wanted.min(*available);
        wanted -= share;
        share
    };
    available.iter().map(share).collect()
}

/// What is available is known to Redis first, and what is paid to the ledger; all other units are held.
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
        walks: inspection.walks,
        outbox: inspection.outbox,
    }
}
