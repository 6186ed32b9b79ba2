//! The recorder: moves outbox entries into the ledger, exactly once.
//!
//! For each segment with work, in one transaction: claim its row, read its outbox from the checkpoint on, check the anchor, apply, and move the
//! checkpoint by compare-and-set. No acknowledgement protocol is needed: what has been applied is what lies before the
//! checkpoint, and the checkpoint moves with the orders or not at all. Any number of recorders may run.
//!
//! This service only assembles `stock` and `ledger`. It must not know HTTP, a key name or a table name.

mod lost;
mod pass;
mod sweep;
mod trouble;
mod work;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use ledger::Ledger;
use stock::{Announcement, Stock};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub use pass::record_once;
pub use sweep::open_missing_segments;

use crate::{
    lost::Lost,
    pass::{Passed, RecorderError},
    trouble::Trouble,
    work::Work,
};

/// How the recorder works.
#[derive(Debug, Clone)]
pub struct RecorderSettings {
    /// Transactions at once. More than one helps when commits wait for a disk and segments are several.
    pub workers: usize,
    /// The most outbox entries (batches of orders) of one segment in a transaction.
    pub entries_max: usize,
    /// The most segments in a transaction.
    pub segments_max: usize,
    /// How often to look at every segment, in case a message was lost.
    pub sweep_every: Duration,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self {
            workers: 2,
            entries_max: 64,
            segments_max: 16,
            sweep_every: Duration::from_millis(500),
        }
    }
}

/// Records until `stop`, and then what had been taken by then, for a few seconds at most: what it leaves others find, or whoever records next.
/// Dropping it ends everything at once (but for an announcement that is under way), which loses nothing either.
pub async fn run(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    settings: RecorderSettings,
    stop: CancellationToken,
) {
    // If the stock ends before us, so do we.
    let stop = stop.child_token();
    let workers = settings.workers.max(1);
    let recorder = Arc::new(Recorder {
        stock,
        ledger,
        settings,
        stop,
        work: Work::default(),
        lost: Lost::default(),
        recording: Trouble::new("recording"),
        sweeping: Trouble::new("the sweep"),
    });
    // They end when this is dropped.
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let recorder = Arc::clone(&recorder);
        tasks.spawn(keep("recording", move || work_off(Arc::clone(&recorder))));
    }
    let sweeper = Arc::clone(&recorder);
    tasks.spawn(keep("the sweep", move || sweep::run(Arc::clone(&sweeper))));
    listen(&recorder).await;
    recorder.stop.cancel();
    sweep::last_look(&recorder).await;
    recorder.work.close();
    while tasks.join_next().await.is_some() {}
}

/// What the tasks of a recorder share.
pub(crate) struct Recorder {
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    settings: RecorderSettings,
    stop: CancellationToken,
    work: Work,
    lost: Lost,
    recording: Trouble,
    sweeping: Trouble,
}

/// Starts the task again if it panics: nothing else would do its work.
async fn keep<F: Future<Output = ()>>(what: &'static str, task: impl Fn() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!(what, "a panic ended it; it is started again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes in which segments have something again, until the end.
async fn listen(recorder: &Recorder) {
    let mut wakeups = recorder.stock.outbox_wakeups();
    loop {
        tokio::select! {
            () = recorder.stop.cancelled() => return,
            wakeup = wakeups.recv() => match wakeup {
                Some(Some(segment)) => recorder.work.add([segment]),
                Some(None) => recorder.work.sweep_now(),
                None => return,
            }
        }
    }
}

async fn work_off(recorder: Arc<Recorder>) {
    let Recorder {
        stock,
        ledger,
        settings,
        work,
        lost,
        ..
    } = &*recorder;
    let mut announcing = None;
    while let Some(segments) = work.take(settings.segments_max).await {
        match within(
            PASS,
            pass::record_pass(stock, &**ledger, &segments, settings, lost),
        )
        .await
        {
            Ok(Passed { again, recorded }) => {
                recorder.recording.is_well();
                work.add(again);
                announce_beside(stock, recorded, &mut announcing).await;
            }
            Err(error) => {
                recorder.recording.failed(&error);
                if recorder.stop.is_cancelled() {
                    // It would only take longer to end, and others find what is left.
                    work.abandon();
                } else {
                    pause(&recorder.stop).await;
                    work.add(segments.iter().cloned());
                }
            }
        }
    }
    announce_beside(stock, Vec::new(), &mut announcing).await;
}

/// Announces while the next pass is made, whose commit need not wait for it. One announcement at a time: if Redis is slow, so are the passes.
async fn announce_beside(
    stock: &Arc<Stock>,
    recorded: Vec<Announcement>,
    announcing: &mut Option<JoinHandle<()>>,
) {
    if let Some(before) = announcing.take() {
        let _ = before.await;
    }
    if !recorded.is_empty() {
        let stock = Arc::clone(stock);
        *announcing = Some(tokio::spawn(async move {
            pass::announce(&stock, recorded).await
        }));
    }
}

/// What does not end in time is given up and begun anew: a single answer that never comes must not be the end of recording.
pub(crate) async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, RecorderError>>,
) -> Result<T, RecorderError> {
    tokio::time::timeout(time, work)
        .await
        .unwrap_or(Err(RecorderError::Hung(time)))
}

/// How long a pass may take: several times what a loaded database needs.
const PASS: Duration = Duration::from_secs(15);

/// After a fault: do not spin.
const PAUSE: Duration = Duration::from_millis(100);

async fn pause(stop: &CancellationToken) {
    let _ = tokio::time::timeout(PAUSE, stop.cancelled()).await;
}
