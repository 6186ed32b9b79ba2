//! The sweep polls segments regularly: wake-ups may be lost, and a process may have died while it
//! created an item.
//!
//! A poll costs Redis about five microseconds, and a shop has tens of thousands of items, most of
//! which get no orders at the moment. So the sweep polls those twice a second that have something
//! to do, or had a moment ago: it records an order whose wake-up was lost within about a second.
//! Beyond [`POLLS_PER_SECOND_MAX`] the pause grows, and so does that second.
//!
//! All others rest. An item rests once each of its segments was drained at a poll and has the
//! item's settings: for about an hour, and once it is closed, for good. What a reader could get
//! wrong: it is not polled more often because it is open. The first entry of a drained outbox
//! publishes a wake-up in the script that writes it. A wake-up is lost with the subscription only,
//! and then the sweep looks at every item. In a cluster a wake-up can be lost between two masters,
//! and no subscriber notices: there an open item rests for seconds, and a closed one for minutes.
//!
//! A server that does not answer may have segments of ten thousand items, and each poll of them waits for
//! its time limit. So one sweep repeats few polls that have failed, those first that have waited longest.
//! The other segments of these items are polled like any other.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{EntryId, Item, ItemId, ItemState, SegmentKey};
use futures::{StreamExt, stream};
use ledger::{Ledger, LiveItem, LiveItems};
use stock::{Inspection, InspectionEntries, Opened, Stock, StockError, Woken};
use supervision::{Calendar, Rota};

use crate::{
    Recorder,
    pass::{ANCHOR_ALONE, RecorderError},
    quarantine::Quarantine,
    with_timeout,
};

/// Number of concurrent polls. They share one connection, so most of them travel in one write.
const POLL_CONCURRENCY: usize = 64;

/// A tenth of what a Redis server can do.
const POLLS_PER_SECOND_MAX: f64 = 20_000.0;

/// Items at rest whose time has come that one sweep looks at. The others wait for the next one.
const RESTING_MAX: usize = 1000;

/// How long an item is polled after its last wake-up.
const WAKE_TIME: Duration = Duration::from_secs(10);

/// How long an open item rests, about. Each has a time of its own, so that they do not come
/// together.
const REST: Duration = Duration::from_secs(3600);

/// The same where a wake-up can be lost.
const BRIEF_REST: Duration = Duration::from_secs(10);

/// The same of a closed item, which was polled when it was closed: units that return are all that its
/// outboxes still get.
const BRIEF_REST_WHEN_OVER: Duration = Duration::from_secs(600);

/// How many polls that have failed one sweep repeats at most: all of them wait together.
const REPEATS_MAX: usize = POLL_CONCURRENCY / 2;

/// How long a segment waits for its next poll after one that has failed, at least.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

