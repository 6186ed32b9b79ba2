//! Looks at every segment now and then: messages may be lost, processes may have died half-way through creating an item.
//!
//! A look costs Redis some five microseconds, so it is made at every segment that could sell, twice a second: an order whose wake-up was lost
//! is recorded within about a second. Segments of closed items, of which there are more every day, are looked at less often once they
//! have nothing left. Beyond [`LOOKS_PER_SECOND`] the pause grows, and with it that second.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{EntryId, ItemId, ItemState, SegmentConfig, SegmentKey};
use futures::{StreamExt, stream};
use ledger::Ledger;
use stock::{Inspection, InspectionEntries, Opened, Stock, StockError};

use crate::{Recorder, lost::Lost, pass::RecorderError, within};

/// Segments to look at side by side. They share one connection, so that most of these looks travel together.
const SIDE_BY_SIDE: usize = 64;

/// A tenth of what a Redis server can do.
const LOOKS_PER_SECOND: f64 = 20_000.0;

/// How long a segment of a closed item that had nothing is left alone.
const QUIET: Duration = Duration::from_secs(10);

/// How long a sweep may take.
const SWEEP: Duration = Duration::from_secs(30);

/// How long the look at the end may take.
const LAST_LOOK: Duration = Duration::from_secs(2);

pub(crate) async fn run(recorder: Arc<Recorder>) {
    let mut quiet = Quiet::default();
    loop {
        let sweeping = sweep(
            &recorder.stock,
            &*recorder.ledger,
            &recorder.lost,
            &mut quiet,
        );
        let looks = match within(SWEEP, sweeping).await {
            Ok(swept) => {
                recorder.sweeping.is_well();
                if !swept.working.is_empty() {
                    recorder.work.add(swept.working);
                }
                swept.looks
            }
            Err(error) => {
                recorder.sweeping.failed(&error);
                0
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let pause = recorder
            .settings
            .sweep_every
            .max(Duration::from_secs_f64(looks as f64 / LOOKS_PER_SECOND));
        tokio::select! {
            () = recorder.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = recorder.work.sweep.notified() => {}
        }
    }
}

/// At the end: what was taken until now and whose messages are still under way.
pub(crate) async fn last_look(recorder: &Recorder) {
    let mut quiet = Quiet::default();
    let sweep = sweep(
        &recorder.stock,
        &*recorder.ledger,
        &recorder.lost,
        &mut quiet,
    );
    if let Ok(Ok(swept)) = tokio::time::timeout(LAST_LOOK, sweep).await {
        recorder.work.add(swept.working);
    }
}

/// Segments of closed items that have nothing, and until when to leave them alone.
#[derive(Default)]
struct Quiet(HashMap<SegmentKey, Instant>);

impl Quiet {
    fn is_quiet(&mut self, segment: &SegmentKey) -> bool {
        let quiet = self
            .0
            .get(segment)
            .is_some_and(|until| Instant::now() < *until);
        if !quiet {
            self.0.remove(segment);
        }
        quiet
    }
}

#[derive(Default)]
struct Swept {
    looks: usize,
    /// Segments whose outbox is ahead of the ledger, or longer than it should be.
    working: Vec<SegmentKey>,
}

async fn sweep(
    stock: &Stock,
    ledger: &dyn Ledger,
    lost: &Lost,
    quiet: &mut Quiet,
) -> Result<Swept, RecorderError> {
    let mut checkpoints = ledger.checkpoints().await?;
    checkpoints.retain(|(segment, _)| !quiet.is_quiet(segment));
    let mut swept = Swept {
        looks: checkpoints.len(),
        ..Swept::default()
    };
    let configs = ledger.segment_configs().await?.into_iter().collect();
    let looks = stream::iter(checkpoints)
        .map(|(segment, checkpoint)| look(stock, ledger, segment, checkpoint, lost, &configs));
    let seen: Vec<_> = looks.buffer_unordered(SIDE_BY_SIDE).collect().await;
    for (segment, seen) in seen {
        if seen.is_over {
            quiet.0.insert(segment.clone(), Instant::now() + QUIET);
        }
        if seen.work {
            swept.working.push(segment);
        }
    }
    Ok(swept)
}

/// What a look at a segment saw.
#[derive(Default)]
struct Seen {
    work: bool,
    is_over: bool,
}

impl Seen {
    const WORK: Self = Self {
        work: true,
        is_over: false,
    };

    fn of(segment: &Inspection, checkpoint: Option<EntryId>, lost: &Lost) -> Self {
        let work = (Some(segment.last) != checkpoint || segment.outbox != 1)
            && !lost.is_as_it_was(&segment.segment, checkpoint, Some(segment.last));
        Self {
            work,
            is_over: !work && segment.state == ItemState::Closed,
        }
    }
}

async fn look(
    stock: &Stock,
    ledger: &dyn Ledger,
    segment: SegmentKey,
    checkpoint: Option<EntryId>,
    lost: &Lost,
    configs: &Configs,
) -> (SegmentKey, Seen) {
    let seen = match stock.inspect(&segment, InspectionEntries::None).await {
        Ok(inspection) => {
            catch_up(stock, &inspection, configs).await;
            Seen::of(&inspection, checkpoint, lost)
        }
        Err(StockError::Missing(_)) if checkpoint.is_none() => open(stock, ledger, &segment).await,
        // A segment with a checkpoint that is gone from Redis has diverged: recording it says so.
        Err(StockError::Missing(_)) => Seen {
            work: !lost.is_as_it_was(&segment, checkpoint, None),
            ..Seen::default()
        },
        Err(error) => {
            tracing::debug!(%segment, %error, "could not look");
            Seen::default()
        }
    };
    (segment, seen)
}

/// What the segments of each item should be like.
type Configs = HashMap<ItemId, SegmentConfig>;

/// Whoever changed the item did not get to this segment.
async fn catch_up(stock: &Stock, inspection: &Inspection, configs: &Configs) {
    let Some(config) = configs.get(&inspection.segment.item) else {
        return;
    };
    // Whoever mends it sets it to what the item is like by then.
    if inspection.epoch < config.epoch && inspection.mending.is_none() {
        match stock.configure_segment(&inspection.segment, config).await {
            Ok(_) => {
                tracing::info!(segment = %inspection.segment, epoch = config.epoch, "the segment had missed a change of its item")
            }
            Err(error) => {
                tracing::debug!(segment = %inspection.segment, %error, "could not tell the segment of a change")
            }
        }
    }
}

/// Nothing of it was ever recorded and it is not there: whoever created the item died in between.
async fn open(stock: &Stock, ledger: &dyn Ledger, segment: &SegmentKey) -> Seen {
    let Ok(Some(item)) = ledger.item(&segment.item).await else {
        return Seen::default();
    };
    match stock.open_segment(&item, segment.segment).await {
        Ok(Opened::New) => {
            tracing::info!(%segment, "opened a segment that its creator had left unopened")
        }
        Ok(Opened::Existing) => {}
        Err(error) => {
            tracing::warn!(%segment, %error, "could not open");
            return Seen::default();
        }
    }
    Seen::WORK
}

/// Opens every segment that was never opened. What a process does once when it starts.
pub async fn open_missing_segments(
    stock: &Stock,
    ledger: &dyn Ledger,
) -> Result<(), RecorderError> {
    sweep(stock, ledger, &Lost::default(), &mut Quiet::default())
        .await
        .map(drop)
}
