//! Making a segment agree with the ledger again, and moving units between segments: what a reconciler does to segments, under its fencing token.

use std::collections::HashMap;

use domain::{BuyerId, EntryId, Item, Memory, OrderId, SegmentKey, TransferId};
use redis::Value;

use crate::{
    Adjusted, Answer, Stock, StockError,
    keys::{GAVE_BACK, Keys},
    outbox,
    reply::Reply,
    script::{self, Adjustment, Batch, Restored, RestoredAnswer},
};

/// Values in one call of a script; Lua unpacks fewer than 8000.
const AT_ONCE: usize = 1000;

/// A segment that was halted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halted {
    /// Which.
    pub segment: SegmentKey,
    /// Under which fencing token.
    pub token: u64,
    /// The entry that says so. If it is not the last one, something came in between.
    pub entry: EntryId,
}

/// What was given back to a halted segment. By default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restoration {
    steps: u64,
}

/// What a segment must remember of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferMemory {
    /// Which.
    pub id: TransferId,
    /// What it has moved here. `None`: nothing yet, whatever the segment thinks.
    pub moved: Option<Moved>,
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
    /// As it stands in Redis.
    fn field(&self) -> String {
        match self.moved {
            Some(Moved::Out(units)) => format!("O{units}"),
            Some(Moved::In(units)) => format!("I{units}"),
            None => String::new(),
        }
    }
}

/// Writes batch after batch, each of which knows how many there were before it.
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
        script::restore_orders(
            self.stock.connection(),
            self.keys,
            batch,
            self.stock.margin_ms(),
            restored,
        )
        .await?;
        self.steps += 1;
        Ok(())
    }
}

impl Stock {
    /// Takes as many of `asked` units out of the segment as nobody has, and says how many that were. A repeat changes nothing.
    pub async fn transfer_out(
        &self,
        segment: &SegmentKey,
        id: TransferId,
        asked: u64,
        token: u64,
    ) -> Result<u64, StockError> {
        script::transfer_out(self.connection(), &Keys::of(segment), id, asked, token).await
    }

    /// Puts units into the segment. A repeat changes nothing.
    pub async fn transfer_in(
        &self,
        segment: &SegmentKey,
        id: TransferId,
        units: u64,
        token: u64,
    ) -> Result<u64, StockError> {
        script::transfer_in(self.connection(), &Keys::of(segment), id, units, token).await
    }

    /// Halts the segment: until it is adjusted it refuses everything that would change it. If it is gone it is made anew, empty.
    pub async fn halt(&self, segment: &SegmentKey, token: u64) -> Result<Halted, StockError> {
        let entry = script::halt_segment(self.connection(), &Keys::of(segment), token).await?;
        Ok(Halted {
            segment: segment.clone(),
            token,
            entry,
        })
    }

    /// Gives a segment that was halted by the entry `last` back what it must remember: answers to the item's orders, which transfers it made, and
    /// counts of the buyers whose home it is.
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
        for answers in answers_of(memories, segment, segments).chunks(AT_ONCE) {
            writer.write(Restored::Answers(answers)).await?;
        }
        let made: Vec<_> = transfers
            .iter()
            .map(|transfer| (transfer.id, transfer.field()))
            .collect();
        for transfers in made.chunks(AT_ONCE) {
            writer.write(Restored::Transfers(transfers)).await?;
        }
        let mut counts = counts_of(memories, segment, segments);
        for (buyer, units) in self.unfinished_walks(&keys).await? {
            *counts.entry(buyer).or_default() += units;
        }
        let gave_back = gave_back(memories, segment, segments);
        let counts: Vec<_> = counts
            .iter()
            .map(|(buyer, units)| (buyer.as_str(), *units))
            .chain(gave_back.iter().map(|field| (&**field, 1)))
            .collect();
        for counts in counts.chunks(AT_ONCE) {
            writer.write(Restored::Buyers(counts)).await?;
        }
        Ok(Restoration {
            steps: writer.steps,
        })
    }

    /// Sets a restored segment to what the ledger says is available there, with the item's settings and a new epoch, and opens it again; if nothing
    /// came in since it was halted, and nothing of what was restored was lost.
    pub async fn adjust(
        &self,
        item: &Item,
        halted: &Halted,
        restoration: Restoration,
        available: u64,
        epoch: u64,
    ) -> Result<Adjusted, StockError> {
        let Halted {
            segment,
            token,
            entry,
        } = halted;
        let adjustment = Adjustment {
            token: *token,
            last: *entry,
            available,
            epoch,
            restored: restoration.steps,
            item,
        };
        script::adjust(self.connection(), &Keys::of(segment), &adjustment).await
    }

    /// Units of the walks from this home that have not ended: they are counted, and no order has them yet. The segment is halted, so none of
    /// them ends meanwhile.
    async fn unfinished_walks(&self, keys: &Keys) -> Result<Vec<(BuyerId, u64)>, StockError> {
        let mut list = redis::cmd("ZRANGE");
        list.arg(&keys.walks).arg(0).arg(-1);
        let mut list = Reply::new(self.bulk().query::<Value>(&list).await?)?;
        let mut walks = Vec::new();
        while !list.is_empty() {
            // The placeholder that open_segment left is no walk.
            walks.extend(outbox::unpack(&list.bytes()?).map(|(order, _)| order));
        }
        let mut unfinished = Vec::new();
        for walks in walks.chunks(AT_ONCE) {
            let mut answers = redis::cmd("HMGET");
            answers.arg(&keys.answers);
            for walk in walks {
                answers.arg(&walk.id.as_bytes()[..]);
            }
            let answers: Vec<Option<Vec<u8>>> = self.bulk().query(&answers).await?;
            for (walk, answer) in walks.iter().zip(answers) {
                if let Some(Answer::Passed { quantity, .. }) =
                    answer.as_deref().map(Answer::parse).transpose()?
                {
                    unfinished.push((walk.buyer.clone(), u64::from(quantity.get())));
                }
            }
        }
        Ok(unfinished)
    }
}

