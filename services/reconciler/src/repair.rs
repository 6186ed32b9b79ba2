//! Sets segments to what the ledger says, after their history diverged or their counters drifted.
//!
//! The steps, in this order; the stores refuse each one without the highest token:
//!
//! 1. halt the segments, so that their state does not change during the repair, and read their
//!    outboxes;
//! 2. restore the recorded decisions of the segments from the orders that the ledger has, page by
//!    page (`restore.rs`). No transaction is open;
//! 3. claim their rows, and stage their outbox entries in the open transaction: accept or reject
//!    orders that the ledger does not have, apply returns and transfers, and skip entries that do
//!    not apply;
//! 4. restore what the staged entries have changed, and set the counters of the segments to the
//!    staged rows: a compare-and-set on the entry of the halt and on the number of batches that
//!    were restored. The entry that this writes is the new anchor;
//! 5. commit, with these entries as checkpoints.
//!
//! The transaction of 3 to 5 is as long as the outboxes, and not as long as the sale. Orders can be
//! paid and cancelled during step 2. That changes nothing that a segment remembers: units on their
//! way back count as taken until a segment releases them, and a halted one does not. What the
//! recorder records meanwhile was in the outboxes after the halt, so step 4 restores it.
//!
//! A crash before 4 leaves halted segments: they are repaired again, from the beginning. A crash
//! between 4 and 5 leaves anchors that the ledger does not have. Such a segment counts as diverged
//! and is repaired again. A repair never uses a snapshot from before its halt.

use std::sync::Arc;

use domain::{Item, ItemId, SegmentKey};
use ledger::{NewJournalEntry, Recorded, Repair, Repaired, SegmentRow};
use stock::{Halted, Inspection, InspectionEntries, OldMemory, StockError};

use crate::{Reconciler, ReconcilerError, restore::Restore};

/// A halted segment, as it was read.
struct Read {
    halted: Halted,
    inspection: Inspection,
}

/// A halted segment whose outbox entries are staged.
struct Staged<'a> {
    read: &'a Read,
    row_before: Option<SegmentRow>,
    row: SegmentRow,
    recorded: Recorded,
}

pub(crate) async fn repair(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
    segments: &[SegmentKey],
) -> Result<(), ReconcilerError> {
    repair_with(reconciler, id, token, segments, OldMemory::Keep).await
}

/// Repairs every segment of the item, and drops what it has that the ledger does not have.
pub(crate) async fn rebuild(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
) -> Result<(), ReconcilerError> {
    let rows = reconciler.ledger.segments(id).await?;
    let segments: Vec<_> = rows.into_iter().map(|row| row.key).collect();
    repair_with(reconciler, id, token, &segments, OldMemory::Drop).await
}

async fn repair_with(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
    segments: &[SegmentKey],
    memory: OldMemory,
) -> Result<(), ReconcilerError> {
    let started = std::time::Instant::now();
    let mut segments = segments.to_vec();
    // Repeat with all segments if the ledger rejects orders of one segment: other segments count
    // these for their buyers, and must be corrected too.
    while let Some(all) = repair_once(reconciler, id, token, &segments, memory).await? {
        segments = all;
    }
    metrics::counter!("stockade_repaired_segments_total").increment(segments.len() as u64);
    metrics::histogram!("stockade_repair_seconds").record(started.elapsed().as_secs_f64());
    tracing::warn!(item = %id, token, segments = segments.len(), seconds = started.elapsed().as_secs_f64(), "repaired segments");
    Ok(())
}

/// Repairs the segments. `Some`: more segments have to be repaired together with these, and the
/// transaction was not committed.
async fn repair_once(
    reconciler: &Reconciler,
    id: &ItemId,
    token: u64,
    segments: &[SegmentKey],
    memory: OldMemory,
) -> Result<Option<Vec<SegmentKey>>, ReconcilerError> {
    let Some(item) = reconciler.ledger.item(id).await? else {
        return Ok(None);
    };
    let (halted, not_halted) = halt(reconciler, segments, token, memory).await?;
    let read = read(reconciler, halted).await?;
    let halted: Vec<_> = read.iter().map(|read| read.halted.clone()).collect();
    let mut restore = Restore::new(reconciler, &item, &halted);
    restore.recorded_orders().await?;
    let keys: Vec<_> = halted.into_iter().map(|halted| halted.segment).collect();
    let mut repair = reconciler.ledger.claim_for_repair(&keys, token).await?;
    let outcome = match set_all(reconciler, &mut *repair, &read, restore).await {
        Ok(Set::All {
            repaired,
            epoch,
            journal,
        }) => repair
            .commit(&repaired, epoch, &journal)
            .await
            .map(|()| None)
            .map_err(ReconcilerError::from),
        Ok(Set::MoreSegments(all)) => {
            repair.release().await;
            // Where one of them cannot be halted, the next attempt would end here as well.
            match not_halted {
                Some(error) if segments.len() >= all.len() => Err(error.into()),
                _ => Ok(Some(all)),
            }
        }
        Err(error) => {
            repair.release().await;
            Err(error)
        }
    };
    wake_recorders(reconciler, &keys).await;
    outcome
}

