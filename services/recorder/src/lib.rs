//! The recorder: moves outbox entries into the ledger, exactly once.
//!
//! A pass handles several segments in one transaction: it claims their rows, reads each outbox from
//! the checkpoint on, checks the anchor, applies the entries, and moves the checkpoint by
//! compare-and-set. No acknowledgement protocol is needed. The checkpoint and the orders commit
//! together, so exactly the entries up to the checkpoint have been applied. Any number of recorders
//! may run.
//!
//! This service only connects `stock` and `ledger`. It contains no HTTP, no key name and no table
//! name.

mod pass;
mod quarantine;
mod sweep;
mod work;

use std::{sync::Arc, time::Duration};

use ledger::Ledger;
use stock::{Announcement, Stock, Wakeup, WokenItems};
use supervision::{ErrorLatch, supervise};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub use pass::record_once;
pub use sweep::open_missing_segments;

use crate::{
    pass::{PassResult, RecorderError},
    quarantine::Quarantine,
    work::Work,
};

/// Settings of the recorder.
#[derive(Debug, Clone)]
pub struct RecorderSettings {
    /// Number of concurrent transactions. More than one helps if commits wait for a disk and there
    /// are several segments. A ledger with one writer gets one.
    pub workers: usize,
    /// Maximum number of outbox entries (batches of orders) of one segment in a transaction.
    pub entries_max: usize,
    /// Maximum number of segments in a transaction.
    pub segments_max: usize,
    /// How often the sweep polls the segments of items that are awake, in case a wake-up was lost.
    /// Items at rest are polled when something wakes them, and rarely besides.
    pub sweep_interval: Duration,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self {
            workers: 2,
            entries_max: 64,
            segments_max: 16,
            sweep_interval: Duration::from_millis(500),
        }
    }
}

/// Records until `stop`, then drains the entries that exist at that moment, for a few seconds at
/// most. Other recorders, or the next one to start, record the rest. Dropping the future stops
/// everything immediately, except an announcement that is under way. That loses nothing either.
pub async fn run(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    settings: RecorderSettings,
    stop: CancellationToken,
) {
    // The recorder also stops when the stock's wake-up channel closes.
    let stop = stop.child_token();
    // Workers that wait for one writer would take segments out of each other's transactions.
    let workers = match ledger.has_one_writer() {
        true => 1,
        false => settings.workers.max(1),
    };
    show_initial();
    let recorder = Arc::new(Recorder {
        stock,
        ledger,
        settings,
        stop,
        work: Work::default(),
        woken: WokenItems::default(),
        quarantine: Quarantine::default(),
        recording: ErrorLatch::new("recording", ERRORS),
        sweeping: ErrorLatch::new("the sweep", ERRORS),
    });
    // Dropping the set aborts the tasks.
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let recorder = Arc::clone(&recorder);
        tasks.spawn(supervise("recording", move || {
            record_queued(Arc::clone(&recorder))
        }));
    }
    let sweeper = Arc::clone(&recorder);
    tasks.spawn(supervise("the sweep", move || {
        sweep::run(Arc::clone(&sweeper))
    }));
    listen(&recorder).await;
    recorder.stop.cancel();
    sweep::final_sweep(&recorder).await;
    recorder.work.close();
    while tasks.join_next().await.is_some() {}
}

/// Shows the metrics that must be 0 before their first event: an alert needs the 0.
fn show_initial() {
    metrics::gauge!("stockade_stopped_segments").set(0.0);
    metrics::counter!(ERRORS).increment(0);
}

/// State shared by the tasks of a recorder.
pub(crate) struct Recorder {
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    settings: RecorderSettings,
    stop: CancellationToken,
    work: Work,
    /// What the sweep is to look at.
    woken: WokenItems,
    quarantine: Quarantine,
    recording: ErrorLatch,
    sweeping: ErrorLatch,
}

/// Queues the segments that report new entries, until `stop`.
async fn listen(recorder: &Recorder) {
    let mut wakeups = recorder.stock.outbox_wakeups();
    loop {
        tokio::select! {
            () = recorder.stop.cancelled() => return,
            wakeup = wakeups.recv() => match wakeup {
                Some(wakeup) => take_in(recorder, wakeup),
                None => return,
            }
        }
    }
}

fn take_in(recorder: &Recorder, wakeup: Wakeup) {
    recorder.woken.note(&wakeup);
    match wakeup {
        Wakeup::Entries(segment) => recorder.work.add([segment]),
        Wakeup::Subscribed => recorder.work.sweep_now(),
        // The sweep looks at every item until wake-ups are heard again.
        Wakeup::Lost => {}
    }
}

async fn record_queued(recorder: Arc<Recorder>) {
    let Recorder {
        stock,
        ledger,
        settings,
        work,
        quarantine,
        ..
    } = &*recorder;
    let mut announcing = None;
    while let Some(segments) = work.take(settings.segments_max).await {
        match with_timeout(
            PASS_TIMEOUT,
            pass::record_pass(stock, &**ledger, &segments, settings, quarantine),
        )
        .await
        {
            Ok(PassResult { again, recorded }) => {
                recorder.recording.recovered();
                work.add(again);
                announce_concurrently(&recorder, recorded, &mut announcing).await;
            }
            Err(error) => {
                recorder.recording.failed(&error);
                if recorder.stop.is_cancelled() {
                    // A retry would delay the shutdown. Another recorder records the rest.
                    work.abandon();
                } else {
                    pause(&recorder.stop).await;
                    work.add(segments.iter().cloned());
                }
            }
        }
    }
    if let Some(last) = announcing {
        ended(last).await;
    }
}

/// Announces concurrently with the next pass, whose commit need not wait for it. Only one
/// announcement runs at a time, so a slow Redis slows the passes down.
async fn announce_concurrently(
    recorder: &Arc<Recorder>,
    recorded: Vec<Announcement>,
    announcing: &mut Option<JoinHandle<()>>,
) {
    if let Some(before) = announcing.take() {
        ended(before).await;
    }
    if !recorded.is_empty() {
        let recorder = Arc::clone(recorder);
        *announcing = Some(tokio::spawn(async move {
            let more = pass::announce(&recorder.stock, recorded).await;
            recorder.work.add(more);
        }));
    }
}

/// Waits for an announcement. One that panicked leaves its segments to the sweep.
async fn ended(announcement: JoinHandle<()>) {
    let _ = announcement.await;
}

/// Fails with [`RecorderError::Hung`] after `timeout`, so that one missing reply cannot stop
/// recording. The caller retries.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, RecorderError>>,
) -> Result<T, RecorderError> {
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or(Err(RecorderError::Hung(timeout)))
}

/// Limit for one pass: several times what a loaded database needs.
const PASS_TIMEOUT: Duration = Duration::from_secs(15);

/// Counts the failures of every task.
const ERRORS: &str = "stockade_recorder_errors_total";

/// Pause before a retry after an error or a panic.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

async fn pause(stop: &CancellationToken) {
    let _ = tokio::time::timeout(RETRY_PAUSE, stop.cancelled()).await;
}
