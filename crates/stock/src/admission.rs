//! Who may walk: as many at once as there are units, and nobody new when there are none.
//!
//! Without it a sold-out item would cost a walk, and its records, for every refused buyer; and every unit that comes back would cost
//! thousands of walks. While there is plenty nobody notices. Three things keep a refusal from here true:
//!
//! * an order that finds all units walked for waits for the walks ahead of it rather than being refused, so the last unit goes to
//!   whoever wants it;
//! * the *sold-out hint* holds for a moment only ([`crate::StockSettings::hint_lifetime`]) and is taken from all segments together;
//! * the hint knows every buyer who holds anything or has given it back. Such a buyer may be repeating an order and is always asked for
//!   in Redis, where the order's answer is; what is refused here has never taken anything, and leaves no record.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use domain::EntryId;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

/// Orders that cannot take anything and may walk at once all the same, because what is known of the segments may be out of date.
const IN_VAIN_MOST: usize = 32;

/// What one item's orders are let in by.
pub(crate) struct Admission {
    /// Units left in each segment, as its last reply said. `u64::MAX`: not heard of yet.
    seen: Box<[AtomicU64]>,
    /// Units that walks are asking for right now.
    walking: AtomicU64,
    /// Orders for more than any segment has: they leave records wherever they go, so only a few of them go at once.
    in_vain: Arc<Semaphore>,
    /// Orders that wait for walks to end. Whoever waits raises it before it looks at `walking`, and whoever ends a walk lowers
    /// `walking` before it looks here: one of the two sees the other.
    waiting: AtomicUsize,
    /// Wakes one who waits. Whoever is woken and stops waiting, for whatever reason, wakes the next one: a walk that ends costs one or
    /// two tries, and not one for everybody who waits.
    turn: Notify,
    /// Somebody has looked at the segments, or has tried to: the first order must not find thousands of others walking blindly.
    looked: AtomicBool,
    hint: ArcSwapOption<Hint>,
    /// Counts what makes a hint that is being taken out of date: units that came back.
    news: AtomicU64,
    /// Wakes those who wait for units to be gathered.
    came: Notify,
    /// Held while the hint is taken anew, so that one does it and the others wait.
    refreshing: Mutex<()>,
    lifetime: Duration,
}

/// All segments were empty.
pub(crate) struct Hint {
    as_of: Instant,
    /// Epoch and last outbox entry of each segment. As long as they stand, nobody has taken anything since.
    pub marks: Vec<(u64, EntryId)>,
    /// Stable hashes of all buyers who hold anything or have given it back. `None`: the item is empty but must not be called sold out (it is not open).
    pub buyers: Option<Arc<HashSet<u64>>>,
}

impl Hint {
    pub(crate) fn new(
        as_of: Instant,
        marks: Vec<(u64, EntryId)>,
        buyers: Option<Arc<HashSet<u64>>>,
    ) -> Self {
        Self {
            as_of,
            marks,
            buyers,
        }
    }
}

/// What the segments were last known to hold.
struct Left {
    total: u64,
    most: u64,
    /// A segment has not been heard of.
    is_guess: bool,
}

/// Leave to walk. Dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    units: u64,
    in_vain: Option<OwnedSemaphorePermit>,
}

/// What became of an order at the door.
pub(crate) enum Admitted {
    Walk(Permit),
    SoldOut,
    /// The hint has to be taken anew; then ask again.
    Refresh,
}

impl Admission {
    pub(crate) fn new(segments: u16, lifetime: Duration) -> Self {
        Self {
            seen: (0..segments).map(|_| AtomicU64::new(u64::MAX)).collect(),
            walking: AtomicU64::new(0),
            in_vain: Arc::new(Semaphore::new(IN_VAIN_MOST)),
            waiting: AtomicUsize::new(0),
            turn: Notify::new(),
            looked: AtomicBool::new(false),
            hint: ArcSwapOption::empty(),
            news: AtomicU64::new(0),
            came: Notify::new(),
            refreshing: Mutex::new(()),
            lifetime,
        }
    }

    /// Takes in what a segment's reply said.
    pub(crate) fn saw(&self, segment: u16, available: u64) {
        self.seen[usize::from(segment)].store(available, Ordering::Relaxed);
    }

    /// Takes in that units have come back to a segment. Nobody is refused by a hint that is older than this.
    pub(crate) fn came_back(&self, segment: u16, available: u64) {
        if let Some(seen) = self.seen.get(usize::from(segment)) {
            seen.store(available, Ordering::Relaxed);
            self.doubt();
            self.wake_one();
            self.came.notify_waiters();
        }
    }

