//! Admission control: at most as many orders proceed concurrently as there are units, and the
//! sold-out cache sheds orders when there are none.
//!
//! Without it a sold-out item would cost a spillover, and its records, for every refused buyer; and
//! every returned unit would cost thousands of spillovers. While units are plentiful it has no
//! effect. Three things keep its refusals true:
//!
//! * an order that finds all units taken by orders in flight waits for them instead of being
//!   refused, so the last unit goes to a buyer who wants it;
//! * the *sold-out cache* holds for a moment only ([`crate::StockSettings::sold_out_cache_ttl`])
//!   and is filled from two snapshots of all segments that agree (`item/survey.rs`);
//! * the cache knows, or looks up, every buyer who has units or has released some. Such a buyer may
//!   be repeating an order, so the order always goes to Redis, where its decision is. An order that
//!   is shed has never taken anything, and leaves no record.

mod buyers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use domain::EntryId;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

use crate::checked::Checked;
pub(crate) use buyers::Buyers;
use buyers::Known;

/// Unsatisfiable orders that may proceed concurrently all the same, because what this process knows
/// of the segments may be out of date.
const UNSATISFIABLE_MAX: usize = 32;

/// Admits the orders of one item.
pub(crate) struct Admission {
    /// Free units of each segment, by its last reply. `u64::MAX`: no reply yet.
    seen: Box<[AtomicU64]>,
    /// Units requested by orders in flight.
    in_flight: AtomicU64,
    /// Permits for unsatisfiable orders, which want more than any segment has. They leave records
    /// at every segment, so only a few of them proceed concurrently.
    unsatisfiable: Arc<Semaphore>,
    /// Orders that wait for orders in flight. A waiter raises it before it reads `in_flight`, and
    /// an order that ends lowers `in_flight` before it reads this: one of the two sees the other.
    waiting: AtomicUsize,
    /// Wakes one waiter. A waiter that was woken and stops waiting, for whatever reason, wakes the
    /// next one: an order that ends costs one or two tries, and not one for every waiter.
    turn: Notify,
    /// A snapshot of the segments was attempted. The first order must not meet thousands of others
    /// that were admitted without one.
    attempted: AtomicBool,
    cache: ArcSwapOption<SoldOut>,
    /// Counts the returns of units, which make a snapshot that is being taken out of date.
    returns: AtomicU64,
    /// Wakes orders that wait for units to be consolidated.
    more_units: Notify,
    /// Held while a snapshot is taken, so that one order takes it and the others wait.
    /// When the latest refresh began.
    refreshing: Mutex<Option<Instant>>,
    cache_ttl: Duration,
}

/// The content of the sold-out cache: at `as_of` all segments were empty.
pub(crate) struct SoldOut {
    as_of: Instant,
    /// Epoch and last outbox entry of each segment. As long as they stay, no order has taken units
    /// since.
    pub marks: Vec<(u64, EntryId)>,
    /// The buyers who hold units or have released some. `None`: the item is empty but must not be
    /// called sold out, because it is not open.
    pub buyers: Option<Arc<Buyers>>,
    /// What the homes were checked in when the buyers were read. `None`: a home may have lost what
    /// it had declined, so no buyer is known to be a stranger.
    pub checked: Option<Arc<Checked>>,
}

impl SoldOut {
    pub(crate) fn new(
        as_of: Instant,
        marks: Vec<(u64, EntryId)>,
        buyers: Option<Arc<Buyers>>,
    ) -> Self {
        Self {
            as_of,
            marks,
            buyers,
            checked: Some(Arc::default()),
        }
    }

    /// The same, with what the homes were checked in.
    pub(crate) fn checked_in(self, checked: Option<Arc<Checked>>) -> Self {
        Self { checked, ..self }
    }
}

/// Free units, by the last replies of the segments.
struct Left {
    total: u64,
    most: u64,
    /// At least one segment has not replied yet.
    is_guess: bool,
}

