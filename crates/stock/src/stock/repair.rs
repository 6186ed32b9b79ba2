//! Repair of a segment, and transfers between segments: the changes that a reconciler makes under
//! its fencing token.

use std::collections::HashMap;

use domain::{BuyerId, EntryId, Item, Memory, OrderId, SegmentKey, TransferId};
use redis::Value;

use super::Stock;
use crate::{
    StockError,
    decision::Decision,
    keys::{Keys, RELEASED_MARK},
    outbox,
    reply::ReplyReader,
    script::{self, Adjusted, Adjustment, Batch, OldMemory, Restored, RestoredDecision},
};

/// Values in one call of a script; Lua unpacks fewer than 8000.
const BATCH_MAX: usize = 1000;

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
    steps: u64,
    /// Units that have left by transfers that are still open.
    leaving: u64,
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
    fn leaving(&self) -> u64 {
        match self.moved {
            Some(Moved::Out(units)) if self.is_open => units,
            _ => 0,
        }
    }

    /// The record as it stands in Redis.
    fn field(&self) -> String {
        match self.moved {
            Some(Moved::Out(units)) => format!("O{units}"),
            Some(Moved::In(units)) => format!("I{units}"),
            None => String::new(),
        }
    }
}

/// Writes batch after batch. Each batch carries the number of those before it.
struct Writer<'a> {
    stock: &'a Stock,
    keys: &'a Keys,
    halted: &'a Halted,
    steps: u64,
}

