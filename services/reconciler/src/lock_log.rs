//! The item locks that this process has and had last, for operators.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use domain::ItemId;
use jiff::Timestamp;
use ledger::ReportedLock;

/// Items that are kept: those whose lock was taken last.
const ITEMS_MAX: usize = 20;

/// The locks, the one taken last at the end.
#[derive(Debug, Default)]
pub struct LockLog(Mutex<VecDeque<ReportedLock>>);

impl LockLog {
    /// Notes that this process has the item's lock, with this token.
    pub(crate) fn taken(&self, item: &ItemId, token: u64) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|lock| lock.item != item.as_str());
        if locks.len() == ITEMS_MAX {
            locks.pop_front();
        }
        locks.push_back(ReportedLock {
            item: item.to_string(),
            token,
            since_ms: Timestamp::now().as_millisecond(),
            until_ms: None,
        });
    }

    /// Notes that the process has given the lock up, or lost it. Another task of it may have the lock
    /// by now, with a higher token.
    pub(crate) fn given_up(&self, item: &ItemId, token: u64) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut locks = locks.iter_mut();
        if let Some(lock) = locks.find(|lock| lock.item == item.as_str() && lock.token == token) {
            lock.until_ms = Some(Timestamp::now().as_millisecond());
        }
    }

    /// The locks, the one taken last first.
    pub fn latest(&self) -> Vec<ReportedLock> {
        let locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::ItemId;

    use super::{ITEMS_MAX, LockLog};

    #[test]
    fn each_item_is_kept_once_and_the_oldest_leave() {
        let log = LockLog::default();
        let id = |n: usize| ItemId::new(format!("item-{n}")).unwrap();
        for n in 0..=ITEMS_MAX {
            log.taken(&id(n), 1);
        }
        log.taken(&id(5), 7);
        log.given_up(&id(5), 7);
        log.given_up(&id(6), 7);
        let latest = log.latest();
        assert_eq!(latest.len(), ITEMS_MAX);
        assert_eq!((&*latest[0].item, latest[0].token), ("item-5", 7));
        assert!(latest[0].until_ms.is_some() && latest[1].until_ms.is_none());
        assert!(latest.iter().all(|lock| lock.item != "item-0"));
    }
}