/// Permission to proceed to the segments. Dropping it admits the next order.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    units: u64,
    unsatisfiable: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// Whether units are kept for the order, so that others wait for it.
    pub(crate) fn keeps_units(&self) -> bool {
        self.units > 0
    }
}

/// The result of admission control for an order.
pub(crate) enum Admitted {
    Enter(Permit),
    SoldOut,
    /// Nothing is left, and it is not known whether the buyer has something: look the buyer up.
    LookUp(Arc<SoldOut>),
    /// Nothing is left, and home may have lost what it knew of the buyer.
    Unproven,
    /// A new snapshot is needed; then try again.
    Refresh,
}

impl Admission {
    pub(crate) fn new(segments: u16, cache_ttl: Duration) -> Self {
        Self {
            seen: (0..segments).map(|_| AtomicU64::new(u64::MAX)).collect(),
            in_flight: AtomicU64::new(0),
            unsatisfiable: Arc::new(Semaphore::new(UNSATISFIABLE_MAX)),
            waiting: AtomicUsize::new(0),
            turn: Notify::new(),
            attempted: AtomicBool::new(false),
            cache: ArcSwapOption::empty(),
            returns: AtomicU64::new(0),
            more_units: Notify::new(),
            refreshing: Mutex::default(),
            cache_ttl,
        }
    }

    /// Notes the free units in a segment's reply.
    pub(crate) fn saw(&self, segment: u16, available: u64) {
        self.seen[usize::from(segment)].store(available, Ordering::Relaxed);
    }

    /// Notes that units have come back to a segment. No order is shed by a snapshot older than
    /// this.
    pub(crate) fn came_back(&self, segment: u16, available: u64) {
        if let Some(seen) = self.seen.get(usize::from(segment)) {
            seen.store(available, Ordering::Relaxed);
            self.invalidate();
            self.wake_one();
            self.more_units.notify_waiters();
        }
    }

    /// Whether the segments together have so many units, and none of them alone.
    pub(crate) fn is_fragmented(&self, units: u64) -> bool {
        let left = self.left();
        !left.is_guess && left.most < units && units <= left.total
    }

    /// Waits until units have come to a segment.
    pub(crate) async fn more_units(&self) {
        self.more_units.notified().await;
    }

    /// Drops the cache, and the result of a snapshot that is being taken.
    pub(crate) fn invalidate(&self) {
        self.returns.fetch_add(1, Ordering::SeqCst);
        self.cache.store(None);
    }

    /// Admits the order, refuses it, or requests a snapshot. Waits while orders in flight request
    /// all units that are left.
    pub(crate) async fn admit(self: &Arc<Self>, buyer: u64, units: u64) -> Admitted {
        if let Some(admitted) = self.admit_now(buyer, units) {
            return admitted;
        }
        let _waiting = Waiting::new(self);
        loop {
            let turn = self.turn.notified();
            tokio::pin!(turn);
            // From here on no wake-up is missed; one before `waiting` rose may have been.
            turn.as_mut().enable();
            if let Some(admitted) = self.admit_now(buyer, units) {
                return admitted;
            }
            turn.await;
        }
    }

    /// Whether the cache says that an open item has nothing left, for a buyer whose order cannot be
    /// a repeat.
    pub(crate) fn is_sold_out(&self) -> bool {
        let sold_out = (self.left().total == 0)
            .then(|| self.fresh_cache())
            .flatten();
        sold_out.is_some_and(|sold_out| sold_out.checked.is_some() && sold_out.buyers.is_some())
    }

    /// Whether the segments together had fewer free units than these, by their last replies. A
    /// segment that has not replied yet has enough.
    pub(crate) fn has_seen_fewer(&self, units: u64) -> bool {
        self.left().total < units
    }

