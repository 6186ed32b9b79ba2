//! Which items have new outbox entries, for a worker that looks from time to time.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::ItemId;

use crate::Wakeup;

/// What the wake-ups have said since a worker last looked.
#[derive(Debug, Default)]
pub struct WokenItems(Mutex<Woken>);

/// Items that may have something to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// Those with new entries.
    pub items: HashSet<ItemId>,
    /// Whether wake-ups may have been missed: any other item may have entries, too.
    pub missed: bool,
    /// Whether wake-ups are heard now.
    pub hears: bool,
}

impl WokenItems {
    /// Takes in a wake-up.
    pub fn note(&self, wakeup: &Wakeup) {
        let mut woken = self.lock();
        match wakeup {
            Wakeup::Entries(segment) => {
                if !woken.items.contains(&segment.item) {
                    woken.items.insert(segment.item.clone());
                }
            }
            Wakeup::Subscribed => (woken.missed, woken.hears) = (true, true),
            Wakeup::Lost => woken.hears = false,
        }
    }

    /// Notes that any item may have something to do.
    pub fn look_everywhere(&self) {
        self.lock().missed = true;
    }

    /// What was noted since the last call.
    pub fn take(&self) -> Woken {
        let mut woken = self.lock();
        let hears = woken.hears;
        let next = Woken {
            hears,
            ..Woken::default()
        };
        std::mem::replace(&mut *woken, next)
    }

    fn lock(&self) -> MutexGuard<'_, Woken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Woken, WokenItems};
    use crate::Wakeup;

    #[test]
    fn a_worker_learns_of_entries_once_and_whether_it_can_miss_any() {
        let woken = WokenItems::default();
        assert_eq!(woken.take(), Woken::default(), "nothing is heard yet");
        woken.note(&Wakeup::Subscribed);
        for segment in ["vase:1", "vase:2", "bowl:0"] {
            woken.note(&Wakeup::Entries(segment.parse().unwrap()));
        }
        let taken = woken.take();
        assert!(taken.missed && taken.hears && taken.items.len() == 2);
        let quiet = Woken {
            hears: true,
            ..Woken::default()
        };
        assert_eq!(woken.take(), quiet);
        woken.look_everywhere();
        assert!(woken.take().missed);
        woken.note(&Wakeup::Lost);
        assert_eq!(woken.take(), Woken::default());
    }
}