/// What the segment has to answer, by id. It has the units of some orders; of those whose buyers are at home here it also answers for the others.
fn answers_of(memories: &[Memory], segment: u16, segments: u16) -> Vec<RestoredAnswer> {
    let mut answers = Vec::new();
    for memory in memories {
        let is_home = memory.buyer.home(segments) == segment;
        let has_units = memory.segment == segment;
        let (id, quantity) = (memory.order.retake(memory.attempt), memory.quantity);
        let mut answer = |id: OrderId, answer: String| {
            let packed = is_home.then(|| outbox::pack(&id, &memory.buyer, quantity));
            answers.push(RestoredAnswer { id, answer, packed });
        };
        if is_home {
            // What was given back before it was taken anew.
            (0..memory.attempt)
                .for_each(|attempt| answer(memory.order.retake(attempt), format!("R{quantity}:0")));
        }
        match (has_units, is_home, memory.taken) {
            (true, _, true) => answer(id, format!("T{quantity}:{}", memory.expires_ms)),
            (false, true, true) => answer(
                id,
                format!("E{quantity}:{}:{}", memory.expires_ms, memory.segment),
            ),
            (true, _, false) | (false, true, false) => answer(id, format!("R{quantity}:0")),
            (false, false, _) => {}
        }
    }
    answers
}

/// What the buyers who are at home here have. A buyer who has nothing any more is named too: the segment may think otherwise.
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

/// What marks the buyers at home here who gave something back.
fn gave_back(memories: &[Memory], segment: u16, segments: u16) -> Vec<String> {
    let given_back = memories
        .iter()
        .filter(|memory| !memory.taken || memory.attempt > 0);
    let at_home = given_back.filter(|memory| memory.buyer.home(segments) == segment);
    at_home
        .map(|memory| format!("{GAVE_BACK}{}", memory.buyer))
        .collect()
}

#[cfg(test)]
mod tests {
    use domain::{BuyerId, Memory, OrderId, Quantity};

    use super::{answers_of, counts_of, gave_back};
    use crate::item::home;

    fn memory(buyer: &str, segment: u16, attempt: u8, taken: bool) -> Memory {
        let order = OrderId::from_bytes([0x80 | segment.to_be_bytes()[1]; 16]).retake(0);
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
    fn buyer_at(wanted: usize) -> String {
        (0..)
            .map(|number| format!("buyer-{number}"))
            .find(|name| home(&BuyerId::new(name).unwrap(), 4) == wanted)
            .unwrap()
    }

    fn texts(memories: &[Memory], segment: u16) -> Vec<String> {
        answers_of(memories, segment, 4)
            .into_iter()
            .map(|restored| restored.answer)
            .collect()
    }

    #[test]
    fn the_segment_has_the_units_and_home_knows_who_has() {
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
    fn what_was_given_back_is_never_taken_again() {
        let memories = [memory(&buyer_at(1), 2, 1, false)];
        assert_eq!(texts(&memories, 2), ["R1:0"]);
        assert_eq!(
            texts(&memories, 1),
            ["R1:0", "R1:0"],
            "the first attempt and the retake"
        );
        assert_eq!(
            counts_of(&memories, 1, 4).into_values().collect::<Vec<_>>(),
            [0],
            "and the count is none"
        );
        assert_eq!(
            gave_back(&memories, 1, 4),
            [format!("\n{}", buyer_at(1))],
            "but the answer is not"
        );
        assert!(gave_back(&memories, 2, 4).is_empty(), "at home only");
    }

    #[test]
    fn a_retake_at_home_leaves_the_first_attempt_released() {
        let memories = [memory(&buyer_at(3), 3, 1, true)];
        assert_eq!(texts(&memories, 3), ["R1:0", "T1:7"]);
        assert_eq!(gave_back(&memories, 3, 4), [format!("\n{}", buyer_at(3))]);
    }
}
