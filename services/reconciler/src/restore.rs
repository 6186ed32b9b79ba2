//! Restores what halted segments must remember, in pages: each call is bounded, and so is the
//! memory that this process needs.
//!
//! Two passes. The first one reads the orders and transfers that the ledger has, without a
//! transaction. The second one runs in the transaction of the repair, and restores again what the
//! first may have missed: the orders of those buyers that the outboxes and the unfinished
//! spillovers name. Decisions are written by order and counts by buyer, so the later writing
//! counts.

use std::collections::{BTreeSet, HashMap};

use domain::{Change, Entry, Item, ItemId, Memory, OrderId, TransferId};
use futures::future::try_join_all;
use ledger::{Repair, Transfer, TransferState};
use stock::{Halted, Moved, Restoration, Restoring, StockError, TransferMemory};

use crate::{Reconciler, ReconcilerError};

/// The restoration of the segments of one item that are under repair.
pub(crate) struct Restore<'a> {
    reconciler: &'a Reconciler,
    item: ItemId,
    segments: u16,
    restoring: Vec<Restoring<'a>>,
}

impl<'a> Restore<'a> {
    pub(crate) fn new(reconciler: &'a Reconciler, item: &Item, halted: &[Halted]) -> Self {
        let restoring = halted
            .iter()
            .map(|halted| reconciler.stock.restoring(item, halted))
            .collect();
        Self {
            reconciler,
            item: item.id.clone(),
            segments: item.segments,
            restoring,
        }
    }

    /// Restores the orders and transfers that the ledger has.
    pub(crate) async fn recorded_orders(&mut self) -> Result<(), ReconcilerError> {
        let (ledger, page_size) = (
            &self.reconciler.ledger,
            self.reconciler.settings.repair_page,
        );
        let mut after = None;
        loop {
            let page = ledger.memories(&self.item, after, page_size).await?;
            self.add(&page.rows).await?;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut after = None;
        loop {
            let page = ledger.transfers_of(&self.item, after, page_size).await?;
            self.add_transfers(&page.rows).await?;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Restores what the staged entries have changed, and the counts of the buyers whose spillovers
    /// have not ended.
    pub(crate) async fn staged(
        &mut self,
        repair: &mut dyn Repair,
        entries: impl Iterator<Item = &Entry>,
    ) -> Result<(), ReconcilerError> {
        let page_size = self.reconciler.settings.repair_page;
        let (mut orders, transfers) = named_by(entries);
        let unfinished = self.restoring.iter_mut().map(Restoring::read_unfinished);
        orders.extend(try_join_all(unfinished).await?.into_iter().flatten());
        let orders = one_of_each_buyer(orders);
        for orders in orders.chunks(page_size) {
            let memories = repair.memories_of(orders).await?;
            self.add(&memories).await?;
        }
        for transfers in pages(&transfers, page_size) {
            let transfers = repair.transfers(transfers).await?;
            self.add_transfers(&transfers).await?;
        }
        Ok(())
    }

    /// Ends the restoration. The results are in the order of the halted segments.
    pub(crate) async fn finish(self) -> Result<Vec<Restoration>, StockError> {
        try_join_all(self.restoring.into_iter().map(Restoring::finish)).await
    }

    async fn add(&mut self, memories: &[Memory]) -> Result<(), StockError> {
        let mut by_segment = by_segment(memories, self.segments);
        let added = self.restoring.iter_mut().map(|restoring| {
            let memories = by_segment.remove(&restoring.segment()).unwrap_or_default();
            async move { restoring.add(&memories).await }
        });
        try_join_all(added).await.map(drop)
    }

    async fn add_transfers(&mut self, transfers: &[Transfer]) -> Result<(), StockError> {
        let added = self.restoring.iter_mut().map(|restoring| {
            let memories: Vec<_> = transfers
                .iter()
                .filter_map(|transfer| memory_of(transfer, restoring.segment()))
                .collect();
            async move { restoring.add_transfers(&memories).await }
        });
        try_join_all(added).await.map(drop)
    }
}

/// What each segment must remember: the segment of the attempt, and the buyer's home.
fn by_segment(memories: &[Memory], segments: u16) -> HashMap<u16, Vec<&Memory>> {
    let mut by_segment: HashMap<u16, Vec<&Memory>> = HashMap::new();
    for memory in memories {
        let home = memory.buyer.home(segments);
        by_segment.entry(home).or_default().push(memory);
        if memory.segment != home {
            by_segment.entry(memory.segment).or_default().push(memory);
        }
    }
    by_segment
}

/// The orders and transfers that the entries name.
fn named_by<'e>(entries: impl Iterator<Item = &'e Entry>) -> (Vec<OrderId>, Vec<TransferId>) {
    let (mut orders, mut transfers) = (Vec::new(), Vec::new());
    for entry in entries {
        match &entry.change {
            Change::Taken { orders: named, .. } | Change::Released { orders: named } => {
                orders.extend(named.iter().map(|order| order.id));
            }
            Change::TransferredOut(transfer) | Change::TransferredIn(transfer) => {
                transfers.push(transfer.id);
            }
            Change::Opened { .. }
            | Change::StateSet { .. }
            | Change::Halted { .. }
            | Change::Adjusted { .. } => {}
        }
    }
    (orders, transfers)
}

/// One order of each buyer, in the order of the buyers' ids.
fn one_of_each_buyer(orders: Vec<OrderId>) -> Vec<OrderId> {
    let firsts: BTreeSet<_> = orders
        .into_iter()
        .map(|order| order.buyers_range()[0])
        .collect();
    firsts.into_iter().collect()
}

/// The pages of a list; one that is empty has one page, too.
fn pages<T>(list: &[T], size: usize) -> impl Iterator<Item = &[T]> {
    let whole = list.is_empty().then_some(list);
    whole.into_iter().chain(list.chunks(size))
}

/// The transfer record that the segment must have, if it is one of the transfer's two ends.
fn memory_of(transfer: &Transfer, segment: u16) -> Option<TransferMemory> {
    let moved = if transfer.from == Some(segment) {
        (transfer.state != TransferState::Planned).then_some(Moved::Out(transfer.moved))
    } else if transfer.to == Some(segment) {
        (transfer.state == TransferState::Done).then_some(Moved::In(transfer.moved))
    } else {
        return None;
    };
    Some(TransferMemory {
        id: transfer.id,
        moved,
        is_open: transfer.state != TransferState::Done,
    })
}

#[cfg(test)]
mod tests {
    use domain::TransferId;
    use jiff::Timestamp;
    use ledger::{Transfer, TransferState};
    use stock::Moved;

    use super::memory_of;

    #[test]
    fn a_repaired_segment_has_the_ledger_state_of_its_transfers_only() {
        use TransferState::{Done, Out, Planned};
        let id = TransferId::from_bytes([1; 16]);
        let transfer = |state| Transfer {
            id,
            item: "vase".parse().unwrap(),
            from: Some(0),
            to: Some(1),
            quantity: 5,
            moved: 3,
            state,
            since: Timestamp::UNIX_EPOCH,
        };
        let at = |segment, state| memory_of(&transfer(state), segment).map(|memory| memory.moved);
        assert_eq!(
            [Planned, Out, Done].map(|state| at(0, state)),
            [
                Some(None),
                Some(Some(Moved::Out(3))),
                Some(Some(Moved::Out(3)))
            ]
        );
        assert_eq!(
            [Planned, Out, Done].map(|state| at(1, state)),
            [Some(None), Some(None), Some(Some(Moved::In(3)))]
        );
        assert_eq!(at(2, Done), None);
    }
}