    /// `None`: wait.
    fn admit_now(self: &Arc<Self>, buyer: u64, units: u64) -> Option<Admitted> {
        let left = self.left();
        if left.total == 0 {
            return Some(self.admit_by_cache(buyer, units));
        }
        if left.is_guess && !self.attempted.load(Ordering::Acquire) {
            return Some(Admitted::Refresh);
        }
        // An order for more than any segment has cannot take units. It must not wait for those that
        // can, nor they for it.
        let permit = if left.most < units {
            self.try_enter_unsatisfiable()
        } else {
            self.try_enter(units, left.total)
        };
        permit.map(Admitted::Enter)
    }

    fn admit_by_cache(self: &Arc<Self>, buyer: u64, units: u64) -> Admitted {
        match self.fresh_cache() {
            None => Admitted::Refresh,
            Some(sold_out) => {
                if sold_out.checked.is_none() {
                    return Admitted::Unproven;
                }
                let Some(buyers) = &sold_out.buyers else {
                    return Admitted::Enter(self.enter(units));
                };
                match buyers.look_up(buyer) {
                    Known::Buyer => Admitted::Enter(self.enter(units)),
                    Known::Stranger => Admitted::SoldOut,
                    Known::Unknown => Admitted::LookUp(Arc::clone(&sold_out)),
                }
            }
        }
    }

    /// Fills the cache by `snapshot`, which returns `None` if units are left, or are on their way.
    /// Does nothing if another order has begun to do so while this one waited for its turn: of all
    /// that wait for units on their way, one looks.
    pub(crate) async fn refresh<E>(
        &self,
        snapshot: impl AsyncFnOnce(Option<Arc<SoldOut>>) -> Result<Option<SoldOut>, E>,
    ) -> Result<(), E> {
        let asked = Instant::now();
        let mut begun = self.refreshing.lock().await;
        if begun.is_some_and(|begun| begun >= asked) {
            return Ok(());
        }
        if !self.attempted.load(Ordering::Acquire)
            || (self.left().total == 0 && self.fresh_cache().is_none())
        {
            *begun = Some(Instant::now());
            let returns = self.returns.load(Ordering::SeqCst);
            let found = snapshot(self.cache.load_full()).await;
            // A failed attempt must not block orders that can proceed without a snapshot.
            self.attempted.store(true, Ordering::Release);
            self.cache.store(found?.map(Arc::new));
            // Units came back meanwhile, possibly to a segment that had been read before.
            if self.returns.load(Ordering::SeqCst) != returns {
                self.cache.store(None);
            }
        }
        Ok(())
    }

    /// Whether no segment has units, and it is not known that the item has none: some may be on
    /// their way.
    pub(crate) fn is_undecided(&self) -> bool {
        self.left().total == 0 && self.cache.load().is_none()
    }

    fn fresh_cache(&self) -> Option<Arc<SoldOut>> {
        self.cache
            .load_full()
            .filter(|sold_out| sold_out.as_of.elapsed() < self.cache_ttl)
    }

    fn left(&self) -> Left {
        let mut left = Left {
            total: 0,
            most: 0,
            is_guess: false,
        };
        for seen in &self.seen {
            let available = seen.load(Ordering::Relaxed);
            left.total = left.total.saturating_add(available);
            left.most = left.most.max(available);
            left.is_guess |= available == u64::MAX;
        }
        left
    }

