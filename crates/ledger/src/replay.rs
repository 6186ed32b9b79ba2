//! Replay: how a segment's row follows from its entries.
//!
//! This is pure arithmetic, the same for every database. Three rules are easy to get wrong. A
//! repeat changes nothing, wherever it occurs: an order that exists, a return that is not pending,
//! a transfer that has progressed further. An order that the row cannot cover does not stop those
//! behind it: it is rejected, and a smaller one may still be held. An order whose units are taken
//! again ([`OrderId::reacquire`]) is not a new order: the old one becomes `held` again if it is
//! still `expired`. If it has moved to another state, the units go straight back.

use domain::{Change, Entry, OrderId, OrderState, SegmentKey, TakenOrder, Transferred};
use jiff::Timestamp;

use crate::{
    LedgerError, PendingReturn, SegmentRow, TransferState, convert::signed,
    statements::ReacquiredOrder, touched::Touched,
};

/// Result of replaying entries over a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// The row after the last entry. Its version is still the old one.
    pub row: SegmentRow,
    /// Number of orders that now hold units.
    pub held: usize,
    /// These orders, by their own ids.
    pub held_orders: Vec<OrderId>,
    /// Orders, and reacquisitions of orders, that the row could not cover.
    pub rejected: Vec<OrderId>,
    /// Number of orders and reacquisitions that the ledger already had.
    pub repeated: usize,
    /// Number of orders whose units came back.
    pub returned: usize,
    /// Number of transfers that left or arrived.
    pub transferred: usize,
}

/// Treatment of entries that do not follow from the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayMode {
    /// The history has diverged: the replay fails.
    Strict,
    /// The history is known to have diverged: apply what still applies, skip the rest.
    Lenient,
}

/// Properties that the orders of a batch share.
#[derive(Clone, Copy)]
struct Taken {
    /// When the batch was taken, by the outbox's clock.
    at_ms: i64,
    expires_at: Timestamp,
}

/// Applies the entries to the row and to the other rows that they touch.
pub(crate) fn replay(
    row: &SegmentRow,
    entries: &[Entry],
    touched: &mut Touched,
    mode: ReplayMode,
) -> Result<Replayed, LedgerError> {
    let mut replayed = Replayed {
        row: row.clone(),
        held: 0,
        held_orders: Vec::new(),
        rejected: Vec::new(),
        repeated: 0,
        returned: 0,
        transferred: 0,
    };
    for entry in entries {
        if mode == ReplayMode::Strict && !replayed.is_followed_by(entry) {
            return Err(LedgerError::Diverged(row.key.clone()));
        }
        if !replayed.apply(entry, touched, mode) {
            return Err(LedgerError::Diverged(row.key.clone()));
        }
        replayed.row.checkpoint = Some(entry.id);
        replayed.row.anchor = Some(entry.fingerprint);
    }
    Ok(replayed)
}

impl Replayed {
    /// A row starts with the entry that opened its segment with the allocated units. Ids rise from
    /// there on.
    fn is_followed_by(&self, entry: &Entry) -> bool {
        match (&entry.change, self.row.checkpoint) {
            (Change::Opened { units, .. }, None) => *units == self.row.allocated,
            (Change::Opened { .. }, Some(_)) | (_, None) => false,
            (_, Some(checkpoint)) => entry.id > checkpoint,
        }
    }

    /// Applies one entry. Returns `false` if the row contradicts it.
    fn apply(&mut self, entry: &Entry, touched: &mut Touched, mode: ReplayMode) -> bool {
        match &entry.change {
            Change::Taken {
                expires_at, orders, ..
            } => {
                let taken = Taken {
                    at_ms: signed(entry.id.ms),
                    expires_at: *expires_at,
                };
                for order in orders {
                    self.take(order, taken, touched);
                }
                true
            }
            Change::Released { orders } => {
                for order in orders {
                    self.release(order.id, touched);
                }
                true
            }
            Change::TransferredOut(transferred) => self.transfer_out(transferred, touched, mode),
            Change::TransferredIn(transferred) => self.transfer_in(transferred, touched, mode),
            Change::Adjusted { units, .. } => {
                *units == self.row.available || mode == ReplayMode::Lenient
            }
            Change::Opened { .. } | Change::StateSet { .. } | Change::Halted { .. } => true,
        }
    }

    fn take(&mut self, order: &TakenOrder, taken: Taken, touched: &mut Touched) {
        if order.id.attempt() > 0 {
            self.reacquire(order, taken, touched);
        } else if !touched.orders.insert(order.id) {
            self.repeated += 1;
        } else if !self.hold(order, order.quantity.get().into(), taken, touched) {
            self.rejected.push(order.id);
        }
    }

