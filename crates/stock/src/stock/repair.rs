//! Repair of a segment, and transfers between segments: the changes that a reconciler makes under
//! its fencing token.

use domain::{EntryId, Item, Memory, SegmentKey, TransferId};

use super::{Stock, restoring::Restoring};
use crate::{
    StockError,
    keys::Keys,
    script::{self, Adjusted, Adjustment, OldMemory},
};

/// A segment that was halted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halted {
    /// The segment.
    pub segment: SegmentKey,
    /// The fencing token under which it was halted.
    pub token: u64,
    /// The entry of the halt. If it is not the last one, the segment has changed since.
    pub entry: EntryId,
}

/// What was restored to a halted segment. By default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restoration {
    pub(super) steps: u64,
    /// Units that have left by transfers that are still open.
    pub(super) leaving: u64,
}

/// What a segment must have stored of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferMemory {
    /// The transfer.
    pub id: TransferId,
    /// What it has moved here. `None`: nothing yet, and a record of the segment is removed.
    pub moved: Option<Moved>,
    /// Whether the ledger still waits for a step of it.
    pub is_open: bool,
}

/// Units that a transfer moved at a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// They left.
    Out(u64),
    /// They arrived.
    In(u64),
}

impl TransferMemory {
    /// Units that have left, and may not have arrived.
    pub(super) fn leaving(&self) -> u64 {
        match self.moved {
            Some(Moved::Out(units)) if self.is_open => units,
            _ => 0,
        }
    }

    /// The record as it stands in Redis.
    pub(super) fn field(&self) -> String {
        match self.moved {
            Some(Moved::Out(units)) => format!("O{units}"),
            Some(Moved::In(units)) => format!("I{units}"),
            None => String::new(),
        }
    }
}

impl Stock {
    /// Takes up to `requested` free units out of the segment. Returns how many. A repeat changes
    /// nothing.
    pub async fn transfer_out(
        &self,
        segment: &SegmentKey,
        id: TransferId,
        requested: u64,
        token: u64,
    ) -> Result<u64, StockError> {
        let (connection, keys) = (&self.shared.connection, Keys::of(segment));
        script::transfer_out(connection, &keys, id, requested, token).await
    }

    /// Puts units into the segment. A repeat changes nothing.
    pub async fn transfer_in(
        &self,
        segment: &SegmentKey,
        id: TransferId,
        units: u64,
        token: u64,
    ) -> Result<u64, StockError> {
        let (connection, keys) = (&self.shared.connection, Keys::of(segment));
        script::transfer_in(connection, &keys, id, units, token).await
    }

    /// Notes that all units that had left the segment up to the entry `left` have arrived. The
    /// caller has read `left` in a snapshot, and has seen afterwards that no transfer from the
    /// segment is open. Returns `false` if units have left since.
    pub async fn settle_transfers(
        &self,
        segment: &SegmentKey,
        left: EntryId,
    ) -> Result<bool, StockError> {
        script::settle_transfers(&self.shared.connection, &Keys::of(segment), left).await
    }

    /// Halts the segment: until it is adjusted it refuses every change. A segment that is gone is
    /// created empty.
    pub async fn halt(
        &self,
        segment: &SegmentKey,
        token: u64,
        memory: OldMemory,
    ) -> Result<Halted, StockError> {
        let keys = Keys::of(segment);
        let entry = script::halt_segment(&self.shared.connection, &keys, token, memory).await?;
        Ok(Halted {
            segment: segment.clone(),
            token,
            entry,
        })
    }

    /// Starts to restore the memory of a segment that `halted` describes: decisions on the item's
    /// orders, the transfers that it made, and counts of the buyers whose home it is.
    pub fn restoring(&self, item: &Item, halted: &Halted) -> Restoring<'_> {
        Restoring::new(self, item, halted)
    }

    /// Restores all memory of a segment in one call, for a caller that has all of it.
    pub async fn restore(
        &self,
        item: &Item,
        halted: &Halted,
        memories: &[Memory],
        transfers: &[TransferMemory],
    ) -> Result<Restoration, StockError> {
        let mut restoring = self.restoring(item, halted);
        restoring.read_unfinished().await?;
        let mut sorted: Vec<_> = memories.iter().collect();
        sorted.sort_by_key(|memory| memory.order);
        restoring.add(&sorted).await?;
        restoring.add_transfers(transfers).await?;
        restoring.finish().await
    }

    /// Sets a restored segment to the units that the ledger has for it, with the item's
    /// settings and a new epoch, and reopens it. Fails if the segment has changed since it was
    /// halted, or if a restored batch was lost.
    pub async fn adjust(
        &self,
        item: &Item,
        halted: &Halted,
        restoration: Restoration,
        available: u64,
        epoch: u64,
    ) -> Result<Adjusted, StockError> {
        let adjustment = Adjustment {
            token: halted.token,
            last: halted.entry,
            available,
            leaving: restoration.leaving,
            epoch,
            restored: restoration.steps,
            item,
        };
        let keys = Keys::of(&halted.segment);
        script::adjust(&self.shared.connection, &keys, &adjustment).await
    }
}
