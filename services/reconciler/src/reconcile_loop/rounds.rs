//! Which items a round reconciles, and when each is due again.
//!
//! A round waits for the items that it has begun, but not long: a repair takes a minute, and waves and
//! repairs of other items must not wait for it. What goes on is left out of the next rounds until it has
//! ended.
//!
//! Items that have failed are repeated last, after pauses, and a few at a time: those first of which
//! something has changed, and then those that have waited longest. Most of them wait for a server that
//! does not answer, which may have ten thousand items, and those of other servers must not wait for them.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    panic::resume_unwind,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, ItemState};
use jiff::Timestamp;
use ledger::{ListChanges, LiveItems, Transfer};
use stock::Woken;
use supervision::{Calendar, Rota};
use tokio::{
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::{
    ConsolidationRequests,
    due::{DueItem, End, first_moment},
    item::{Next, Reconciled, Watched, reconcile_and_latch},
    wanted,
};
use crate::{Reconciler, ReconcilerError, archives::Ending, waves};

/// Number of items that are reconciled concurrently.
const ITEM_CONCURRENCY: usize = 16;
/// Time in which a round begins items that have not failed. Those that are left are due in the next one:
/// an item whose server hangs takes its whole time limit.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(2);
/// How many of the items that are under way may have failed the last time.
const REPEAT_CONCURRENCY: usize = ITEM_CONCURRENCY / 2;
/// Longest pause before an item that has failed is repeated, about. The pauses begin with the one between
/// two rounds, and double.
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Items at rest whose time has come that one round polls. The others wait for the next one.
const RESTING_MAX: usize = 256;
/// How long an item is polled in every round after its last wake-up.
const WAKE_TIME: Duration = Duration::from_secs(10);
/// Interval between two polls of an item that waits: for payments, or for the end of what an
/// operator has to look at.
const WAITING_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two polls of an open item that rests.
const RESTING_POLL_INTERVAL: Duration = Duration::from_secs(3600);
/// The same where a wake-up can be lost.
const BRIEF_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The same, of an item that is closed. A shop has many more of these than of open ones, and what is due
/// by the clock, as an archive is, waits for no poll.
const BRIEF_POLL_INTERVAL_WHEN_CLOSED: Duration = Duration::from_secs(600);
/// Interval between two looks for what is due by the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Items that one look closes at most. A shop ends thousands of them at the same moment. Segments sell
/// nothing once the window has ended, whether or not the item is closed.
const CLOSES_MAX: usize = 64;
/// Items to which one look adds waves at most. Those of one moment come one after the other, and leave the
/// ledger to orders.
const WAVES_MAX: usize = 64;
/// Items that one look notes to be archived, at most: no order waits for an archive.
const ARCHIVES_MAX: usize = 16;

/// What the loop keeps between two rounds.
#[derive(Default)]
pub(super) struct Rounds {
    items: LiveItems,
    watched: HashMap<ItemId, Watched>,
    rota: Rota<ItemId>,
    /// The first moment at which the clock makes something due for an item.
    calendar: Calendar<ItemId, Timestamp>,
    /// When it was last looked for what is due by the clock.
    clock_looked: Option<Instant>,
    /// When all that the clock has made due for an item last had its turn.
    turns: HashMap<ItemId, Instant>,
    under_way: JoinSet<Reconciled>,
    busy: HashMap<ItemId, Busy>,
    /// Whether wake-ups arrive.
    hears: bool,
}

/// What is known of an item that is under way.
struct Busy {
    /// Something has changed it meanwhile.
    has_changed: bool,
    /// It had failed before.
    is_repeat: bool,
}

/// The items that are due in one round. It begins these lists one after the other.
#[derive(Default)]
struct Due {
    /// What the clock has made due.
    first: Vec<DueItem>,
    /// What has changed, has units on their way, is to be consolidated, or was not looked at for long.
    others: Vec<DueItem>,
    /// Those that have failed the last time.
    repeats: Vec<DueItem>,
}

impl Rounds {
    /// Reconciles the items that are due.
    pub(super) async fn reconcile_due(
        &mut self,
        reconciler: &Arc<Reconciler>,
        requests: &ConsolidationRequests,
    ) -> Result<(), ReconcilerError> {
        while let Some(ended) = self.under_way.try_join_next() {
            self.take_in(reconciler, ended);
        }
        let now = Instant::now();
        self.wake(&reconciler.woken.take(), now);
        let transfers = open_transfers(reconciler).await?;
        // The items are read before their segments: a change in between is one that does not
        // persist.
        let changes = self.items.refresh(&*reconciler.ledger).await?;
        self.take_in_changes(reconciler, &changes, now);
        let Due {
            first,
            others,
            mut repeats,
        } = self.due(reconciler, requests, transfers, now);
        let begins = self.begin_all(reconciler, first.into_iter().chain(others));
        let _ = timeout(BEGIN_TIME_MAX, begins).await;
        // What takes longer goes on beside the next rounds.
        let ends = self.repeat_and_end(reconciler, &mut repeats);
        let _ = timeout(reconciler.settings.poll_interval, ends).await;
        for DueItem { item, .. } in repeats {
            // Behind those that rest and are due as well, of which one round looks at a part.
            let pause = Some(REPEAT_PAUSE_MAX);
            self.rota.rest_about(&item.id, pause, Instant::now());
        }
        Ok(())
    }

    fn take_in_changes(&mut self, reconciler: &Reconciler, changes: &ListChanges, now: Instant) {
        for id in &changes.changed {
            self.rota.rest(id, Some(now), now);
            self.note_change(id);
            let item = self.items.get(id);
            let moment = item.and_then(|item| first_moment(reconciler, item));
            self.calendar.set(id, moment);
        }
        for id in &changes.gone {
            self.forget(reconciler, id);
        }
    }

    /// The items that are due and not under way. What is no item of this ledger is forgotten.
    fn due(
        &mut self,
        reconciler: &Reconciler,
        requests: &ConsolidationRequests,
        mut transfers: HashMap<ItemId, Vec<Transfer>>,
        now: Instant,
    ) -> Due {
        let mut by_clock = self.due_by_clock(reconciler, now);
        let mut ids: HashSet<_> = self.rota.due(now, RESTING_MAX).into_iter().collect();
        ids.extend(transfers.keys().cloned());
        ids.extend(requests.keys().cloned());
        ids.extend(by_clock.keys().cloned());
        ids.retain(|id| !self.busy.contains_key(id));
        let mut due = Due::default();
        for id in ids {
            let Some(item) = self.items.get(&id) else {
                self.forget(reconciler, &id);
                continue;
            };
            let clock = by_clock.remove(&id);
            let queue = match &clock {
                _ if self.has_failed(&id) => &mut due.repeats,
                Some(_) => &mut due.first,
                None => &mut due.others,
            };
            queue.push(DueItem {
                item: item.clone(),
                close: clock.as_ref().is_some_and(|due| due.end == End::Close),
                wave: clock.is_some_and(|due| due.wave),
                transfers: transfers.remove(&id).unwrap_or_default(),
                wanted: wanted(requests, &id, &item.config).unwrap_or(0),
            });
        }
        due
    }

    fn has_failed(&self, id: &ItemId) -> bool {
        self.watched.get(id).is_some_and(Watched::has_failed)
    }

    /// Begins the items, each as soon as there is room for it. One that is not begun stays due.
    async fn begin_all(
        &mut self,
        reconciler: &Arc<Reconciler>,
        due: impl Iterator<Item = DueItem>,
    ) {
        for due_item in due {
            while self.under_way.len() >= ITEM_CONCURRENCY {
                self.end_next(reconciler).await;
            }
            self.begin(reconciler, due_item);
        }
    }

    /// Begins as many of the items as there is time and room for, and waits until all that is under way
    /// has ended.
    async fn repeat_and_end(&mut self, reconciler: &Arc<Reconciler>, repeats: &mut Vec<DueItem>) {
        repeats.sort_by_cached_key(|DueItem { item, wave, .. }| {
            let failed = self.watched.get(&item.id).and_then(Watched::failed);
            // The last one is taken first.
            (*wave, Reverse(failed))
        });
        loop {
            while self.under_way.len() >= ITEM_CONCURRENCY || self.repeated() >= REPEAT_CONCURRENCY
            {
                self.end_next(reconciler).await;
            }
            let Some(due_item) = repeats.pop() else {
                return self.end(reconciler).await;
            };
            self.begin(reconciler, due_item);
        }
    }

    /// Items that are under way and had failed before.
    fn repeated(&self) -> usize {
        self.busy.values().filter(|busy| busy.is_repeat).count()
    }

    fn begin(&mut self, reconciler: &Arc<Reconciler>, due_item: DueItem) {
        let id = &due_item.item.id;
        let watched = self.watched.remove(id).unwrap_or_else(Watched::new);
        let busy = Busy {
            has_changed: false,
            is_repeat: watched.has_failed(),
        };
        self.busy.insert(id.clone(), busy);
        let reconciler = Arc::clone(reconciler);
        self.under_way
            .spawn(async move { reconcile_and_latch(&reconciler, due_item, watched).await });
    }

    /// Waits until all items that are under way have ended.
    pub(super) async fn end(&mut self, reconciler: &Reconciler) {
        while !self.under_way.is_empty() {
            self.end_next(reconciler).await;
        }
    }

    async fn end_next(&mut self, reconciler: &Reconciler) {
        if let Some(ended) = self.under_way.join_next().await {
            self.take_in(reconciler, ended);
        }
    }

    fn take_in(&mut self, reconciler: &Reconciler, ended: Result<Reconciled, JoinError>) {
        let (id, watched, next) = ended.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        let has_changed = self.busy.remove(&id).is_some_and(|busy| busy.has_changed);
        if self.items.get(&id).is_none() {
            return self.forget(reconciler, &id);
        }
        self.plan(reconciler, &id, next);
        if has_changed {
            self.rota.wake(&id, Instant::now() + WAKE_TIME);
        }
        self.watched.insert(id, watched);
    }

    fn wake(&mut self, woken: &Woken, now: Instant) {
        self.hears = woken.hears;
        for id in &woken.items {
            self.rota.wake(id, now + WAKE_TIME);
            self.note_change(id);
        }
        if woken.missed || !woken.hears {
            self.rota.look_everywhere(now);
            self.busy
                .values_mut()
                .for_each(|busy| busy.has_changed = true);
        }
    }

    /// What has looked at it before may put it to rest.
    fn note_change(&mut self, id: &ItemId) {
        if let Some(watched) = self.watched.get_mut(id) {
            watched.note_change();
        }
        if let Some(busy) = self.busy.get_mut(id) {
            busy.has_changed = true;
        }
    }

    fn forget(&mut self, reconciler: &Reconciler, id: &ItemId) {
        self.rota.remove(id);
        self.calendar.set(id, None);
        self.watched.remove(id);
        self.turns.remove(id);
        reconciler.archives.forget(id);
        reconciler.audits.forget(id);
    }

    /// What the clock has made due: closes of items, and waves. What is to be archived is noted, and is
    /// looked at like what is closed: a repair may stand before its archive.
    fn due_by_clock(&mut self, reconciler: &Reconciler, now: Instant) -> HashMap<ItemId, ByClock> {
        let interval = CLOCK_INTERVAL.min(reconciler.settings.poll_interval * 4);
        if self
            .clock_looked
            .is_some_and(|looked| now < looked + interval)
        {
            return HashMap::new();
        }
        self.clock_looked = Some(now);
        let time = (reconciler.settings.clock)();
        let due = self
            .calendar
            .due(time)
            .filter(|id| !self.busy.contains_key(*id));
        let due = due.filter_map(|id| {
            let item = self.items.get(id)?;
            Some(ByClock {
                id: item.id.clone(),
                end: End::of(reconciler, item, now),
                wave: waves::is_due(item, time),
                is_awake: self.rota.is_awake(id),
            })
        });
        let due = in_turn(due.collect(), &mut self.turns, now);
        for of in &due {
            if let End::Archive(actor) = &of.end
                && let Some(item) = self.items.get(&of.id)
            {
                reconciler.archives.note(Ending {
                    item: item.clone(),
                    actor: actor.clone(),
                });
            }
        }
        due.into_iter().map(|of| (of.id.clone(), of)).collect()
    }

    fn plan(&mut self, reconciler: &Reconciler, id: &ItemId, next: Next) {
        let now = Instant::now();
        let is_closed = self.items.get(id).is_none_or(|item| {
            matches!(item.config.state, ItemState::Closed | ItemState::Archived)
        });
        let pause = match next {
            Next::Round => return self.rota.wake(id, now),
            Next::Wait => Some(WAITING_POLL_INTERVAL),
            Next::Rest if !self.hears => Some(Duration::ZERO),
            Next::Rest => resting_pause(is_closed, reconciler.stock.may_lose_messages()),
            Next::Repeat(failures) => {
                Some(repeat_pause(reconciler.settings.poll_interval, failures))
            }
        };
        self.rota.rest_about(id, pause, now);
    }
}

/// The transfers that have not ended, by item.
async fn open_transfers(
    reconciler: &Reconciler,
) -> Result<HashMap<ItemId, Vec<Transfer>>, ReconcilerError> {
    let mut open: HashMap<ItemId, Vec<Transfer>> = HashMap::new();
    for transfer in reconciler.ledger.open_transfers(None).await? {
        let of_item = open.entry(transfer.item.clone()).or_default();
        of_item.push(transfer);
    }
    Ok(open)
}

/// How long an item at rest is not looked at, about. `None`: until something changes.
fn resting_pause(is_closed: bool, may_lose: bool) -> Option<Duration> {
    match (is_closed, may_lose) {
        (false, false) => Some(RESTING_POLL_INTERVAL),
        (false, true) => Some(BRIEF_POLL_INTERVAL),
        (true, false) => None,
        (true, true) => Some(BRIEF_POLL_INTERVAL_WHEN_CLOSED),
    }
}

/// How long to wait, about, before an item is repeated that has failed so often in a row.
fn repeat_pause(poll_interval: Duration, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    poll_interval.saturating_mul(factor).min(REPEAT_PAUSE_MAX)
}

/// What the clock has made due for an item.
struct ByClock {
    id: ItemId,
    end: End,
    wave: bool,
    /// Whether it sells, or has anything else to do.
    is_awake: bool,
}

/// Those that have their turn. What had it longest ago comes first, so that items that cannot be ended
/// keep no other from its end, nor those whose waves cannot be added from its wave. Of those that had
/// none, items that sell come first.
fn in_turn(
    mut due: Vec<ByClock>,
    turns: &mut HashMap<ItemId, Instant>,
    now: Instant,
) -> Vec<ByClock> {
    due.sort_by_key(|of| (turns.get(&of.id).copied(), !of.is_awake));
    let (mut closes, mut waves, mut archives) = (0..CLOSES_MAX, 0..WAVES_MAX, 0..ARCHIVES_MAX);
    for of in &mut due {
        let is_due = of.end != End::None || of.wave;
        let may_end = match of.end {
            End::None => true,
            End::Close => closes.next().is_some(),
            End::Archive(_) => archives.next().is_some(),
        };
        let may_add = !of.wave || waves.next().is_some();
        if !may_end {
            of.end = End::None;
        }
        of.wave &= may_add;
        // What had a part of its turn alone comes first the next time.
        if is_due && may_end && may_add {
            turns.insert(of.id.clone(), now);
        }
    }
    due.retain(|of| of.end != End::None || of.wave);
    due
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        time::{Duration, Instant},
    };

    use domain::ItemId;

    use super::{
        ARCHIVES_MAX, BRIEF_POLL_INTERVAL, BRIEF_POLL_INTERVAL_WHEN_CLOSED, ByClock, CLOSES_MAX,
        End, REPEAT_PAUSE_MAX, RESTING_POLL_INTERVAL, WAVES_MAX, in_turn, repeat_pause,
        resting_pause,
    };

    const ITEMS: usize = 1_000;

    fn due(end: &End, wave: bool) -> Vec<ByClock> {
        let of = |number| ByClock {
            id: ItemId::new(format!("item-{number}")).unwrap(),
            end: end.clone(),
            wave,
            is_awake: false,
        };
        (0..ITEMS).map(of).collect()
    }

    #[test]
    fn a_closed_item_rests_for_good_where_no_wake_up_can_be_lost_and_longer_where_one_can() {
        assert_eq!(resting_pause(true, false), None);
        assert_eq!(resting_pause(false, false), Some(RESTING_POLL_INTERVAL));
        assert_eq!(resting_pause(false, true), Some(BRIEF_POLL_INTERVAL));
        assert_eq!(
            resting_pause(true, true),
            Some(BRIEF_POLL_INTERVAL_WHEN_CLOSED)
        );
    }

    #[test]
    fn an_item_that_fails_again_and_again_is_repeated_less_often() {
        let pause = |failures| repeat_pause(Duration::from_millis(250), failures);
        assert_eq!(
            [1, 2].map(|failures| pause(failures).as_millis()),
            [250, 500]
        );
        assert_eq!([3, 4, u32::MAX].map(pause), [REPEAT_PAUSE_MAX; 3]);
    }

    #[test]
    fn of_what_a_thousand_items_have_due_together_one_look_begins_some() {
        let archive = End::Archive("reconciler".into());
        for (end, wave, max) in [
            (End::Close, false, CLOSES_MAX),
            (archive, false, ARCHIVES_MAX),
            (End::None, true, WAVES_MAX),
            (End::None, false, 0),
        ] {
            let begun = in_turn(due(&end, wave), &mut HashMap::new(), Instant::now());
            assert_eq!(begun.len(), max, "{end:?}");
        }
    }

    #[test]
    fn the_wave_of_an_item_that_sells_comes_before_a_thousand_of_quiet_ones() {
        let mut due = due(&End::None, true);
        let last = due.last_mut().unwrap();
        last.is_awake = true;
        let id = last.id.clone();
        let begun = in_turn(due, &mut HashMap::new(), Instant::now());
        assert_eq!(begun[0].id, id);
    }

    #[test]
    fn what_cannot_be_begun_keeps_no_other_item_from_its_end_or_wave() {
        for (end, wave, max) in [
            (End::Close, false, CLOSES_MAX),
            (End::None, true, WAVES_MAX),
            (End::Close, true, CLOSES_MAX.min(WAVES_MAX)),
        ] {
            let (mut turns, mut begun) = (HashMap::new(), HashSet::new());
            for look in 0..ITEMS.div_ceil(max) {
                let now = Instant::now() + Duration::from_secs(look as u64);
                // None of them has come about: all are due again.
                let of_look = in_turn(due(&end, wave), &mut turns, now);
                begun.extend(of_look.into_iter().map(|of| of.id));
            }
            assert_eq!(begun.len(), ITEMS, "{end:?}");
        }
    }
}
