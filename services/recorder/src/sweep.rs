//! Looks at every segment now and then: messages may be lost, processes may have died half-way through creating an item.

use std::{sync::Arc, time::Duration};

use domain::{EntryId, SegmentKey};
use futures::{StreamExt, stream};
use ledger::Ledger;
use stock::{InspectionEntries, Opened, Stock, StockError};
use tokio_util::sync::CancellationToken;

use crate::{pass::RecorderError, work::Work};

/// Segments to look at side by side.
const SIDE_BY_SIDE: usize = 64;

pub(crate) async fn run(stock: Arc<Stock>, ledger: Arc<dyn Ledger>, work: Arc<Work>, every: Duration, stop: CancellationToken) {
    loop {
        match sweep(&stock, &*ledger).await {
            Ok(segments) if segments.is_empty() => {}
            Ok(segments) => work.add(segments),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the sweep failed"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
            () = work.sweep.notified() => {}
        }
    }
}

/// The segments whose outbox is ahead of the ledger, or longer than it should be.
async fn sweep(stock: &Stock, ledger: &dyn Ledger) -> Result<Vec<SegmentKey>, RecorderError> {
    let checkpoints = ledger.checkpoints().await?;
    let looks = stream::iter(checkpoints).map(|(segment, checkpoint)| look(stock, ledger, segment, checkpoint));
    let found: Vec<_> = looks.buffer_unordered(SIDE_BY_SIDE).collect().await;
    Ok(found.into_iter().flatten().collect())
}

/// The segment, if it has work.
async fn look(stock: &Stock, ledger: &dyn Ledger, segment: SegmentKey, checkpoint: Option<EntryId>) -> Option<SegmentKey> {
    match stock.inspect(&segment, InspectionEntries::None).await {
        Ok(inspection) if Some(inspection.last) != checkpoint || inspection.outbox > 1 => Some(segment),
        Ok(_) => None,
        Err(StockError::Missing(_)) if checkpoint.is_none() => open(stock, ledger, segment).await,
        // A segment with a checkpoint that is gone from Redis has diverged: recording it says so.
        Err(StockError::Missing(_)) => Some(segment),
        Err(error) => {
            tracing::debug!(%segment, %error, "could not look");
            None
        }
    }
}

/// Nothing of it was ever recorded and it is not there: whoever created the item died in between.
async fn open(stock: &Stock, ledger: &dyn Ledger, segment: SegmentKey) -> Option<SegmentKey> {
    let item = ledger.item(&segment.item).await.ok()??;
    match stock.open_segment(&item, segment.segment).await {
        Ok(Opened::New) => tracing::info!(%segment, "opened a segment that its creator had left unopened"),
        Ok(Opened::Existing) => {}
        Err(error) => {
            tracing::warn!(%segment, %error, "could not open");
            return None;
        }
    }
    Some(segment)
}

/// Opens every segment that was never opened. What a process does once when it starts.
pub async fn open_missing_segments(stock: &Stock, ledger: &dyn Ledger) -> Result<(), RecorderError> {
    sweep(stock, ledger).await.map(drop)
}
