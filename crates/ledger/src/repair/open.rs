//! Repair in an open transaction, for every database.

use std::collections::HashMap;

use async_trait::async_trait;
use domain::{Entry, Item, ItemId, ItemState, Memory, OrderId, SegmentKey, TransferId};

use super::{
    Repair, Repaired,
    memory::{self, RememberedOrder},
};
use crate::{
    LedgerError, NewJournalEntry, PendingReturn, Recorded, SegmentRow, Transfer, changes,
    error::check_fence,
    events::OrderEvents,
    limits::Watch,
    recording,
    replay::{ReplayMode, replay},
    statements::{self, Expected, Move, Shape, Shapes},
    transaction::end,
};

/// SQL statements of a transaction that repairs, besides those of recording.
#[async_trait]
pub(crate) trait Statements: statements::Statements + changes::item::Statements {
    /// The item's orders in these ranges of ids, in order.
    async fn orders_in(
        &mut self,
        item: &ItemId,
        ranges: &[[OrderId; 2]],
    ) -> Result<Vec<RememberedOrder>, LedgerError>;

    /// The pending returns with these ids.
    async fn returns(&mut self, ids: &[OrderId]) -> Result<Vec<PendingReturn>, LedgerError>;

    /// The transfers with these ids, and those of the item that are not done.
    async fn transfers(
        &mut self,
        item: &ItemId,
        ids: &[TransferId],
    ) -> Result<Vec<Transfer>, LedgerError>;
}

/// Rows of an item that are under repair with `token`.
pub(crate) struct OpenRepair<T> {
    transaction: T,
    item: Item,
    token: u64,
    rows: Vec<SegmentRow>,
    /// The rows after staging, so far.
    staged: HashMap<u16, SegmentRow>,
}

impl<T: Statements> OpenRepair<T> {
    /// Starts a repair of locked rows. It reads the item's fence without a lock, so that a newer
    /// token need not wait for this repair; the commit checks the fence again, under a lock.
    pub(crate) async fn new(
        transaction: T,
        item: (Item, u64),
        token: u64,
        rows: Vec<SegmentRow>,
    ) -> Result<Self, LedgerError> {
        let (item, fence) = item;
        if let Err(fenced) = check_fence(token, fence) {
            transaction.roll_back().await;
            return Err(fenced);
        }
        // Its segments are to stay as they are: gone.
        if item.state == ItemState::Archived {
            transaction.roll_back().await;
            return Err(superseded(item));
        }
        Ok(Self {
            transaction,
            item,
            token,
            rows,
            staged: HashMap::new(),
        })
    }

    fn row(&self, segment: &SegmentKey) -> Result<&SegmentRow, LedgerError> {
        self.rows
            .iter()
            .find(|row| row.key == *segment)
            .ok_or_else(|| LedgerError::Superseded(segment.clone()))
    }

    /// The rows to write. Every staged segment must be among `repaired`, because the transaction
    /// already contains its orders.
    fn moves(&self, repaired: &[Repaired]) -> Result<Vec<Move>, LedgerError> {
        let unset = self
            .staged
            .values()
            .find(|row| repaired.iter().all(|repaired| repaired.segment != row.key));
        if let Some(unset) = unset {
            return Err(LedgerError::Diverged(unset.key.clone()));
        }
        repaired
            .iter()
            .map(|repaired| self.moved(repaired))
            .collect()
    }

    fn moved(&self, repaired: &Repaired) -> Result<Move, LedgerError> {
        let before = self.row(&repaired.segment)?.clone();
        let after = self
            .staged
            .get(&repaired.segment.segment)
            .unwrap_or(&before)
            .clone();
        let after = SegmentRow {
            checkpoint: Some(repaired.checkpoint),
            anchor: Some(repaired.anchor),
            fence: self.token,
            ..after
        };
        Ok(Move { before, after })
    }

    async fn write(
        &mut self,
        repaired: &[Repaired],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError> {
        let moves = self.moves(repaired)?;
        recording::move_all(&mut self.transaction, &moves, &[]).await?;
        let (item, fence) = self
            .transaction
            .lock_item(&self.item.id)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        check_fence(self.token, fence)?;
        // The segments were configured with the item as it was claimed. Only its epoch matters: the
        // stock may have changed since, but segments do not store it.
        if item.epoch != self.item.epoch {
            return Err(superseded(item));
        }
        let changed = Item {
            epoch,
            version: item.version + 1,
            ..item.clone()
        };
        changes::item::write(&mut self.transaction, &item, &changed).await?;
        for entry in journal {
            self.transaction.note(entry).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<T: Statements + Sync> Repair for OpenRepair<T> {
    fn item(&self) -> &Item {
        &self.item
    }

    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn stage(
        &mut self,
        segment: &SegmentKey,
        entries: &[Entry],
    ) -> Result<(SegmentRow, Recorded), LedgerError> {
        let before = self
            .staged
            .get(&segment.segment)
            .map_or_else(|| self.row(segment), Ok)?
            .clone();
        // A failover may have lost counts, after which Redis let buyers exceed the limit.
        let (entries_of, shapes) = (
            std::iter::once((segment, entries)),
            Shapes::from([(self.item.id.clone(), Shape::of(&self.item))]),
        );
        let mut touched = recording::load_touched(
            &mut self.transaction,
            entries_of,
            &shapes,
            Watch::AllBuyers,
            Expected::Any,
        )
        .await?;
        let mut replayed = replay(&before, entries, &mut touched, ReplayMode::Lenient)?;
        let mut events = OrderEvents::default();
        recording::add_events(&mut events, &mut replayed);
        let recorded = recording::recorded_of(&before, replayed.clone());
        recording::write(
            &mut self.transaction,
            std::slice::from_ref(&recorded),
            touched.changes,
        )
        .await?;
        let events = events.into_events();
        if !events.is_empty() {
            self.transaction.add_events(&events).await?;
        }
        let after = SegmentRow {
            checkpoint: before.checkpoint,
            anchor: before.anchor,
            ..replayed.row
        };
        self.staged.insert(segment.segment, after.clone());
        Ok((after, recorded))
    }

    async fn memories_of(&mut self, orders: &[OrderId]) -> Result<Vec<Memory>, LedgerError> {
        let (transaction, ranges) = (&mut self.transaction, memory::ranges_of(orders));
        let orders = transaction.orders_in(&self.item.id, &ranges).await?;
        let returns = transaction
            .returns(&memory::ids_of_attempts(&orders))
            .await?;
        Ok(memory::memories(&orders, returns))
    }

    async fn transfers(&mut self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        self.transaction.transfers(&self.item.id, ids).await
    }

    async fn commit(
        mut self: Box<Self>,
        repaired: &[Repaired],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError> {
        let written = self.write(repaired, epoch, journal).await;
        end(self.transaction, written).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

fn superseded(item: Item) -> LedgerError {
    LedgerError::Superseded(SegmentKey {
        item: item.id,
        segment: 0,
    })
}