impl Writer<'_> {
    async fn write(&mut self, restored: Restored<'_>) -> Result<(), StockError> {
        let batch = Batch {
            token: self.halted.token,
            last: self.halted.entry,
            step: self.steps + 1,
        };
        let shared = &self.stock.shared;
        let margin_ms = shared.settings.forget_margin_ms();
        script::restore_orders(&shared.connection, self.keys, batch, margin_ms, restored).await?;
        self.steps += 1;
        Ok(())
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
    /// caller has read `left` in a snapshot, and has seen afterwards that no transfer from the segment
    /// is open. Returns `false` if units have left since.
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

    /// Restores the memory of a segment that `halted` describes: decisions on the item's orders, the
    /// transfers that it made, and counts of the buyers whose home it is.
    pub async fn restore(
        &self,
        item: &Item,
        halted: &Halted,
        memories: &[Memory],
        transfers: &[TransferMemory],
    ) -> Result<Restoration, StockError> {
        let (segment, segments) = (halted.segment.segment, item.segments);
        let keys = Keys::of(&halted.segment);
        let mut writer = Writer {
            stock: self,
            keys: &keys,
            halted,
            steps: 0,
        };
        for decisions in decisions_of(memories, segment, segments).chunks(BATCH_MAX) {
            writer.write(Restored::Decisions(decisions)).await?;
        }
        let made: Vec<_> = transfers
            .iter()
            .map(|transfer| (transfer.id, transfer.field()))
            .collect();
        for transfers in made.chunks(BATCH_MAX) {
            writer.write(Restored::Transfers(transfers)).await?;
        }
        let mut counts = counts_of(memories, segment, segments);
        for (buyer, units) in self.unfinished_spillovers(&keys).await? {
            *counts.entry(buyer).or_default() += units;
        }
        let released = released_marks(memories, segment, segments);
        let counts: Vec<_> = counts
            .iter()
            .map(|(buyer, units)| (buyer.as_str(), *units))
            .chain(released.iter().map(|field| (&**field, 1)))
            .collect();
        for counts in counts.chunks(BATCH_MAX) {
            writer.write(Restored::Buyers(counts)).await?;
        }
        Ok(Restoration {
            steps: writer.steps,
            leaving: transfers.iter().map(TransferMemory::leaving).sum(),
        })
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

    /// Units of spillovers from this home that have not ended: they are counted, and no order has
    /// them yet. The segment is halted, so none of them ends meanwhile.
    async fn unfinished_spillovers(&self, keys: &Keys) -> Result<Vec<(BuyerId, u64)>, StockError> {
        let bulk = &self.shared.bulk;
        let mut list = redis::cmd("ZRANGE");
        list.arg(&keys.spillovers).arg(0).arg(-1);
        let mut list = ReplyReader::new(bulk.query::<Value>(&list).await?)?;
        let mut pending = Vec::new();
        while !list.is_empty() {
            // The placeholder that open_segment left is not a spillover.
            pending.extend(outbox::unpack(&list.bytes()?).map(|(order, _)| order));
        }
        let mut unfinished = Vec::new();
        for orders in pending.chunks(BATCH_MAX) {
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(&keys.decisions);
            for order in orders {
                cmd.arg(&order.id.as_bytes()[..]);
            }
            let stored: Vec<Option<Vec<u8>>> = bulk.query(&cmd).await?;
            for (order, stored) in orders.iter().zip(stored) {
                let decision = stored.as_deref().map(Decision::parse).transpose()?;
                if let Some(Decision::Declined { quantity, .. }) = decision {
                    unfinished.push((order.buyer.clone(), u64::from(quantity.get())));
                }
            }
        }
        Ok(unfinished)
    }
}

/// The decisions that the segment must have. It has given the units of some orders; for buyers whose
/// home it is, it also has the decisions on orders at other segments.
fn decisions_of(memories: &[Memory], segment: u16, segments: u16) -> Vec<RestoredDecision> {
    let mut decisions = Vec::new();
    for memory in memories {
        let is_home = memory.buyer.home(segments) == segment;
        let has_units = memory.segment == segment;
        let (id, quantity) = (memory.order.reacquire(memory.attempt), memory.quantity);
        let mut decide = |id: OrderId, decision: String| {
            let packed = is_home.then(|| outbox::pack(&id, &memory.buyer, quantity));
            decisions.push(RestoredDecision {
                id,
                decision,
                packed,
            });
        };
        if is_home {
            // Attempts that were released before the order reacquired its units.
            for attempt in 0..memory.attempt {
                decide(memory.order.reacquire(attempt), format!("R{quantity}:0"));
            }
        }
        match (has_units, is_home, memory.taken) {
            (true, _, true) => decide(id, format!("T{quantity}:{}", memory.expires_ms)),
            (false, true, true) => decide(
                id,
                format!("E{quantity}:{}:{}", memory.expires_ms, memory.segment),
            ),
            (true, _, false) | (false, true, false) => decide(id, format!("R{quantity}:0")),
            (false, false, _) => {}
        }
    }
    decisions
}

/// Units of the buyers whose home this is. A buyer who holds nothing any more has an entry too: the
/// segment may have another count.
fn counts_of(memories: &[Memory], segment: u16, segments: u16) -> HashMap<BuyerId, u64> {
    let mut counts = HashMap::new();
    for memory in memories
        .iter()
        .filter(|memory| memory.buyer.home(segments) == segment)
    {
        let count: &mut u64 = counts.entry(memory.buyer.clone()).or_default();
        *count += if memory.taken {
            u64::from(memory.quantity.get())
        } else {
            0
        };
    }
    counts
}

/// The marks of buyers whose home this is and who have released something.
fn released_marks(memories: &[Memory], segment: u16, segments: u16) -> Vec<String> {
    let released = memories
        .iter()
        .filter(|memory| !memory.taken || memory.attempt > 0);
    let at_home = released.filter(|memory| memory.buyer.home(segments) == segment);
    at_home
        .map(|memory| format!("{RELEASED_MARK}{}", memory.buyer))
        .collect()
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, Memory, OrderId, Quantity};

    use super::{counts_of, decisions_of, released_marks};

    fn memory(buyer: &str, segment: u16, attempt: u8, taken: bool) -> Memory {
        let order = OrderId::from_bytes([0x80 | segment.to_be_bytes()[1]; 16]).reacquire(0);
        Memory {
            order,
            attempt,
            segment,
            buyer: BuyerId::new(buyer).unwrap(),
            quantity: Quantity::ONE,
            expires_ms: 7,
            taken,
        }
    }

    /// A buyer whose home is `wanted` of four segments.
    fn buyer_at(wanted: u16) -> String {
        (0..)
            .map(|number| format!("buyer-{number}"))
            .find(|name| BuyerId::new(name).unwrap().home(4) == wanted)
            .unwrap()
    }

    fn texts(memories: &[Memory], segment: u16) -> Vec<String> {
        decisions_of(memories, segment, 4)
            .into_iter()
            .map(|restored| restored.decision)
            .collect()
    }

    #[test]
    fn the_segment_restores_the_taken_order_and_home_its_segment() {
        let memories = [memory(&buyer_at(1), 2, 0, true)];
        assert_eq!(texts(&memories, 2), ["T1:7"]);
        assert_eq!(texts(&memories, 1), ["E1:7:2"]);
        assert!(texts(&memories, 0).is_empty());
        assert_eq!(
            counts_of(&memories, 1, 4).into_values().collect::<Vec<_>>(),
            [1]
        );
        assert!(
            counts_of(&memories, 2, 4).is_empty(),
            "counted at home only"
        );
    }

    #[test]
    fn a_released_order_is_restored_as_released_everywhere() {
        let memories = [memory(&buyer_at(1), 2, 1, false)];
        assert_eq!(texts(&memories, 2), ["R1:0"]);
        assert_eq!(
            texts(&memories, 1),
            ["R1:0", "R1:0"],
            "the first attempt and the reacquisition"
        );
        assert_eq!(
            counts_of(&memories, 1, 4).into_values().collect::<Vec<_>>(),
            [0],
            "the count is 0"
        );
        assert_eq!(
            released_marks(&memories, 1, 4),
            [format!("\n{}", buyer_at(1))],
            "the mark stays"
        );
        assert!(released_marks(&memories, 2, 4).is_empty(), "at home only");
    }

    #[test]
    fn a_reacquisition_at_home_leaves_the_first_attempt_released() {
        let memories = [memory(&buyer_at(3), 3, 1, true)];
        assert_eq!(texts(&memories, 3), ["R1:0", "T1:7"]);
        assert_eq!(
            released_marks(&memories, 3, 4),
            [format!("\n{}", buyer_at(3))]
        );
    }
}
