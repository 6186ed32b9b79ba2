//! What came of the requests for each item in this process, for the console.
//!
//! An order costs two additions, and a refusal in process calls nothing for it. The process reports
//! the counts to the ledger from time to time, which adds those of all processes. It looks at those
//! items alone that requests have come for since: a process knows thousands of items, of which few
//! sell.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use domain::{ItemId, RefusalReason};
use ledger::RequestCounts;
use stock::Outcome;

/// Items whose counts have changed since they were read.
type Changed = Arc<Mutex<Vec<ItemId>>>;

/// The counters of one item.
///
/// A count is added before `is_changed` is read, and read after `is_changed` was reset: one of the
/// two sees the other, because all of it is in one order.
#[derive(Debug)]
pub(crate) struct ItemRequests {
    item: ItemId,
    is_changed: AtomicBool,
    changed: Changed,
    arrived: AtomicU64,
    shed: AtomicU64,
    sold_out: AtomicU64,
    limited: AtomicU64,
    not_open: AtomicU64,
    repeated: AtomicU64,
    held: AtomicU64,
}

impl ItemRequests {
    fn new(item: &ItemId, changed: &Changed) -> Self {
        Self {
            item: item.clone(),
            is_changed: AtomicBool::new(false),
            changed: Arc::clone(changed),
            arrived: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            sold_out: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            not_open: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    fn add_to(&self, counter: &AtomicU64) {
        counter.fetch_add(1, SeqCst);
        if !self.is_changed.load(SeqCst) && !self.is_changed.swap(true, SeqCst) {
            lock(&self.changed).push(self.item.clone());
        }
    }

    /// Counts a request before it is decided.
    pub(crate) fn arrive(&self) {
        self.add_to(&self.arrived);
    }

    /// Counts what came of it. An outcome that is unknown is none of these.
    pub(crate) fn end(&self, outcome: &Outcome) {
        let ended = match outcome {
            Outcome::MaybeLost { refused } => return self.end(refused),
            Outcome::Shed => &self.shed,
            Outcome::SoldOut | Outcome::Rejected => &self.sold_out,
            Outcome::BuyerLimitReached => &self.limited,
            Outcome::NotOpen { .. } => &self.not_open,
            Outcome::Held {
                replayed: false, ..
            } => &self.held,
            Outcome::Held { replayed: true, .. }
            | Outcome::Released
            | Outcome::KeyReused { .. } => &self.repeated,
        };
        self.add_to(ended);
    }

    /// Counts an order for more units than one order may have.
    pub(crate) fn limit(&self) {
        self.add_to(&self.limited);
    }

    /// Counts an order of an archived item.
    pub(crate) fn refuse_archived(&self) {
        self.add_to(&self.not_open);
    }

    /// Counts a line of a cart that was refused before the cart was made.
    pub(crate) fn refuse(&self, reason: RefusalReason) {
        self.arrive();
        let ended = match reason {
            RefusalReason::SoldOut => &self.shed,
            RefusalReason::BuyerLimitReached => &self.limited,
            RefusalReason::NotOpen | RefusalReason::TimedOut => &self.not_open,
        };
        self.add_to(ended);
    }

    /// The counts, which are not changed from now on.
    fn read(&self) -> RequestCounts {
        self.is_changed.store(false, SeqCst);
        RequestCounts {
            arrived: self.arrived.load(SeqCst),
            shed: self.shed.load(SeqCst),
            sold_out: self.sold_out.load(SeqCst),
            limited: self.limited.load(SeqCst),
            not_open: self.not_open.load(SeqCst),
            repeated: self.repeated.load(SeqCst),
            held: self.held.load(SeqCst),
        }
    }
}

/// The counters of all items that this process has known. They stay: a total must not fall.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    items: Mutex<HashMap<ItemId, Arc<ItemRequests>>>,
    changed: Changed,
}

impl Requests {
    /// The counters of the item.
    pub(crate) fn of(&self, item: &ItemId) -> Arc<ItemRequests> {
        let mut items = lock(&self.items);
        if let Some(known) = items.get(item) {
            return Arc::clone(known);
        }
        let requests = Arc::new(ItemRequests::new(item, &self.changed));
        items.insert(item.clone(), Arc::clone(&requests));
        requests
    }

    /// The items that requests have come for since this was asked last, with their totals since the
    /// start of the process.
    pub(crate) fn changed(&self) -> Vec<(ItemId, RequestCounts)> {
        let changed = mem::take(&mut *lock(&self.changed));
        let items = lock(&self.items);
        let read = |id: ItemId| {
            let counts = items.get(&id)?.read();
            Some((id, counts))
        };
        changed.into_iter().filter_map(read).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc, thread};

    use domain::{ItemId, RefusalReason};
    use ledger::RequestCounts;

    use super::Requests;

    fn id(number: usize) -> ItemId {
        format!("item-{number}").parse().unwrap()
    }

    fn counts(arrived: u64, limited: u64) -> RequestCounts {
        RequestCounts {
            arrived,
            limited,
            ..RequestCounts::default()
        }
    }

    #[test]
    fn an_item_is_told_once_for_all_requests_since_it_was_told() {
        let requests = Requests::default();
        let (vase, lamp) = (requests.of(&id(1)), requests.of(&id(2)));
        assert!(requests.changed().is_empty(), "no request has come");
        vase.arrive();
        vase.arrive();
        vase.limit();
        assert_eq!(requests.changed(), [(id(1), counts(2, 1))]);
        assert!(requests.changed().is_empty());
        lamp.refuse(RefusalReason::BuyerLimitReached);
        assert_eq!(requests.changed(), [(id(2), counts(1, 1))]);
        requests.of(&id(1)).limit();
        assert_eq!(requests.changed(), [(id(1), counts(2, 2))], "a late end");
    }

    #[test]
    fn no_count_is_missed_by_one_who_reads_at_the_same_time() {
        const THREADS: usize = 4;
        const EACH: u64 = 20_000;
        let requests = Arc::new(Requests::default());
        let counting: Vec<_> = (0..THREADS)
            .map(|number| {
                let counters = [0, 1].map(|item| requests.of(&id((number + item) % THREADS)));
                thread::spawn(move || {
                    for _ in 0..EACH {
                        counters.iter().for_each(|counters| counters.arrive());
                    }
                })
            })
            .collect();
        let mut told = HashMap::new();
        while !counting.iter().all(thread::JoinHandle::is_finished) {
            told.extend(requests.changed());
        }
        counting
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        told.extend(requests.changed());
        let all = (0..THREADS).map(|number| (id(number), counts(2 * EACH, 0)));
        assert_eq!(told, all.collect::<HashMap<_, _>>());
    }
}
