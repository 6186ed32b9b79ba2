//! Makes segments agree with the ledger again: after their history was lost, or where they drift.
//!
//! In this order, each step refused by the stores unless it carries the highest token:
//!
//! 1. halt the segments, so that what is looked at stands still;
//! 2. claim their rows, and stage what their outboxes hold in the open transaction: orders that the ledger does not have are accepted or rejected, returns and
//!    transfers are taken in, and what does not apply is passed over;
//! 3. give the segments back what they must remember, and set their counters to what the staged rows say: a compare-and-set on the last
//!    entry that was looked at. The entry that this writes is the new anchor;
//! 4. commit, with these entries as checkpoints.
//!
//! A crash between 3 and 4 leaves anchors that the ledger does not know, which is the same case again. Nothing is ever set on the strength of an
//! older look.

use std::sync::Arc;

use domain::{EntryId, Item, ItemId, Memory, SegmentKey};
use ledger::{Mended, Mending, NewJournalEntry, Recorded, SegmentRow};
use stock::InspectionEntries;

use crate::{Reconciler, ReconcilerError};

/// A segment that has been looked at.
struct Staged {
    segment: SegmentKey,
    last: EntryId,
    available_before: u64,
    row_before: Option<SegmentRow>,
    row: SegmentRow,
    recorded: Recorded,
}

pub(crate) async fn mend(reconciler: &Arc<Reconciler>, id: &ItemId, token: u64, segments: &[SegmentKey]) -> Result<(), ReconcilerError> {
    let started = std::time::Instant::now();
    let segments = halt(reconciler, segments, token).await?;
    if segments.is_empty() {
        return Ok(());
    }
    let mut mending = reconciler.ledger.claim_to_mend(&segments, token).await?;
    match set_all(reconciler, &mut *mending, &segments, token).await {
        Ok((mended, epoch, journal)) => {
            mending.commit(&mended, epoch, &journal).await?;
            metrics::counter!("stockade_mended_segments_total", "item" => id.to_string()).increment(segments.len() as u64);
            metrics::histogram!("stockade_mend_seconds").record(started.elapsed().as_secs_f64());
            tracing::warn!(item = %id, token, epoch, segments = segments.len(), seconds = started.elapsed().as_secs_f64(), "segments were mended");
            Ok(())
        }
        Err(error) => {
            mending.release().await;
            Err(error)
        }
    }
}

/// Those that could be halted: a shard that is down must not keep the others from being mended.
async fn halt(reconciler: &Reconciler, segments: &[SegmentKey], token: u64) -> Result<Vec<SegmentKey>, ReconcilerError> {
    let (mut halted, mut failed) = (Vec::new(), None);
    for segment in segments {
        match reconciler.stock.halt(segment, token).await {
            Ok(_) => halted.push(segment.clone()),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if halted.is_empty() => Err(error.into()),
        _ => Ok(halted),
    }
}

async fn set_all(
    reconciler: &Reconciler,
    mending: &mut dyn Mending,
    segments: &[SegmentKey],
    token: u64,
) -> Result<(Vec<Mended>, u64, Vec<NewJournalEntry>), ReconcilerError> {
    let item = mending.item().clone();
    let (staged, epoch) = stage_all(reconciler, mending, segments, item.epoch).await?;
    let memories = mending.memories().await?;
    let (mut mended, mut journal) = (Vec::new(), Vec::new());
    for staged in &staged {
        mended.push(set(reconciler, &item, staged, &memories, token, epoch).await?);
        journal.push(entry(&item, staged, token, epoch));
    }
    Ok((mended, epoch, journal))
}

/// The epoch is above whatever any of the segments has seen.
async fn stage_all(
    reconciler: &Reconciler,
    mending: &mut dyn Mending,
    segments: &[SegmentKey],
    mut epoch: u64,
) -> Result<(Vec<Staged>, u64), ReconcilerError> {
    let mut all = Vec::new();
    for segment in segments {
        let row_before = mending.rows().iter().find(|row| row.key == *segment).cloned();
        let inspection = reconciler.stock.inspect(segment, InspectionEntries::All).await?;
        epoch = epoch.max(inspection.epoch);
        let (row, recorded) = mending.stage(segment, &inspection.entries).await?;
        let (last, available_before) = (inspection.last, inspection.available);
        all.push(Staged { segment: segment.clone(), last, available_before, row_before, row, recorded });
    }
    Ok((all, epoch + 1))
}

async fn set(
    reconciler: &Reconciler,
    item: &Item,
    staged: &Staged,
    memories: &[Memory],
    token: u64,
    epoch: u64,
) -> Result<Mended, ReconcilerError> {
    let (stock, segment) = (&reconciler.stock, staged.segment.segment);
    stock.restore(item, segment, token, memories).await?;
    let adjusted = stock.adjust(item, segment, token, staged.last, staged.row.available, epoch).await?;
    Ok(Mended { segment: staged.segment.clone(), checkpoint: adjusted.entry, anchor: adjusted.fingerprint })
}

fn entry(item: &Item, staged: &Staged, token: u64, epoch: u64) -> NewJournalEntry {
    let Staged { segment, available_before, row_before, row, recorded, .. } = staged;
    let at_checkpoint = row_before.as_ref().map(|row| row.available);
    NewJournalEntry {
        item: item.id.clone(),
        actor: "reconciler".into(),
        action: "mend".into(),
        token: Some(token),
        before: serde_json::json!({ "segment": segment.segment, "available": available_before, "available_at_checkpoint": at_checkpoint }),
        after: serde_json::json!({
            "segment": segment.segment, "available": row.available, "epoch": epoch,
            "orders_held": recorded.held, "orders_rejected": recorded.rejected.len(), "orders_known": recorded.repeated,
            "orders_returned": recorded.returned, "transfers": recorded.transferred,
        }),
    }
}
