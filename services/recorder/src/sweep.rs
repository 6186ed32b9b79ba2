//! The sweep polls every segment regularly: wake-ups may be lost, and a process may have
//! died while it created an item.
//!
//! A poll costs Redis about five microseconds. So the sweep polls every segment that could sell
//! twice a second, and records an order whose wake-up was lost within about a second. The number of
//! closed items grows every day: once their segments are drained and their orders are settled, the
//! sweep leaves them alone until the ledger has a change of them, or Redis was away. Beyond
//! [`POLLS_PER_SECOND_MAX`] the pause grows, and so does that second.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{EntryId, ItemId, ItemState, SegmentKey};
use futures::{StreamExt, stream};
use ledger::{Ledger, LiveItem};
use stock::{Inspection, InspectionEntries, Opened, Stock, StockError};

use crate::{Recorder, pass::RecorderError, quarantine::Quarantine, with_timeout};

/// Number of concurrent polls. They share one connection, so most of them travel in one write.
const POLL_CONCURRENCY: usize = 64;

/// A tenth of what a Redis server can do.
const POLLS_PER_SECOND_MAX: f64 = 20_000.0;

/// Limit for one sweep.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit for the sweep at shutdown.
const FINAL_SWEEP_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn run(recorder: Arc<Recorder>) {
    let mut idle = IdleSegments::default();
    loop {
        let sweeping = sweep(
            &recorder.stock,
            &*recorder.ledger,
            &recorder.quarantine,
            &mut idle,
        );
        let polls = match with_timeout(SWEEP_TIMEOUT, sweeping).await {
            Ok(swept) => {
                recorder.sweeping.recovered();
                if !swept.working.is_empty() {
                    recorder.work.add(swept.working);
                }
                swept.polls
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
            () = recorder.work.sweep.notified() => idle.clear(),
        }
    }
}

/// Sweeps once at shutdown, for entries whose wake-ups have not arrived yet.
pub(crate) async fn final_sweep(recorder: &Recorder) {
    let mut idle = IdleSegments::default();
    let sweep = sweep(
        &recorder.stock,
        &*recorder.ledger,
        &recorder.quarantine,
        &mut idle,
    );
    if let Ok(Ok(swept)) = tokio::time::timeout(FINAL_SWEEP_TIMEOUT, sweep).await {
        recorder.work.add(swept.working);
    }
}

/// Segments that cannot have an entry to record before the ledger has a change of their item: the
/// item is closed and settled, and the segment was drained then.
#[derive(Default)]
struct IdleSegments(HashMap<SegmentKey, Revision>);

/// Epoch of an item, and the sum of the versions of its rows.
type Revision = (u64, u64);

fn revision(item: &LiveItem) -> Revision {
    (item.config.epoch, item.rows_version)
}

impl IdleSegments {
    /// Forgets the segments whose item has changed.
    fn retain(&mut self, items: &LiveItems) {
        self.0.retain(|segment, seen| {
            items
                .get(&segment.item)
                .is_some_and(|item| item.is_settled() && revision(item) == *seen)
        });
    }

    fn contains(&self, segment: &SegmentKey) -> bool {
        self.0.contains_key(segment)
    }

    /// Polls every segment again: Redis may have lost some.
    fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Default)]
struct Swept {
    polls: usize,
    /// Segments whose outbox is ahead of the ledger, or longer than it should be.
    working: Vec<SegmentKey>,
}

async fn sweep(
    stock: &Stock,
    ledger: &dyn Ledger,
    quarantine: &Quarantine,
    idle: &mut IdleSegments,
) -> Result<Swept, RecorderError> {
    // The items are read first: a change after that has another revision, and the next sweep polls
    // the segment again.
    let items: LiveItems = ledger
        .live_items()
        .await?
        .into_iter()
        .map(|item| (item.id.clone(), item))
        .collect();
    idle.retain(&items);
    let mut checkpoints = ledger.checkpoints().await?;
    checkpoints.retain(|(segment, _)| !idle.contains(segment));
    let mut swept = Swept {
        polls: checkpoints.len(),
        ..Swept::default()
    };
    let polls = stream::iter(checkpoints)
        .map(|(segment, checkpoint)| poll(stock, ledger, segment, checkpoint, quarantine, &items));
    let polled: Vec<_> = polls.buffer_unordered(POLL_CONCURRENCY).collect().await;
    for (segment, polled) in polled {
        if let Some(revision) = polled.idle_at {
            idle.0.insert(segment.clone(), revision);
        }
        if polled.work {
            swept.working.push(segment);
        }
    }
    Ok(swept)
}

/// Result of one poll of a segment.
#[derive(Default)]
struct Polled {
    work: bool,
    /// The revision of its item that it needs no more polls for.
    idle_at: Option<Revision>,
}

impl Polled {
    const WORK: Self = Self {
        work: true,
        idle_at: None,
    };

    fn of(
        segment: &Inspection,
        checkpoint: Option<EntryId>,
        quarantine: &Quarantine,
        item: Option<&LiveItem>,
    ) -> Self {
        let work = (Some(segment.last) != checkpoint || segment.outbox != 1)
            && !quarantine.is_unchanged(&segment.segment, checkpoint, Some(segment.last));
        let is_drained = Some(segment.last) == checkpoint && segment.outbox == 1;
        let settled =
            item.filter(|item| is_drained && item.is_settled() && segment.is_set_as(&item.config));
        Self {
            work,
            idle_at: settled.map(revision),
        }
    }
}

async fn poll(
    stock: &Stock,
    ledger: &dyn Ledger,
    segment: SegmentKey,
    checkpoint: Option<EntryId>,
    quarantine: &Quarantine,
    items: &LiveItems,
) -> (SegmentKey, Polled) {
    let item = items.get(&segment.item);
    let polled = match stock.inspect(&segment, InspectionEntries::None).await {
        Ok(inspection) => {
            catch_up(stock, &inspection, item).await;
            Polled::of(&inspection, checkpoint, quarantine, item)
        }
        Err(StockError::Missing(_)) if checkpoint.is_none() => open(stock, ledger, &segment).await,
        // A segment with a checkpoint whose keys are gone from Redis has diverged. The pass
        // quarantines it.
        Err(StockError::Missing(_)) => Polled {
            work: !quarantine.is_unchanged(&segment, checkpoint, None),
            ..Polled::default()
        },
        Err(error) => {
            tracing::debug!(%segment, %error, "could not poll segment");
            Polled::default()
        }
    };
    (segment, polled)
}

/// The items whose segments are polled.
type LiveItems = HashMap<ItemId, LiveItem>;

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
    let Ok(Some(item)) = ledger.item(&segment.item).await else {
        return Polled::default();
    };
    if item.state == ItemState::Archived {
        return Polled::default();
    }
    match stock.open_segment(&item, segment.segment).await {
        Ok(Opened::New) => {
            tracing::info!(%segment, "opened a segment that the item's creation had left unopened")
        }
        Ok(Opened::Existing) => {}
        Err(error) => {
            tracing::warn!(%segment, %error, "could not open segment");
            return Polled::default();
        }
    }
    Polled::WORK
}

/// Opens every segment that was never opened. A process calls this once when it starts.
pub async fn open_missing_segments(
    stock: &Stock,
    ledger: &dyn Ledger,
) -> Result<(), RecorderError> {
    sweep(
        stock,
        ledger,
        &Quarantine::default(),
        &mut IdleSegments::default(),
    )
    .await
    .map(drop)
}
