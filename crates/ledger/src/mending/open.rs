//! Mending in an open transaction, the same for every database.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use domain::{Entry, Item, ItemId, Memory, Order, OrderId, SegmentKey, Units};

use super::{Mended, Mending};
use crate::{
    LedgerError, NewJournalEntry, PendingReturn, Recorded, SegmentRow, Transfer, changes,
    error::check_authority,
    limits::Watch,
    recording::{self, Expected, Move, Widths},
    replay::{Reading, replay},
    transaction::end,
};

/// The statements of a transaction that mends, besides those of recording.
#[async_trait]
pub(crate) trait Statements: recording::Statements + changes::item::Statements {
    /// Every order of the item.
    async fn orders(&mut self, item: &ItemId) -> Result<Vec<Order>, LedgerError>;

    /// Every pending return of the item.
    async fn returns(&mut self, item: &ItemId) -> Result<Vec<PendingReturn>, LedgerError>;

    /// Every transfer of the item, also those that are done.
    async fn transfers(&mut self, item: &ItemId) -> Result<Vec<Transfer>, LedgerError>;
}

/// Rows of an item that `token` mends.
pub(crate) struct OpenMending<T> {
    transaction: T,
    item: Item,
    token: u64,
    rows: Vec<SegmentRow>,
    /// What staging has made of the rows, so far.
    staged: HashMap<u16, SegmentRow>,
}

impl<T: Statements> OpenMending<T> {
    /// Of rows that are locked. The authority is looked at without a lock, so that a newer one need not wait for us; it is looked at again, and locked,
    /// by the commit.
    pub(crate) async fn new(
        transaction: T,
        item: (Item, u64),
        token: u64,
        rows: Vec<SegmentRow>,
    ) -> Result<Self, LedgerError> {
        let (item, fence) = item;
        if let Err(fenced) = check_authority(token, fence) {
            transaction.roll_back().await;
            return Err(fenced);
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

    /// The rows as they are to be. What was staged must be set too: its orders are in the transaction already.
    fn moves(&self, mended: &[Mended]) -> Result<Vec<Move>, LedgerError> {
        let unset = self
            .staged
            .values()
            .find(|row| mended.iter().all(|mended| mended.segment != row.key));
        if let Some(unset) = unset {
            return Err(LedgerError::Diverged(unset.key.clone()));
        }
        mended.iter().map(|mended| self.moved(mended)).collect()
    }

    fn moved(&self, mended: &Mended) -> Result<Move, LedgerError> {
        let before = self.row(&mended.segment)?.clone();
        let after = self
            .staged
            .get(&mended.segment.segment)
            .unwrap_or(&before)
            .clone();
        let after = SegmentRow {
            checkpoint: Some(mended.checkpoint),
            anchor: Some(mended.anchor),
            fence: self.token,
            ..after
        };
        Ok(Move { before, after })
    }

    async fn write(
        &mut self,
        mended: &[Mended],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError> {
        let moves = self.moves(mended)?;
        recording::move_all(&mut self.transaction, &moves).await?;
        let (item, fence) = self
            .transaction
            .lock_item(&self.item.id)
            .await?
            .ok_or(sqlx::Error::RowNotFound)?;
        check_authority(self.token, fence)?;
        // The segments were told what the item was when it was claimed. Its stock may have changed since, they do not know it.
        if item.epoch != self.item.epoch {
            return Err(LedgerError::Superseded(SegmentKey {
                item: item.id,
                segment: 0,
            }));
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
impl<T: Statements + Sync> Mending for OpenMending<T> {
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
        // A failover may have lost counts, so that Redis let buyers take more than they may.
        let (entries_of, widths) = (
            std::iter::once((segment, entries)),
            Widths::from([(self.item.id.clone(), self.item.segments)]),
        );
        let mut touched = recording::look(
            &mut self.transaction,
            entries_of,
            &widths,
            Watch::Everyone,
            Expected::Any,
        )
        .await?;
        let replayed = replay(&before, entries, &mut touched, Reading::WhatApplies)?;
        let recorded = recording::recorded_of(&before, replayed.clone());
        recording::write(
            &mut self.transaction,
            std::slice::from_ref(&recorded),
            touched.changes,
        )
        .await?;
        let after = SegmentRow {
            checkpoint: before.checkpoint,
            anchor: before.anchor,
            ..replayed.row
        };
        self.staged.insert(segment.segment, after.clone());
        Ok((after, recorded))
    }

    async fn memories(&mut self) -> Result<Vec<Memory>, LedgerError> {
        let orders = self.transaction.orders(&self.item.id).await?;
        let returns = self.transaction.returns(&self.item.id).await?;
        Ok(memories(&orders, returns))
    }

    async fn transfers(&mut self) -> Result<Vec<Transfer>, LedgerError> {
        self.transaction.transfers(&self.item.id).await
    }

    async fn commit(
        mut self: Box<Self>,
        mended: &[Mended],
        epoch: u64,
        journal: &[NewJournalEntry],
    ) -> Result<(), LedgerError> {
        let written = self.write(mended, epoch, journal).await;
        end(self.transaction, written).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

/// An order's latest attempt, and behind it those earlier ones whose return is still pending.
fn memories(orders: &[Order], returns: Vec<PendingReturn>) -> Vec<Memory> {
    let mut pending: BTreeMap<OrderId, Vec<PendingReturn>> = BTreeMap::new();
    for back in returns {
        pending.entry(back.id.first()).or_default().push(back);
    }
    let mut memories = Vec::with_capacity(orders.len());
    for order in orders {
        let mut latest = Memory {
            order: order.id,
            attempt: order.attempt,
            segment: order.segment,
            buyer: order.buyer.clone(),
            quantity: order.quantity,
            expires_ms: order.expires_at.as_millisecond(),
            taken: order.state.units() != Units::None,
        };
        let (current, earlier): (Vec<_>, Vec<_>) = pending
            .remove(&order.id)
            .unwrap_or_default()
            .into_iter()
            .partition(|back| back.id.attempt() == order.attempt);
        latest.taken |= !current.is_empty();
        let earlier = earlier.into_iter().map(|back| Memory {
            attempt: back.id.attempt(),
            segment: back.segment.segment,
            quantity: back.quantity,
            taken: true,
            ..latest.clone()
        });
        let earlier: Vec<_> = earlier.collect();
        memories.push(latest);
        memories.extend(earlier);
    }
    memories
}
