//! The buyers who hold units of a sold-out item or have released some. Such a buyer may be
//! repeating an order, whose decision is in Redis; every other buyer may be refused without asking.

use std::{
    collections::HashSet,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Buyers that were looked up and have nothing: a bound of memory. Above it each is looked up
/// again.
const STRANGERS_MAX: usize = 1_000_000;

/// What is known of an item's buyers, at one state of its segments. Stable hashes stand for them.
#[derive(Debug, Default)]
pub(crate) struct Buyers {
    /// All buyers who have something. Empty until they have been read.
    all: OnceLock<HashSet<u64>>,
    /// Buyers who were looked up one by one, and have nothing.
    strangers: Mutex<HashSet<u64>>,
}

/// What is known of one buyer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Has something, or had: may be repeating an order.
    Buyer,
    /// Has nothing, and never had.
    Stranger,
    /// Not known: look the buyer up.
    Unknown,
}

impl Buyers {
    /// Everything is known: these buyers, and no others, have something.
    pub(crate) fn all(buyers: HashSet<u64>) -> Self {
        Self {
            all: OnceLock::from(buyers),
            strangers: Mutex::default(),
        }
    }

    /// Notes that these buyers, and no others, have something.
    pub(crate) fn complete(&self, buyers: HashSet<u64>) {
        let _ = self.all.set(buyers);
        self.strangers().clear();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.all.get().is_some()
    }

    /// Notes that a buyer was looked up and has nothing.
    pub(crate) fn note_stranger(&self, buyer: u64) {
        let mut strangers = self.strangers();
        if strangers.len() < STRANGERS_MAX {
            strangers.insert(buyer);
        }
    }

    pub(crate) fn look_up(&self, buyer: u64) -> Known {
        match self.all.get() {
            Some(all) if all.contains(&buyer) => Known::Buyer,
            Some(_) => Known::Stranger,
            None if self.strangers().contains(&buyer) => Known::Stranger,
            None => Known::Unknown,
        }
    }

    /// Whether it is known that the buyer has nothing.
    pub(crate) fn is_stranger(&self, buyer: u64) -> bool {
        self.look_up(buyer) == Known::Stranger
    }

    fn strangers(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Buyers, Known};

    #[test]
    fn a_buyer_is_unknown_until_looked_up_or_until_all_are_known() {
        let buyers = Buyers::default();
        assert_eq!(buyers.look_up(1), Known::Unknown);
        buyers.note_stranger(1);
        assert_eq!(buyers.look_up(1), Known::Stranger);
        assert_eq!(buyers.look_up(2), Known::Unknown);
        buyers.complete(HashSet::from([2]));
        assert!(buyers.is_complete());
        assert_eq!(buyers.look_up(2), Known::Buyer);
        assert_eq!(buyers.look_up(3), Known::Stranger);
    }
}
