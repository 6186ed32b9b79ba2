//! Restores the memory of a halted segment in steps: a segment may have more orders than fit into
//! memory, or into one call.
//!
//! The orders come sorted by id. The orders of a buyer then follow each other, so that a count is
//! known, and is written, as soon as the orders of another buyer begin.

use std::collections::{BTreeMap, HashMap};

use domain::{BuyerId, EntryId, Item, Memory, OrderId, TransferId};
use redis::Value;

use super::{Halted, Restoration, Stock, TransferMemory};
use crate::{
    StockError,
    decision::Decision,
    keys::{Keys, RELEASED_MARK},
    outbox,
    reply::ReplyReader,
    script::{self, Batch, Restored, RestoredDecision},
};

/// Values in one call of a script; Lua unpacks fewer than 8000.
const BATCH_MAX: usize = 1000;

/// A halted segment whose memory is being restored. Each batch that is written carries the number
/// of those before it, so a batch that a failover has lost is noticed.
pub struct Restoring<'a> {
    stock: &'a Stock,
    keys: Keys,
    segment: u16,
    segments: u16,
    token: u64,
    entry: EntryId,
    steps: u64,
    /// Units that have left, by transfer.
    leaving: HashMap<TransferId, u64>,
    counts: Counts,
    /// Pending spillovers from this home, by buyer: their units are counted, and no order has them.
    unfinished: HashMap<BuyerId, Vec<(OrderId, u64)>>,
}

impl<'a> Restoring<'a> {
    pub(super) fn new(stock: &'a Stock, item: &Item, halted: &Halted) -> Self {
        Self {
            stock,
            keys: Keys::of(&halted.segment),
            segment: halted.segment.segment,
            segments: item.segments,
            token: halted.token,
            entry: halted.entry,
            steps: 0,
            leaving: HashMap::new(),
            counts: Counts::default(),
            unfinished: HashMap::new(),
        }
    }

    /// Number of the segment.
    pub fn segment(&self) -> u16 {
        self.segment
    }

    /// Restores the decisions on these orders, sorted by id, and the counts of their buyers, if all
    /// orders of the buyers are among those added since the last other buyer. Orders can be added
    /// again. Orders of which the segment has to remember nothing are skipped.
    pub async fn add(&mut self, memories: &[&Memory]) -> Result<(), StockError> {
        for decisions in decisions_of(memories, self.segment, self.segments).chunks(BATCH_MAX) {
            self.write(Restored::Decisions(decisions)).await?;
        }
        for memory in memories {
            if memory.buyer.home(self.segments) == self.segment {
                self.counts.add(memory, &mut self.unfinished);
            }
        }
        self.write_counts(BATCH_MAX).await
    }

    /// Restores what the segment has moved by these transfers. Transfers can be added again.
    pub async fn add_transfers(&mut self, transfers: &[TransferMemory]) -> Result<(), StockError> {
        let made: Vec<_> = transfers
            .iter()
            .map(|transfer| (transfer.id, transfer.field()))
            .collect();
        for transfers in made.chunks(BATCH_MAX) {
            self.write(Restored::Transfers(transfers)).await?;
        }
        for transfer in transfers {
            // A transfer may have been open when it was added before.
            match transfer.leaving() {
                0 => self.leaving.remove(&transfer.id),
                units => self.leaving.insert(transfer.id, units),
            };
        }
        Ok(())
    }

    /// Reads the spillovers from this home that have not ended, and returns their orders. The
    /// segment is halted, so none of them ends meanwhile. From then on the counts of their buyers
    /// include their units. All orders of these buyers have to be added, again if they were added
    /// before.
    pub async fn read_unfinished(&mut self) -> Result<Vec<OrderId>, StockError> {
        self.counts.close(&mut self.unfinished);
        self.unfinished.clear();
        let mut orders = Vec::new();
        for (id, buyer, units) in unfinished_spillovers(self.stock, &self.keys).await? {
            orders.push(id);
            self.unfinished.entry(buyer).or_default().push((id, units));
        }
        Ok(orders)
    }

    /// Writes what is left.
    pub async fn finish(mut self) -> Result<Restoration, StockError> {
        self.counts.close(&mut self.unfinished);
        for (buyer, spillovers) in std::mem::take(&mut self.unfinished) {
            let units = spillovers.iter().map(|(_, units)| units).sum();
            self.counts.known.push((buyer.as_str().into(), units));
        }
        self.write_counts(1).await?;
        Ok(Restoration {
            steps: self.steps,
            leaving: self.leaving.values().sum(),
        })
    }

    /// Writes the known counts if there are at least so many.
    async fn write_counts(&mut self, at_least: usize) -> Result<(), StockError> {
        if self.counts.known.len() < at_least {
            return Ok(());
        }
        let known = std::mem::take(&mut self.counts.known);
        let known: Vec<_> = known
            .iter()
            .map(|(field, units)| (field.as_str(), *units))
            .collect();
        for counts in known.chunks(BATCH_MAX) {
            self.write(Restored::Buyers(counts)).await?;
        }
        Ok(())
    }

    async fn write(&mut self, restored: Restored<'_>) -> Result<(), StockError> {
        let batch = Batch {
            token: self.token,
            last: self.entry,
            step: self.steps + 1,
        };
        let shared = &self.stock.shared;
        let margin_ms = shared.settings.forget_margin_ms();
        script::restore_orders(&shared.connection, &self.keys, batch, margin_ms, restored).await?;
        self.steps += 1;
        Ok(())
    }
}

