//! Creating, showing, opening and closing items.

use domain::{Item, ItemId, ItemState};
use ledger::{Created, SegmentRow};
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
    /// Walks from here that are not forgotten yet.
    pub walks: u64,
    /// Outbox entries that are not trimmed yet, the anchor included.
    pub outbox: u64,
}

impl Engine {
    /// Creates the item, or finds it as it was created. `None`: another item has this id. May be repeated after any failure.
    pub async fn create_item(&self, item: &Item) -> Result<Option<Item>, EngineError> {
        let (Created::New(item) | Created::Same(item)) = self.ledger.create_item(item).await? else { return Ok(None) };
        for row in self.ledger.segments(&item.id).await? {
            // A segment of which something was recorded is in Redis, or its history is lost: then it must not start again with all units.
            if row.checkpoint.is_none() {
                self.stock.open_segment(&item, row.key.segment).await?;
            }
        }
        self.know(item.clone()).await;
        Ok(Some(item))
    }

    /// Opens, pauses or closes the item. The ledger decides; the segments follow, by epoch. May be repeated after any failure.
    pub async fn set_item_state(&self, id: &ItemId, state: ItemState) -> Result<Option<Item>, EngineError> {
        let Some(item) = self.ledger.set_item_state(id, state).await? else { return Ok(None) };
        self.stock.set_state(&item, item.state, item.epoch).await?;
        Ok(Some(item))
    }

    /// The item with its numbers.
    pub async fn view_item(&self, id: &ItemId) -> Result<Option<ItemView>, EngineError> {
        let Some(item) = self.ledger.item(id).await? else { return Ok(None) };
        let rows = self.ledger.segments(id).await?;
        let inspections = self.know(item.clone()).await.stock.inspect(InspectionEntries::None).await?;
        let segments: Vec<_> = rows.iter().zip(&inspections).map(|(row, inspection)| view(row, inspection)).collect();
        let sum = |units: fn(&SegmentView) -> u64| segments.iter().map(units).sum();
        Ok(Some(ItemView {
            available: sum(|segment| segment.available),
            held: sum(|segment| segment.held),
            confirmed: sum(|segment| segment.confirmed),
            segments,
            item,
        }))
    }
}

/// What is available is known to Redis first, and what is paid to the ledger; all other units are held.
fn view(row: &SegmentRow, inspection: &Inspection) -> SegmentView {
    let available = inspection.available;
    SegmentView {
        segment: row.key.segment,
        allocated: row.allocated,
        available,
        held: row.allocated.saturating_sub(available).saturating_sub(row.confirmed),
        confirmed: row.confirmed,
        walks: inspection.walks,
        outbox: inspection.outbox,
    }
}
