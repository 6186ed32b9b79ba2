//! Orders and carts that do not exist, so that a repeated look-up costs no store anything.
//!
//! A miss counts for [`LIFETIME`] and for one reader. What this process places ends it at once:
//! each id has a counter, which it shares with many others, and a miss counts only while its
//! counter stands where it stood before the stores were read. Another process may hide what was
//! placed here for [`LIFETIME`], from a reader who looked the same id up there before: the id
//! follows from a key that only its buyer knows, and a repeat of the request that placed it finds
//! it at once. A payment of an order or a cart, its return, and an admin's change ask the stores in
//! any case.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use domain::BuyerId;
use moka::sync::Cache;
use uuid::Uuid;

/// How long a miss counts.
const LIFETIME: Duration = Duration::from_millis(250);

/// A bound of memory: an attacker may name any id.
const MISSES_MAX: u64 = 10_000;

/// Counters of what was placed.
const COUNTERS: usize = 1 << 14;

/// What a moment ago did not exist.
pub(crate) struct Misses {
    /// The counter of the id when the stores were read.
    seen: Cache<(Uuid, Option<BuyerId>), u32>,
    placed: Box<[AtomicU32]>,
}

impl Default for Misses {
    fn default() -> Self {
        let seen = Cache::builder()
            .max_capacity(MISSES_MAX)
            .time_to_live(LIFETIME);
        Self {
            seen: seen.build(),
            placed: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Misses {
    /// Where the counter of the id stands. To be read before the stores.
    pub(crate) fn mark(&self, id: Uuid) -> u32 {
        self.counter(id).load(Ordering::SeqCst)
    }

    /// Whether the reader (`None`: one who may see all) has looked it up in vain a moment ago.
    pub(crate) fn has(&self, id: Uuid, reader: Option<&BuyerId>) -> bool {
        let seen = self.seen.get(&(id, reader.cloned()));
        seen.is_some_and(|mark| mark == self.mark(id))
    }

    /// Notes that it does not exist for the reader, by what was read after `mark`.
    pub(crate) fn note(&self, id: Uuid, reader: Option<&BuyerId>, mark: u32) {
        self.seen.insert((id, reader.cloned()), mark);
    }

    /// Notes that it exists from now on. To be called before anyone is told.
    pub(crate) fn end(&self, id: Uuid) {
        self.counter(id).fetch_add(1, Ordering::SeqCst);
    }

    /// The last bits of an id are those of a hash.
    fn counter(&self, id: Uuid) -> &AtomicU32 {
        let [.., high, low] = *id.as_bytes();
        &self.placed[usize::from(u16::from_be_bytes([high, low])) % COUNTERS]
    }
}

#[cfg(test)]
mod tests {
    use domain::BuyerId;
    use uuid::Uuid;

    use super::Misses;

    #[test]
    fn a_miss_counts_for_its_reader_until_the_id_is_placed() {
        let (misses, id) = (Misses::default(), Uuid::from_u128(7));
        let ann = BuyerId::new("ann").unwrap();
        let mark = misses.mark(id);
        assert!(!misses.has(id, Some(&ann)));
        misses.note(id, None, mark);
        assert!(!misses.has(id, Some(&ann)), "another reader");
        misses.end(id);
        assert!(!misses.has(id, None));
        misses.note(id, None, mark);
        assert!(!misses.has(id, None), "it was read before it was placed");
    }
}