    fn wake_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.turn.notify_one();
        }
    }

    pub(crate) fn enter(self: &Arc<Self>, units: u64) -> Permit {
        self.in_flight.fetch_add(units, Ordering::AcqRel);
        Permit {
            admission: Arc::clone(self),
            units,
            unsatisfiable: None,
        }
    }

    fn try_enter_unsatisfiable(self: &Arc<Self>) -> Option<Permit> {
        let unsatisfiable = Arc::clone(&self.unsatisfiable).try_acquire_owned().ok()?;
        Some(Permit {
            admission: Arc::clone(self),
            units: 0,
            unsatisfiable: Some(unsatisfiable),
        })
    }

    fn try_enter(self: &Arc<Self>, units: u64, total: u64) -> Option<Permit> {
        let room = |in_flight: u64| {
            (in_flight == 0 || in_flight.saturating_add(units) <= total)
                .then_some(in_flight + units)
        };
        self.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, room)
            .ok()?;
        Some(Permit {
            admission: Arc::clone(self),
            units,
            unsatisfiable: None,
        })
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("seen", &self.seen)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission
            .in_flight
            .fetch_sub(self.units, Ordering::SeqCst);
        drop(self.unsatisfiable.take());
        self.admission.wake_one();
    }
}

/// Counts a waiter, also one that is cancelled.
struct Waiting<'a>(&'a Admission);