/// Limit for one sweep.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit for the sweep at shutdown.
const FINAL_SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn run(recorder: Arc<Recorder>) {
    let mut sweeper = Sweeper::default();
    loop {
        let sweeping = sweeper.sweep(&recorder, RESTING_MAX);
        let polls = match with_timeout(SWEEP_TIMEOUT, sweeping).await {
            Ok(polls) => {
                recorder.sweeping.recovered();
                polls
            }
            Err(error) => {
                recorder.sweeping.failed(&error);
                0
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let pause = recorder
            .settings
            .sweep_interval
            .max(Duration::from_secs_f64(polls as f64 / POLLS_PER_SECOND_MAX));
        tokio::select! {
            () = recorder.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = recorder.work.sweep.notified() => {}
        }
    }
}

/// Sweeps once at shutdown, for entries whose wake-ups have not arrived yet.
pub(crate) async fn final_sweep(recorder: &Recorder) {
    let mut sweeper = Sweeper::default();
    let sweep = sweeper.sweep(recorder, usize::MAX);
    let _ = tokio::time::timeout(FINAL_SWEEP_TIMEOUT, sweep).await;
}

/// What the sweep knows between two rounds.
#[derive(Default)]
struct Sweeper {
    items: LiveItems,
    rota: Rota<ItemId>,
    /// Segments whose last poll has failed, and when they are polled again.
    failing: Calendar<SegmentKey, Instant>,
}

impl Sweeper {
    /// Adds segments to the work whose outbox is ahead of the ledger, or longer than it should be.
    /// Returns the number of polls.
    async fn sweep(
        &mut self,
        recorder: &Recorder,
        resting_max: usize,
    ) -> Result<usize, RecorderError> {
        let now = Instant::now();
        let woken = recorder.woken.take();
        self.wake(&woken, now);
        // The items are read before they are polled: a change after that is read by the next sweep.
        let changes = self.items.refresh(&*recorder.ledger).await?;
        for id in &changes.changed {
            self.rota.rest(id, Some(now), now);
        }
        for id in &changes.gone {
            self.rota.remove(id);
        }
        let due = self.due(now, resting_max);
        let repeats = self.repeats(now);
        if due.is_empty() && repeats.is_empty() {
            return Ok(0);
        }
        let (polls, busy) = self.poll(recorder, &due, &repeats).await?;
        let may_lose = recorder.stock.may_lose_messages();
        for id in &due {
            let is_over = self.items.get(id).is_some_and(is_over);
            if !busy.contains(id) {
                let pause = rest(is_over, woken.hears, may_lose);
                self.rota.rest_about(id, pause, now);
            }
        }
        for id in &busy {
            self.rota.wake(id, now);
        }
        Ok(polls)
    }

    fn wake(&mut self, woken: &Woken, now: Instant) {
        for id in &woken.items {
            self.rota.wake(id, now + WAKE_TIME);
        }
        if woken.missed || !woken.hears {
            self.rota.look_everywhere(now);
        }
    }

    /// The items to poll. What is no item of this ledger is forgotten.
    fn due(&mut self, now: Instant, resting_max: usize) -> Vec<ItemId> {
        let (due, unknown): (Vec<_>, Vec<_>) = self
            .rota
            .due(now, resting_max)
            .into_iter()
            .partition(|id| self.items.get(id).is_some());
        for id in &unknown {
            self.rota.remove(id);
        }
        due
    }

    /// The failed polls to repeat. Those of what is no item of this ledger any more are forgotten.
    fn repeats(&mut self, now: Instant) -> HashSet<SegmentKey> {
        let repeats = self.failing.due(now).take(REPEATS_MAX).cloned();
        let (repeats, unknown): (HashSet<_>, HashSet<_>) =
            repeats.partition(|segment| self.items.get(&segment.item).is_some());
        for segment in &unknown {
            self.failing.set(segment, None);
        }
        repeats
    }

    /// Polls the segments of the items that are due, without those whose last poll has failed, and
    /// repeats some of these. Returns the number of polls, and the items that may not rest. What fails
    /// and what has work is noted as soon as it is known, so that it counts also if the sweep takes too
    /// long.
    async fn poll(
        &mut self,
        recorder: &Recorder,
        due: &[ItemId],
        repeats: &HashSet<SegmentKey>,
    ) -> Result<(usize, HashSet<ItemId>), RecorderError> {
        let due: HashSet<_> = due.iter().collect();
        let repeated = repeats.iter().map(|segment| &segment.item);
        let ids: HashSet<_> = due.iter().copied().chain(repeated).collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let mut checkpoints = recorder.ledger.checkpoints_of(&ids).await?;
        let Self { items, failing, .. } = self;
        // An archived item has no segments to poll. Its place among the repeats is another's.
        let mut unknown = repeats.clone();
        for (segment, _) in &checkpoints {
            unknown.remove(segment);
        }
        for segment in &unknown {
            failing.set(segment, None);
        }
        checkpoints.retain(|(segment, _)| match failing.moment(segment) {
            Some(_) => repeats.contains(segment),
            None => due.contains(&segment.item),
        });
        let number = checkpoints.len();
        let polls = checkpoints.into_iter().map(|(segment, checkpoint)| {
            let item = items.get(&segment.item);
            poll(recorder, segment, checkpoint, item)
        });
        let polls = stream::iter(polls).buffer_unordered(POLL_CONCURRENCY);
        let mut polls = polls.ready_chunks(POLL_CONCURRENCY);
        let mut busy = HashSet::new();
        while let Some(polled) = polls.next().await {
            for (segment, polled) in &polled {
                let repeat = polled.has_failed.then(|| Instant::now() + REPEAT_PAUSE);
                failing.set(segment, repeat);
                if !polled.at_rest && !polled.has_failed {
                    busy.insert(segment.item.clone());
                }
            }
            let with_work = polled.into_iter().filter(|(_, polled)| polled.work);
            recorder.work.add(with_work.map(|(segment, _)| segment));
        }
        Ok((number, busy))
    }
}

fn is_over(item: &LiveItem) -> bool {
    matches!(item.config.state, ItemState::Closed | ItemState::Archived)
}

/// How long an item rests, about. `None`: until something wakes it.
fn rest(is_over: bool, hears: bool, may_lose: bool) -> Option<Duration> {
    match (is_over, hears, may_lose) {
        (_, false, _) => Some(Duration::ZERO),
        (false, true, true) => Some(BRIEF_REST),
        (true, true, true) => Some(BRIEF_REST_WHEN_OVER),
        (false, true, false) => Some(REST),
        (true, true, false) => None,
    }
}

/// Result of one poll of a segment.
#[derive(Default)]
struct Polled {
    work: bool,
    /// Whether the segment has nothing to record, and the settings of its item.
    at_rest: bool,
    /// Whether the poll has failed: most often, its server did not answer.
    has_failed: bool,
}

impl Polled {
    const WORK: Self = Self {
        work: true,
        at_rest: false,
        has_failed: false,
    };

    const FAILED: Self = Self {
        work: false,
        at_rest: false,
        has_failed: true,
    };

    fn of(
        segment: &Inspection,
        checkpoint: Option<EntryId>,
        quarantine: &Quarantine,
        item: Option<&LiveItem>,
    ) -> Self {
        let work = (Some(segment.last) != checkpoint || segment.outbox != ANCHOR_ALONE)
            && !quarantine.is_unchanged(&segment.segment, checkpoint, Some(segment.last));
        let is_drained = Some(segment.last) == checkpoint && segment.outbox == ANCHOR_ALONE;
        Self {
            work,
            at_rest: is_drained && item.is_none_or(|item| segment.is_set_as(&item.config)),
            has_failed: false,
        }
    }
}

async fn poll(
    recorder: &Recorder,
    segment: SegmentKey,
    checkpoint: Option<EntryId>,
    item: Option<&LiveItem>,
) -> (SegmentKey, Polled) {
    let Recorder {
        stock,
        ledger,
        quarantine,
        ..
    } = recorder;
    let polled = match stock.inspect(&segment, InspectionEntries::None).await {
        Ok(inspection) => {
            catch_up(stock, &inspection, item).await;
            Polled::of(&inspection, checkpoint, quarantine, item)
        }
        Err(StockError::Missing(_)) if checkpoint.is_none() => {
            open(stock, &**ledger, &segment).await
        }
        // A segment with a checkpoint whose keys are gone from Redis has diverged. The pass
        // quarantines it.
        Err(StockError::Missing(_)) => Polled {
            work: !quarantine.is_unchanged(&segment, checkpoint, None),
            ..Polled::default()
        },
        Err(error) => {
            tracing::debug!(%segment, %error, "could not poll segment");
            Polled::FAILED
        }
    };
    (segment, polled)
}

/// Applies the item's settings to a segment that missed a change of them.
async fn catch_up(stock: &Stock, inspection: &Inspection, item: Option<&LiveItem>) {
    let Some(LiveItem { config, .. }) = item else {
        return;
    };
    // A repair that is under way sets the current settings itself. The keys of an archived item are
    // being removed.
    let is_behind = inspection.epoch < config.epoch && config.state != ItemState::Archived;
    if is_behind && inspection.repairing.is_none() {
        match stock.configure_segment(&inspection.segment, config).await {
            Ok(_) => {
                tracing::info!(segment = %inspection.segment, epoch = config.epoch, "applied a change of the item that the segment had missed")
            }
            Err(error) => {
                tracing::debug!(segment = %inspection.segment, %error, "could not apply a change of the item to the segment")
            }
        }
    }
}

/// Opens a segment that was never recorded and has no keys: the process that created the item died
/// before it opened the segment.
async fn open(stock: &Stock, ledger: &dyn Ledger, segment: &SegmentKey) -> Polled {
    match ledger.item(&segment.item).await {
        Ok(Some(item)) => open_of(stock, &item, segment).await,
        _ => Polled::default(),
    }
}

async fn open_of(stock: &Stock, item: &Item, segment: &SegmentKey) -> Polled {
    if item.state == ItemState::Archived {
        return Polled::default();
    }
    match stock.open_segment(item, segment.segment).await {
        Ok(Opened::New) => {
            tracing::info!(%segment, "opened a segment that the item's creation had left unopened")
        }
        Ok(Opened::Existing) => {}
        Err(error) => {
            tracing::warn!(%segment, %error, "could not open segment");
            return Polled::FAILED;
        }
    }
    Polled::WORK
}

/// Opens every segment that was never opened. A process calls this once when it starts.
pub async fn open_missing_segments(
    stock: &Stock,
    ledger: &dyn Ledger,
) -> Result<(), RecorderError> {
    let mut items: HashMap<ItemId, Option<Item>> = HashMap::new();
    let segments = ledger.unrecorded_segments().await?;
    for SegmentKey { item, .. } in &segments {
        if !items.contains_key(item) {
            items.insert(item.clone(), ledger.item(item).await?);
        }
    }
    let opens = segments.iter().filter_map(|segment| {
        let item = items.get(&segment.item)?.as_ref()?;
        Some(open_of(stock, item, segment))
    });
    let opens = stream::iter(opens).buffer_unordered(POLL_CONCURRENCY);
    opens.for_each(async |_| {}).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BRIEF_REST, BRIEF_REST_WHEN_OVER, REST, rest};

    #[test]
    fn a_closed_item_rests_for_good_where_no_wake_up_can_be_lost() {
        assert_eq!(rest(true, true, false), None);
        assert_eq!(rest(false, true, false), Some(REST));
    }

    #[test]
    fn an_item_rests_briefly_where_a_wake_up_can_be_lost_and_a_closed_one_longer() {
        assert_eq!(rest(false, true, true), Some(BRIEF_REST));
        assert_eq!(rest(true, true, true), Some(BRIEF_REST_WHEN_OVER));
    }

    #[test]
    fn nothing_rests_while_wake_ups_are_not_heard() {
        for (is_over, may_lose) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(rest(is_over, false, may_lose), Some(Duration::ZERO));
        }
    }
}