/// Recorders skipped these segments while the repair held their rows. If the wake-up fails, the
/// sweep finds their entries.
async fn wake_recorders(reconciler: &Reconciler, segments: &[SegmentKey]) {
    for segment in segments {
        if let Err(error) = reconciler.stock.wake_recorders(segment).await {
            tracing::debug!(%segment, %error, "could not wake the recorders");
        }
    }
}

/// Halts the segments and returns those that were halted, and why others were not. A shard that is
/// down must not block the repair of the others.
async fn halt(
    reconciler: &Reconciler,
    segments: &[SegmentKey],
    token: u64,
    memory: OldMemory,
) -> Result<(Vec<Halted>, Option<StockError>), ReconcilerError> {
    let (mut halted, mut failed) = (Vec::new(), None);
    for segment in segments {
        match reconciler.stock.halt(segment, token, memory).await {
            Ok(done) => halted.push(done),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if halted.is_empty() => Err(error.into()),
        failed => Ok((halted, failed)),
    }
}

/// Reads the halted segments with their outboxes. The orders of the ledger are read afterwards:
/// what a recorder has recorded and trimmed before is among them.
async fn read(reconciler: &Reconciler, halted: Vec<Halted>) -> Result<Vec<Read>, ReconcilerError> {
    let mut all = Vec::with_capacity(halted.len());
    for halted in halted {
        let segment = &halted.segment;
        let inspection = reconciler
            .stock
            .inspect(segment, InspectionEntries::All)
            .await?;
        if inspection.last != halted.entry {
            // A failover has undone the halt: the state that was read may still change.
            return Err(StockError::Moved(segment.clone()).into());
        }
        all.push(Read { halted, inspection });
    }
    Ok(all)
}

/// Result of setting the segments.
enum Set {
    /// All are set. The ledger still has to commit.
    All {
        repaired: Vec<Repaired>,
        epoch: u64,
        journal: Vec<NewJournalEntry>,
    },
    /// These segments have to be repaired together.
    MoreSegments(Vec<SegmentKey>),
}

async fn set_all(
    reconciler: &Reconciler,
    repair: &mut dyn Repair,
    read: &[Read],
    mut restore: Restore<'_>,
) -> Result<Set, ReconcilerError> {
    let item = repair.item().clone();
    let (staged, epoch) = stage_all(repair, read, item.epoch).await?;
    if staged.len() < usize::from(item.segments)
        && staged
            .iter()
            .any(|staged| !staged.recorded.rejected.is_empty())
    {
        return Ok(Set::MoreSegments(
            (0..item.segments)
                .map(|segment| SegmentKey {
                    item: item.id.clone(),
                    segment,
                })
                .collect(),
        ));
    }
    let entries = read.iter().flat_map(|read| &read.inspection.entries);
    restore.staged(repair, entries).await?;
    let (mut repaired, mut journal) = (Vec::new(), Vec::new());
    for (staged, restoration) in staged.iter().zip(restore.finish().await?) {
        let (halted, available) = (&staged.read.halted, staged.row.available);
        let adjusted = reconciler
            .stock
            .adjust(&item, halted, restoration, available, epoch)
            .await?;
        repaired.push(Repaired {
            segment: halted.segment.clone(),
            checkpoint: adjusted.entry,
            anchor: adjusted.fingerprint,
        });
        journal.push(entry(&item, staged, epoch));
    }
    Ok(Set::All {
        repaired,
        epoch,
        journal,
    })
}

/// Stages all segments. The epoch returned is higher than any that one of them has seen.
async fn stage_all<'a>(
    repair: &mut dyn Repair,
    read: &'a [Read],
    mut epoch: u64,
) -> Result<(Vec<Staged<'a>>, u64), ReconcilerError> {
    let mut all = Vec::with_capacity(read.len());
    for read in read {
        let Read { halted, inspection } = read;
        let row_before = repair
            .rows()
            .iter()
            .find(|row| row.key == halted.segment)
            .cloned();
        epoch = epoch.max(inspection.epoch);
        let (row, recorded) = repair.stage(&halted.segment, &inspection.entries).await?;
        all.push(Staged {
            read,
            row_before,
            row,
            recorded,
        });
    }
    Ok((all, epoch + 1))
}

fn entry(item: &Item, staged: &Staged<'_>, epoch: u64) -> NewJournalEntry {
    let Staged {
        read: Read { halted, inspection },
        row_before,
        row,
        recorded,
    } = staged;
    let (segment, at_checkpoint) = (
        halted.segment.segment,
        row_before.as_ref().map(|row| row.available),
    );
    NewJournalEntry {
        item: item.id.clone(),
        actor: "reconciler".into(),
        action: "repair".into(),
        token: Some(halted.token),
        before: serde_json::json!({ "segment": segment, "available": inspection.available, "available_at_checkpoint": at_checkpoint }),
        after: serde_json::json!({
            "segment": segment, "available": row.available, "epoch": epoch,
            "orders_held": recorded.held, "orders_rejected": recorded.rejected.len(), "orders_known": recorded.repeated,
            "orders_returned": recorded.returned, "transfers": recorded.transferred,
        }),
    }
}