    /// Whether the segments together have so many units, and none of them alone.
    pub(crate) fn is_fragmented(&self, units: u64) -> bool {
        let left = self.left();
        !left.is_guess && left.most < units && units <= left.total
    }

    /// Waits until units have come to a segment.
    pub(crate) async fn more_came(&self) {
        self.came.notified().await;
    }

    /// Forgets the hint, and whatever a look that is under way will find.
    pub(crate) fn doubt(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        self.hint.store(None);
    }

    /// Lets the order in, refuses it, or asks for a look. Waits while all units that are left are being walked for.
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

    /// `None`: wait.
    fn admit_now(self: &Arc<Self>, buyer: u64, units: u64) -> Option<Admitted> {
        let left = self.left();
        if left.total == 0 {
            return Some(self.admit_by_hint(buyer, units));
        }
        if left.is_guess && !self.looked.load(Ordering::Acquire) {
            return Some(Admitted::Refresh);
        }
        // An order for more than any segment has cannot take anything: it and those that can do not wait for one another.
        let permit = if left.most < units {
            self.try_enter_in_vain()
        } else {
            self.try_enter(units, left.total)
        };
        permit.map(Admitted::Walk)
    }

    fn admit_by_hint(self: &Arc<Self>, buyer: u64, units: u64) -> Admitted {
        match self.fresh_hint() {
            None => Admitted::Refresh,
            Some(hint) => match &hint.buyers {
                Some(buyers) if !buyers.contains(&buyer) => Admitted::SoldOut,
                _ => Admitted::Walk(self.enter(units)),
            },
        }
    }

    /// Looks at the segments with `look`, which may find a hint, unless somebody has done so while we waited for our turn.
    pub(crate) async fn refresh<E>(
        &self,
        look: impl AsyncFnOnce(Option<Arc<Hint>>) -> Result<Option<Hint>, E>,
    ) -> Result<(), E> {
        let _turn = self.refreshing.lock().await;
        if !self.looked.load(Ordering::Acquire)
            || (self.left().total == 0 && self.fresh_hint().is_none())
        {
            let news = self.news.load(Ordering::SeqCst);
            let looked = look(self.hint.load_full()).await;
            // One look that fails must not keep those away who could do without it.
            self.looked.store(true, Ordering::Release);
            self.hint.store(looked?.map(Arc::new));
            // Units came back while we looked, perhaps to a segment that we had seen by then.
            if self.news.load(Ordering::SeqCst) != news {
                self.hint.store(None);
            }
        }
        Ok(())
    }

    fn fresh_hint(&self) -> Option<Arc<Hint>> {
        self.hint
            .load_full()
            .filter(|hint| hint.as_of.elapsed() < self.lifetime)
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
        self.walking.fetch_add(units, Ordering::AcqRel);
        Permit {
            admission: Arc::clone(self),
            units,
            in_vain: None,
        }
    }

    fn try_enter_in_vain(self: &Arc<Self>) -> Option<Permit> {
        let in_vain = Arc::clone(&self.in_vain).try_acquire_owned().ok()?;
        Some(Permit {
            admission: Arc::clone(self),
            units: 0,
            in_vain: Some(in_vain),
        })
    }

    fn try_enter(self: &Arc<Self>, units: u64, total: u64) -> Option<Permit> {
        let room = |walking: u64| {
            (walking == 0 || walking.saturating_add(units) <= total).then_some(walking + units)
        };
        self.walking
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, room)
            .ok()?;
        Some(Permit {
            admission: Arc::clone(self),
            units,
            in_vain: None,
        })
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("seen", &self.seen)
            .field("walking", &self.walking)
            .finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission
            .walking
            .fetch_sub(self.units, Ordering::SeqCst);
        drop(self.in_vain.take());
        self.admission.wake_one();
    }
}

