//! One transaction: claim, read, check, apply, commit, trim, publish.

use domain::{Entry, EntryId, SegmentKey};
use futures::future::try_join_all;
use ledger::{Ledger, LedgerError, Recorded, SegmentReplay, SegmentRow};
use stock::{Stock, StockError};

use crate::{RecorderSettings, lost};

/// Why a pass failed. Nothing was recorded, or it was and re-reading the checkpoint tells.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// Redis did not give the outbox.
    #[error("the outbox could not be read")]
    Stock(#[from] StockError),
    /// The ledger did not take it.
    #[error("the ledger did not record")]
    Ledger(#[from] LedgerError),
}

/// Records what the segments have, once. For tests and tools; [`crate::run`] does it for good.
pub async fn record_once(stock: &Stock, ledger: &dyn Ledger, segments: &[SegmentKey]) -> Result<(), RecorderError> {
    let mut again = segments.to_vec();
    while !again.is_empty() {
        again = record_pass(stock, ledger, &again, &RecorderSettings::default()).await?;
    }
    Ok(())
}

/// Records some of what the segments have. Returns those that may have more.
///
/// A segment is left out of what is returned only after a read that found nothing behind an outbox that had been trimmed down to its anchor:
/// from then on the script that appends sends a wake-up.
pub(crate) async fn record_pass(
    stock: &Stock,
    ledger: &dyn Ledger,
    segments: &[SegmentKey],
    settings: &RecorderSettings,
) -> Result<Vec<SegmentKey>, RecorderError> {
    // Somebody else holds all of them, and will find what there is.
    let Some(claim) = ledger.claim(segments, settings.segments_max).await? else { return Ok(Vec::new()) };
    let outboxes = try_join_all(claim.rows().iter().map(|row| read(stock, row, settings.entries_max))).await?;
    let (mut replays, mut drained) = (Vec::new(), Vec::new());
    for (row, outbox) in claim.rows().iter().zip(outboxes) {
        match replay(row, outbox) {
            Found::Entries(replay) => replays.push(replay),
            Found::Nothing => drained.push((row.key.clone(), row.checkpoint)),
            Found::OtherHistory => {}
        }
    }
    let mut again = untrimmed(stock, drained).await?;
    if replays.is_empty() {
        return Ok(again);
    }
    let recorded = match claim.record(replays).await {
        // Somebody else was faster; what they left is still to be recorded.
        Err(LedgerError::Superseded(_)) => return Ok(segments.to_vec()),
        recorded => recorded?,
    };
    for segment in &recorded {
        count(segment);
        announce(stock, segment).await;
    }
    again.extend(recorded.into_iter().map(|segment| segment.key));
    Ok(again)
}

/// Trims outboxes that held nothing behind their anchor, and returns those that an earlier pass had failed to trim: their scripts do
/// not send wake-ups, so they must be read once more.
async fn untrimmed(stock: &Stock, drained: Vec<(SegmentKey, Option<EntryId>)>) -> Result<Vec<SegmentKey>, StockError> {
    let mut again = Vec::new();
    for (segment, checkpoint) in drained {
        if let Some(checkpoint) = checkpoint
            && stock.trim_outbox(&segment, checkpoint).await? > 0
        {
            again.push(segment);
        }
    }
    Ok(again)
}

async fn read(stock: &Stock, row: &SegmentRow, at_most: usize) -> Result<Vec<Entry>, StockError> {
    // One more, for the anchor.
    stock.read_outbox(&row.key, row.checkpoint, at_most + 1).await
}

/// What an outbox holds behind the anchor.
enum Found {
    Entries(SegmentReplay),
    Nothing,
    OtherHistory,
}

fn replay(row: &SegmentRow, mut outbox: Vec<Entry>) -> Found {
    if let Some(checkpoint) = row.checkpoint {
        let anchored = outbox.first().is_some_and(|first| first.id == checkpoint && Some(first.fingerprint) == row.anchor);
        if !anchored {
            lost::report(row, outbox.first());
            return Found::OtherHistory;
        }
        outbox.remove(0);
    }
    if outbox.is_empty() { Found::Nothing } else { Found::Entries(SegmentReplay { row: row.clone(), entries: outbox }) }
}

/// Trims and tells. Both may fail: the next pass trims again, and whoever waits asks the ledger.
async fn announce(stock: &Stock, recorded: &Recorded) {
    let published = stock.publish_recorded(&recorded.key, recorded.checkpoint, &recorded.rejected).await;
    let trimmed = stock.trim_outbox(&recorded.key, recorded.checkpoint).await;
    if let Err(error) = published.and(trimmed.map(drop)) {
        tracing::warn!(segment = %recorded.key, %error, "recorded, but could not say so");
    }
}

fn count(recorded: &Recorded) {
    metrics::counter!("stockade_recorded_orders_total", "state" => "held").increment(recorded.held as u64);
    metrics::counter!("stockade_recorded_orders_total", "state" => "rejected").increment(recorded.rejected.len() as u64);
    metrics::counter!("stockade_recorder_repeats_total").increment(recorded.repeated as u64);
    if !recorded.rejected.is_empty() {
        tracing::error!(segment = %recorded.key, orders = recorded.rejected.len(), "the ledger rejected orders that it could not cover");
    }
}