impl<'a> Waiting<'a> {
    fn new(admission: &'a Admission) -> Self {
        admission.waiting.fetch_add(1, Ordering::SeqCst);
        Self(admission)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        convert::Infallible,
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::{Admission, Admitted, Buyers, SoldOut};

    fn admission(seen: &[u64]) -> Arc<Admission> {
        let admission = Admission::new(seen.len().try_into().unwrap(), Duration::from_secs(60));
        seen.iter()
            .zip(0..)
            .for_each(|(available, segment)| admission.saw(segment, *available));
        Arc::new(admission)
    }

    async fn enter(admission: &Arc<Admission>, units: u64) -> super::Permit {
        match admission.admit(0, units).await {
            Admitted::Enter(permit) => permit,
            _ => panic!("not admitted"),
        }
    }

    /// A lost wake-up fails the test instead of blocking it.
    async fn soon<T>(waiting: impl Future<Output = T>) -> T {
        testbed::in_time("the wake-up", waiting).await
    }

    async fn take_snapshot(admission: &Admission, available: u64) {
        let snapshot = async |_: Option<Arc<SoldOut>>| {
            admission.saw(0, available);
            Ok::<_, Infallible>(None)
        };
        admission.refresh(snapshot).await.unwrap();
    }

    /// A snapshot of an item that is sold out, at which no buyer has anything.
    async fn sold_out(_: Option<Arc<SoldOut>>) -> Result<Option<SoldOut>, Infallible> {
        let buyers = Arc::new(Buyers::all(HashSet::new()));
        Ok(Some(SoldOut::new(Instant::now(), vec![], Some(buyers))))
    }

    #[tokio::test]
    async fn every_order_enters_while_units_are_plentiful() {
        let admission = admission(&[2999, 1]);
        let mut permits = Vec::new();
        for _ in 0..1000 {
            permits.push(enter(&admission, 3).await);
        }
    }

    #[tokio::test]
    async fn no_order_enters_before_the_first_snapshot() {
        let admission = admission(&[u64::MAX]);
        assert!(matches!(admission.admit(0, 1).await, Admitted::Refresh));
        take_snapshot(&admission, 1).await;
        let _permit = enter(&admission, 1).await;
    }

    #[tokio::test]
    async fn a_failed_snapshot_blocks_no_order() {
        let admission = admission(&[u64::MAX]);
        admission.refresh(async |_| Err(())).await.unwrap_err();
        let _permits = (enter(&admission, 1).await, enter(&admission, 1).await);
    }

    #[tokio::test]
    async fn when_few_units_are_left_orders_wait_for_those_in_flight() {
        let admission = admission(&[1, 1]);
        let (first, second) = (enter(&admission, 1).await, enter(&admission, 1).await);
        let third = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { drop(enter(&admission, 1).await) }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        soon(third).await.unwrap();
        drop(second);
    }

    #[tokio::test]
    async fn every_waiter_gets_a_turn_even_if_those_ahead_are_cancelled() {
        let admission = admission(&[1]);
        let first = enter(&admission, 1).await;
        let waiting: Vec<_> = (0..100)
            .map(|buyer| {
                let admission = Arc::clone(&admission);
                tokio::spawn(async move { drop(admission.admit(buyer, 1).await) })
            })
            .collect();
        tokio::task::yield_now().await;
        waiting
            .iter()
            .step_by(3)
            .for_each(tokio::task::JoinHandle::abort);
        drop(first);
        for (buyer, waiting) in waiting.into_iter().enumerate() {
            assert_eq!(soon(waiting).await.is_err(), buyer % 3 == 0);
        }
    }

    #[tokio::test]
    async fn when_the_last_unit_is_taken_every_waiter_needs_a_snapshot() {
        let admission = admission(&[1]);
        let first = enter(&admission, 1).await;
        let waiting: Vec<_> = (0..100)
            .map(|buyer| {
                let admission = Arc::clone(&admission);
                tokio::spawn(async move { admission.admit(buyer, 1).await })
            })
            .collect();
        tokio::task::yield_now().await;
        admission.saw(0, 0);
        drop(first);
        for waiting in waiting {
            assert!(matches!(soon(waiting).await.unwrap(), Admitted::Refresh));
        }
    }

    #[tokio::test]
    async fn an_unsatisfiable_order_does_not_wait_for_others() {
        let admission = admission(&[1, 1]);
        let _permits = (
            enter(&admission, 1).await,
            enter(&admission, 1).await,
            enter(&admission, 2).await,
        );
    }

    #[tokio::test]
    async fn unsatisfiable_orders_do_not_block_satisfiable_ones() {
        let admission = admission(&[1, 1]);
        let mut unsatisfiable = Vec::new();
        for _ in 0..super::UNSATISFIABLE_MAX {
            unsatisfiable.push(enter(&admission, 2).await);
        }
        let one_more = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { drop(enter(&admission, 2).await) }
        });
        tokio::task::yield_now().await;
        assert!(
            !one_more.is_finished(),
            "they leave records, so only some of them proceed concurrently"
        );
        drop(enter(&admission, 1).await);
        unsatisfiable.pop();
        soon(one_more).await.unwrap();
    }

    #[tokio::test]
    async fn an_empty_item_sheds_buyers_that_the_cache_does_not_list() {
        let admission = admission(&[0, 0]);
        assert!(matches!(admission.admit(7, 1).await, Admitted::Refresh));
        let sold_out = |_: Option<Arc<SoldOut>>| async {
            Ok::<_, Infallible>(Some(SoldOut::new(
                Instant::now(),
                vec![],
                Some(Arc::new(Buyers::all(HashSet::from([7])))),
            )))
        };
        assert!(!admission.is_sold_out(), "nothing is known yet");
        admission.refresh(sold_out).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::SoldOut));
        assert!(
            matches!(admission.admit(7, 1).await, Admitted::Enter(_)),
            "this buyer may be repeating an order"
        );
        assert!(admission.is_sold_out());
        admission.saw(1, 1);
        assert!(!admission.is_sold_out(), "a unit has come back");
        assert!(
            matches!(admission.admit(8, 1).await, Admitted::Enter(_)),
            "a unit has come back"
        );
    }

    #[tokio::test]
    async fn returned_units_invalidate_the_cache_and_a_snapshot_in_progress() {
        let admission = admission(&[0]);
        admission.refresh(sold_out).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::SoldOut));
        admission.came_back(0, 1);
        drop(enter(&admission, 1).await);
        admission.saw(0, 0);
        let overtaken = async |before| {
            admission.came_back(0, 1);
            // The snapshot had read the segment before the unit came back.
            admission.saw(0, 0);
            sold_out(before).await
        };
        admission.refresh(overtaken).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::Refresh));
    }

    #[tokio::test]
    async fn an_expired_cache_sheds_no_order() {
        let admission = Arc::new(Admission::new(1, Duration::ZERO));
        admission.saw(0, 0);
        admission.refresh(sold_out).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::Refresh));
    }
}