/// Units of the buyers whose home this is. A buyer who holds nothing any more has an entry too: the
/// segment may have another count.
#[derive(Default)]
struct Counts {
    /// The first bytes of the ids of those buyers whose orders are being added. Seldom more than
    /// one.
    prefix: [u8; 8],
    open: BTreeMap<BuyerId, Count>,
    /// Fields of `buyers` to write.
    known: Vec<(String, u64)>,
}

#[derive(Default)]
struct Count {
    units: u64,
    has_released: bool,
}

impl Counts {
    /// Counts an order. An order that the ledger has is no unfinished spillover: its decision was
    /// restored.
    fn add(&mut self, memory: &Memory, unfinished: &mut HashMap<BuyerId, Vec<(OrderId, u64)>>) {
        let [first, _] = memory.order.buyers_range();
        if !first.as_bytes().starts_with(&self.prefix) {
            self.close(unfinished);
            self.prefix.copy_from_slice(&first.as_bytes()[..8]);
        }
        let count = self.open.entry(memory.buyer.clone()).or_default();
        if memory.taken {
            count.units += u64::from(memory.quantity.get());
        }
        count.has_released |= !memory.taken || memory.attempt > 0;
        if let Some(spillovers) = unfinished.get_mut(&memory.buyer) {
            let known = memory.order.reacquire(memory.attempt);
            spillovers.retain(|(id, _)| *id != known);
        }
    }

    /// The orders of these buyers have all been added.
    fn close(&mut self, unfinished: &mut HashMap<BuyerId, Vec<(OrderId, u64)>>) {
        for (buyer, count) in std::mem::take(&mut self.open) {
            let spillovers = unfinished.remove(&buyer).unwrap_or_default();
            let waiting: u64 = spillovers.iter().map(|(_, units)| units).sum();
            if count.has_released {
                self.known.push((format!("{RELEASED_MARK}{buyer}"), 1));
            }
            self.known
                .push((buyer.as_str().into(), count.units + waiting));
        }
    }
}

/// Spillovers from this home that have not ended: order, buyer and units.
async fn unfinished_spillovers(
    stock: &Stock,
    keys: &Keys,
) -> Result<Vec<(OrderId, BuyerId, u64)>, StockError> {
    let bulk = &stock.shared.bulk;
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
                let units = u64::from(quantity.get());
                unfinished.push((order.id, order.buyer.clone(), units));
            }
        }
    }
    Ok(unfinished)
}

/// The decisions that the segment must have. It has given the units of some orders; for buyers
/// whose home it is, it also has the decisions on orders at other segments.
fn decisions_of(memories: &[&Memory], segment: u16, segments: u16) -> Vec<RestoredDecision> {
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use domain::{BuyerId, Memory, OrderId, Quantity};

    use super::{Counts, decisions_of};

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

    fn counts(memories: &[Memory]) -> Vec<(String, u64)> {
        let (mut counts, mut none) = (Counts::default(), HashMap::new());
        memories
            .iter()
            .for_each(|memory| counts.add(memory, &mut none));
        counts.close(&mut none);
        counts.known
    }

    /// A buyer whose home is `wanted` of four segments.
    fn buyer_at(wanted: u16) -> String {
        (0..)
            .map(|number| format!("buyer-{number}"))
            .find(|name| BuyerId::new(name).unwrap().home(4) == wanted)
            .unwrap()
    }

    fn texts(memories: &[Memory], segment: u16) -> Vec<String> {
        let memories: Vec<_> = memories.iter().collect();
        decisions_of(&memories, segment, 4)
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
        assert_eq!(counts(&memories), [(buyer_at(1), 1)]);
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
            counts(&memories),
            [(format!("\n{}", buyer_at(1)), 1), (buyer_at(1), 0)],
            "the count is 0, and the mark stays"
        );
    }

    #[test]
    fn a_reacquisition_at_home_leaves_the_first_attempt_released() {
        let memories = [memory(&buyer_at(3), 3, 1, true)];
        assert_eq!(texts(&memories, 3), ["R1:0", "T1:7"]);
        assert_eq!(
            counts(&memories),
            [(format!("\n{}", buyer_at(3)), 1), (buyer_at(3), 1)]
        );
    }

    #[test]
    fn orders_of_a_buyer_that_come_in_two_pages_are_one_count() {
        let order = |id: u8, buyer: &str| {
            let mut bytes = [0x80; 16];
            (bytes[0], bytes[15]) = (u8::from(buyer == "bob"), id);
            Memory {
                order: OrderId::from_bytes(bytes),
                ..memory(buyer, 0, 0, true)
            }
        };
        let (mut counts, mut none) = (Counts::default(), HashMap::new());
        for page in [
            vec![order(1, "ann")],
            vec![order(2, "ann"), order(3, "bob")],
        ] {
            page.iter().for_each(|memory| counts.add(memory, &mut none));
        }
        assert_eq!(counts.known, [("ann".into(), 2)], "bob may have more");
        counts.close(&mut none);
        assert_eq!(counts.known, [("ann".into(), 2), ("bob".into(), 1)]);
    }

    #[test]
    fn an_unfinished_spillover_is_counted_until_the_ledger_has_its_order() {
        let taken = memory("ann", 0, 0, true);
        let other = OrderId::from_bytes([0x8f; 16]);
        let waiting = vec![(taken.order, 1), (other, 3)];
        let mut unfinished = HashMap::from([(taken.buyer.clone(), waiting)]);
        let mut counts = Counts::default();
        counts.add(&taken, &mut unfinished);
        counts.close(&mut unfinished);
        assert_eq!(counts.known, [("ann".into(), 1 + 3)]);
        assert!(unfinished.is_empty());
    }
}