    /// Holds the units, if the row covers them and the limit allows them.
    fn hold(
        &mut self,
        order: &TakenOrder,
        units: u64,
        taken: Taken,
        touched: &mut Touched,
    ) -> bool {
        let holds = touched.allows(&self.row.key.item, &order.buyer, units, taken.at_ms)
            && self.cover(units);
        if holds {
            touched.count(&self.row.key.item, &order.buyer, units);
            self.row.held += units;
            self.held += 1;
            self.held_orders.push(order.id.first());
        }
        holds
    }

    /// Subtracts the units from the available ones, if there are enough.
    fn cover(&mut self, units: u64) -> bool {
        let left = self.row.available.checked_sub(units);
        self.row.available = left.unwrap_or(self.row.available);
        left.is_some()
    }

    /// A reacquisition changes nothing if the order still has its units, has already reached this
    /// attempt, or is unknown. Otherwise the attempt is used up, whatever its outcome, and never
    /// counts again.
    fn reacquire(&mut self, take: &TakenOrder, taken: Taken, touched: &mut Touched) {
        let attempt = take.id.attempt();
        let known = touched
            .reacquired
            .get(&take.id.first())
            .filter(|order| order.may_be_reacquired(attempt));
        let Some(mut order) = known.cloned() else {
            self.repeated += 1;
            return;
        };
        let units = order.quantity.get().into();
        (order.attempt, order.segment) = (attempt, self.row.key.segment);
        if order.state == OrderState::Expired {
            if self.hold(take, units, taken, touched) {
                (order.state, order.expires_ms) =
                    (OrderState::Held, taken.expires_at.as_millisecond());
            } else {
                self.rejected.push(take.id);
            }
        } else if self.cover(units) {
            self.row.returning += units;
            touched
                .changes
                .returns
                .insert(take.id, order.pending_return(&self.row.key, take));
        } else {
            self.rejected.push(take.id);
        }
        touched.reacquired.insert(order.id, order.clone());
        touched.changes.reacquired.insert(order.id, order);
    }

    fn release(&mut self, id: OrderId, touched: &mut Touched) {
        let here = touched
            .returns
            .get(&id)
            .is_some_and(|pending| pending.segment == self.row.key);
        let pending = if here {
            touched.returns.remove(&id)
        } else {
            None
        };
        if let Some(pending) = pending {
            let units = u64::from(pending.quantity.get());
            self.row.returning = self.row.returning.saturating_sub(units);
            self.row.available += units;
            self.returned += 1;
        }
    }

    fn transfer_out(
        &mut self,
        transferred: &Transferred,
        touched: &mut Touched,
        mode: ReplayMode,
    ) -> bool {
        let planned = touched.transfers.get_mut(&transferred.id);
        let Some(transfer) = planned.filter(|transfer| {
            transfer.state == TransferState::Planned && self.is_at(&transfer.item, transfer.from)
        }) else {
            return true;
        };
        // The segment has already given the units. Units that the row does not have are not moved
        // on.
        let moved = transferred
            .units
            .min(self.row.available)
            .min(transfer.quantity);
        if moved != transferred.units && mode == ReplayMode::Strict {
            return false;
        }
        (transfer.state, transfer.moved) = (TransferState::Out, moved);
        self.row.available -= moved;
        self.row.allocated -= moved;
        self.transferred += 1;
        touched
            .changes
            .transfers
            .insert(transfer.id, transfer.clone());
        true
    }

    fn transfer_in(
        &mut self,
        transferred: &Transferred,
        touched: &mut Touched,
        mode: ReplayMode,
    ) -> bool {
        let out = touched.transfers.get_mut(&transferred.id);
        let Some(transfer) = out.filter(|transfer| {
            transfer.state == TransferState::Out && self.is_at(&transfer.item, transfer.to)
        }) else {
            return true;
        };
        if transfer.moved != transferred.units && mode == ReplayMode::Strict {
            return false;
        }
        transfer.state = TransferState::Done;
        self.row.available += transfer.moved;
        self.row.allocated += transfer.moved;
        self.transferred += 1;
        touched
            .changes
            .transfers
            .insert(transfer.id, transfer.clone());
        true
    }

    fn is_at(&self, item: &domain::ItemId, segment: Option<u16>) -> bool {
        self.row.key.item == *item && segment == Some(self.row.key.segment)
    }
}

impl ReacquiredOrder {
    fn may_be_reacquired(&self, attempt: u8) -> bool {
        self.attempt < attempt && self.state.units() == domain::Units::None
    }

    fn pending_return(&self, segment: &SegmentKey, take: &TakenOrder) -> PendingReturn {
        PendingReturn {
            id: take.id,
            segment: segment.clone(),
            buyer: take.buyer.clone(),
            quantity: self.quantity,
        }
    }
}

#[cfg(test)]
mod tests;
