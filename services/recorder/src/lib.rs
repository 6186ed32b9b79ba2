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
mod walks;
mod work;

use std::{sync::Arc, time::Duration};

use ledger::Ledger;
use stock::Stock;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use pass::record_once;
pub use sweep::open_missing_segments;

use crate::work::Work;

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
    /// How often to finish and forget walks.
    pub walks_every: Duration,
}

impl Default for RecorderSettings {
    fn default() -> Self {
        Self {
            workers: 2,
            entries_max: 64,
            segments_max: 16,
            sweep_every: Duration::from_millis(500),
            walks_every: Duration::from_secs(1),
        }
    }
}

/// Records until `stop`, and then until the outboxes that it knows of are drained.
pub async fn run(stock: Arc<Stock>, ledger: Arc<dyn Ledger>, settings: RecorderSettings, stop: CancellationToken) {
    let work = Arc::new(Work::default());
    let tasks = TaskTracker::new();
    for _ in 0..settings.workers {
        let (stock, ledger, work, settings) = (Arc::clone(&stock), Arc::clone(&ledger), Arc::clone(&work), settings.clone());
        let stop = stop.clone();
        tasks.spawn(async move { work_off(&stock, &*ledger, &work, &settings, &stop).await });
    }
    tasks.spawn(sweep::run(Arc::clone(&stock), Arc::clone(&ledger), Arc::clone(&work), settings.sweep_every, stop.clone()));
    tasks.spawn(walks::run(Arc::clone(&stock), Arc::clone(&ledger), settings.walks_every, stop.clone()));
    listen(&stock, &work, &stop).await;
    tasks.close();
    tasks.wait().await;
}

/// Takes in which segments have something again.
async fn listen(stock: &Stock, work: &Work, stop: &CancellationToken) {
    let mut wakeups = stock.outbox_wakeups();
    loop {
        tokio::select! {
            () = stop.cancelled() => return work.close(),
            wakeup = wakeups.recv() => match wakeup {
                Some(Some(segment)) => work.add([segment]),
                Some(None) => work.sweep_now(),
                None => return work.close(),
            }
        }
    }
}

async fn work_off(stock: &Stock, ledger: &dyn Ledger, work: &Work, settings: &RecorderSettings, stop: &CancellationToken) {
    while let Some(segments) = work.take(settings.segments_max).await {
        match pass::record_pass(stock, ledger, &segments, settings).await {
            Ok(again) => work.add(again),
            Err(error) => {
                metrics::counter!("stockade_recorder_errors_total").increment(1);
                tracing::warn!(error = &error as &dyn std::error::Error, "recording failed, the sweep will try again");
                pause(stop).await;
            }
        }
        work.done(&segments);
    }
}

/// After a fault: do not spin. The sweep brings the segments back.
async fn pause(stop: &CancellationToken) {
    let _ = tokio::time::timeout(Duration::from_millis(100), stop.cancelled()).await;
}