/// Counts one who waits, also if it is cancelled.
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

    use super::{Admission, Admitted, Hint};

    fn admission(seen: &[u64]) -> Arc<Admission> {
        let admission = Admission::new(seen.len().try_into().unwrap(), Duration::from_secs(60));
        seen.iter()
            .zip(0..)
            .for_each(|(available, segment)| admission.saw(segment, *available));
        Arc::new(admission)
    }

    async fn walk(admission: &Arc<Admission>, units: u64) -> super::Permit {
        match admission.admit(0, units).await {
            Admitted::Walk(permit) => permit,
            _ => panic!("not let in"),
        }
    }

    /// A wake-up that is lost is a failure and no endless test.
    async fn soon<T>(waiting: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(10), waiting)
            .await
            .expect("nobody woke it")
    }

    async fn see(admission: &Admission, available: u64) {
        let look = async |_: Option<Arc<Hint>>| {
            admission.saw(0, available);
            Ok::<_, Infallible>(None)
        };
        admission.refresh(look).await.unwrap();
    }

    #[tokio::test]
    async fn everybody_walks_while_there_is_plenty() {
        let admission = admission(&[2999, 1]);
        let mut permits = Vec::new();
        for _ in 0..1000 {
            permits.push(walk(&admission, 3).await);
        }
    }

    #[tokio::test]
    async fn nobody_walks_before_somebody_has_looked() {
        let admission = admission(&[u64::MAX]);
        assert!(matches!(admission.admit(0, 1).await, Admitted::Refresh));
        see(&admission, 1).await;
        let _walk = walk(&admission, 1).await;
    }

    #[tokio::test]
    async fn a_look_that_fails_keeps_nobody_away() {
        let admission = admission(&[u64::MAX]);
        admission.refresh(async |_| Err(())).await.unwrap_err();
        let _walks = (walk(&admission, 1).await, walk(&admission, 1).await);
    }

    #[tokio::test]
    async fn when_few_are_left_the_rest_waits_for_the_walks_ahead() {
        let admission = admission(&[1, 1]);
        let (first, second) = (walk(&admission, 1).await, walk(&admission, 1).await);
        let third = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { drop(walk(&admission, 1).await) }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        soon(third).await.unwrap();
        drop(second);
    }

    #[tokio::test]
    async fn everybody_who_waits_gets_a_turn_whatever_becomes_of_those_ahead() {
        let admission = admission(&[1]);
        let first = walk(&admission, 1).await;
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
    async fn the_last_unit_sends_everybody_who_waits_for_a_look() {
        let admission = admission(&[1]);
        let first = walk(&admission, 1).await;
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
    async fn an_order_for_more_than_any_segment_has_is_not_held_back() {
        let admission = admission(&[1, 1]);
        let _walks = (
            walk(&admission, 1).await,
            walk(&admission, 1).await,
            walk(&admission, 2).await,
        );
    }

    #[tokio::test]
    async fn those_who_can_take_nothing_do_not_keep_away_those_who_can() {
        let admission = admission(&[1, 1]);
        let mut in_vain = Vec::new();
        for _ in 0..super::IN_VAIN_MOST {
            in_vain.push(walk(&admission, 2).await);
        }
        let one_more = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { drop(walk(&admission, 2).await) }
        });
        tokio::task::yield_now().await;
        assert!(
            !one_more.is_finished(),
            "they leave records, so only some of them walk at once"
        );
        drop(walk(&admission, 1).await);
        in_vain.pop();
        soon(one_more).await.unwrap();
    }

    #[tokio::test]
    async fn an_empty_item_refuses_those_who_hold_nothing_once_the_hint_says_who_does() {
        let admission = admission(&[0, 0]);
        assert!(matches!(admission.admit(7, 1).await, Admitted::Refresh));
        let hint = |_: Option<Arc<Hint>>| async {
            Ok::<_, Infallible>(Some(Hint::new(
                Instant::now(),
                vec![],
                Some(Arc::new(HashSet::from([7]))),
            )))
        };
        admission.refresh(hint).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::SoldOut));
        assert!(
            matches!(admission.admit(7, 1).await, Admitted::Walk(_)),
            "it may be repeating its order"
        );
        admission.saw(1, 1);
        assert!(
            matches!(admission.admit(8, 1).await, Admitted::Walk(_)),
            "a unit has come back"
        );
    }

    #[tokio::test]
    async fn units_that_come_back_end_the_hint_also_one_that_is_being_taken() {
        let admission = admission(&[0]);
        let hint = async |_: Option<Arc<Hint>>| {
            Ok::<_, Infallible>(Some(Hint::new(
                Instant::now(),
                vec![],
                Some(Arc::default()),
            )))
        };
        admission.refresh(hint).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::SoldOut));
        admission.came_back(0, 1);
        drop(walk(&admission, 1).await);
        admission.saw(0, 0);
        let overtaken = async |before| {
            admission.came_back(0, 1);
            // The look had read the segment before the unit came back.
            admission.saw(0, 0);
            hint(before).await
        };
        admission.refresh(overtaken).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::Refresh));
    }

    #[tokio::test]
    async fn a_hint_that_is_too_old_refuses_nobody() {
        let admission = Arc::new(Admission::new(1, Duration::ZERO));
        admission.saw(0, 0);
        let hint = async |_: Option<Arc<Hint>>| {
            Ok::<_, Infallible>(Some(Hint::new(
                Instant::now(),
                vec![],
                Some(Arc::default()),
            )))
        };
        admission.refresh(hint).await.unwrap();
        assert!(matches!(admission.admit(8, 1).await, Admitted::Refresh));
    }
}
