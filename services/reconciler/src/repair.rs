//! Sets segments to what the ledger says, after their history diverged or their counters drifted.
//!
//! The steps, in this order; the stores refuse each one without the highest token:
//!
//! 1. halt the segments, so that their state does not change during the repair;
//! 2. claim their rows, and stage their outbox entries in the open transaction: accept or reject
//!    orders that the ledger does not have, apply returns and transfers, and skip entries that do
//!    not apply;
//! 3. restore the recorded decisions of the segments in batches, and set their counters to the
//!    staged rows: a compare-and-set on the entry of the halt and on the number of batches. The
//!    entry that this writes is the new anchor;
//! 4. commit, with these entries as checkpoints.
//!
//! A crash between 3 and 4 leaves anchors that the ledger does not have. Such a segment counts as
//! diverged and is repaired again. A repair never uses a snapshot from before its halt.

use std::sync::Arc;

use domain::{Item, ItemId, Memory, SegmentKey};
use ledger::{NewJournalEntry, Recorded, Repair, Repaired, SegmentRow, Transfer, TransferState};
use stock::{Halted, InspectionEntries, Moved, OldMemory, StockError, TransferMemory};

use crate::{Reconciler, ReconcilerError};

/// A halted segment whose outbox entries are staged.
struct Staged {
    halted: Halted,
    available_before: u64,
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
    while let Some(all) = repair_once(reconciler, token, &segments, memory).await? {
        segments = all;
    }
    metrics::counter!("stockade_repaired_segments_total", "item" => id.to_string())
        .increment(segments.len() as u64);
    metrics::histogram!("stockade_repair_seconds").record(started.elapsed().as_secs_f64());
    tracing::warn!(item = %id, token, segments = segments.len(), seconds = started.elapsed().as_secs_f64(), "repaired segments");
    Ok(())
}

/// Repairs the segments. `Some`: more segments have to be repaired together with these, and the
/// transaction was not committed.
async fn repair_once(
    reconciler: &Reconciler,
    token: u64,
    segments: &[SegmentKey],
    memory: OldMemory,
) -> Result<Option<Vec<SegmentKey>>, ReconcilerError> {
    let halted = halt(reconciler, segments, token, memory).await?;
    let halted_segments: Vec<_> = halted.iter().map(|halted| halted.segment.clone()).collect();
    let mut repair = reconciler
        .ledger
        .claim_for_repair(&halted_segments, token)
        .await?;
    let outcome = match set_all(reconciler, &mut *repair, &halted).await {
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
            Ok(Some(all))
        }
        Err(error) => {
            repair.release().await;
            Err(error)
        }
    };
    wake_recorders(reconciler, &halted_segments).await;
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

/// Halts the segments and returns those that were halted. A shard that is down must not block the
/// repair of the others.
async fn halt(
    reconciler: &Reconciler,
    segments: &[SegmentKey],
    token: u64,
    memory: OldMemory,
) -> Result<Vec<Halted>, ReconcilerError> {
    let (mut halted, mut failed) = (Vec::new(), None);
    for segment in segments {
        match reconciler.stock.halt(segment, token, memory).await {
            Ok(done) => halted.push(done),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if halted.is_empty() => Err(error.into()),
        _ => Ok(halted),
    }
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
    halted: &[Halted],
) -> Result<Set, ReconcilerError> {
    let item = repair.item().clone();
    let (staged, epoch) = stage_all(reconciler, repair, halted, item.epoch).await?;
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
    let (memories, transfers) = (repair.memories().await?, repair.transfers().await?);
    let (mut repaired, mut journal) = (Vec::new(), Vec::new());
    for staged in &staged {
        repaired.push(set(reconciler, &item, staged, &memories, &transfers, epoch).await?);
        journal.push(entry(&item, staged, epoch));
    }
    Ok(Set::All {
        repaired,
        epoch,
        journal,
    })
}

/// Stages all segments. The epoch returned is higher than any that one of them has seen.
async fn stage_all(
    reconciler: &Reconciler,
    repair: &mut dyn Repair,
    halted: &[Halted],
    mut epoch: u64,
) -> Result<(Vec<Staged>, u64), ReconcilerError> {
    let mut all = Vec::new();
    for halted in halted {
        let segment = &halted.segment;
        let row_before = repair
            .rows()
            .iter()
            .find(|row| row.key == *segment)
            .cloned();
        let inspection = reconciler
            .stock
            .inspect(segment, InspectionEntries::All)
            .await?;
        if inspection.last != halted.entry {
            // A failover has undone the halt: the state that was read may still change.
            return Err(StockError::Moved(segment.clone()).into());
        }
        epoch = epoch.max(inspection.epoch);
        let (row, recorded) = repair.stage(segment, &inspection.entries).await?;
        all.push(Staged {
            halted: halted.clone(),
            available_before: inspection.available,
            row_before,
            row,
            recorded,
        });
    }
    Ok((all, epoch + 1))
}

async fn set(
    reconciler: &Reconciler,
    item: &Item,
    staged: &Staged,
    memories: &[Memory],
    transfers: &[Transfer],
    epoch: u64,
) -> Result<Repaired, ReconcilerError> {
    let (stock, halted) = (&reconciler.stock, &staged.halted);
    let transfers: Vec<_> = transfers
        .iter()
        .filter_map(|transfer| memory_of(transfer, halted.segment.segment))
        .collect();
    let restoration = stock.restore(item, halted, memories, &transfers).await?;
    let adjusted = stock
        .adjust(item, halted, restoration, staged.row.available, epoch)
        .await?;
    Ok(Repaired {
        segment: halted.segment.clone(),
        checkpoint: adjusted.entry,
        anchor: adjusted.fingerprint,
    })
}

/// The transfer record that the segment must have, if it is one of the transfer's two ends.
fn memory_of(transfer: &Transfer, segment: u16) -> Option<TransferMemory> {
    let moved = if transfer.from == Some(segment) {
        (transfer.state != TransferState::Planned).then_some(Moved::Out(transfer.moved))
    } else if transfer.to == Some(segment) {
        (transfer.state == TransferState::Done).then_some(Moved::In(transfer.moved))
    } else {
        return None;
    };
    Some(TransferMemory {
        id: transfer.id,
        moved,
        is_open: transfer.state != TransferState::Done,
    })
}

fn entry(item: &Item, staged: &Staged, epoch: u64) -> NewJournalEntry {
    let Staged {
        halted,
        available_before,
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
        before: serde_json::json!({ "segment": segment, "available": available_before, "available_at_checkpoint": at_checkpoint }),
        after: serde_json::json!({
            "segment": segment, "available": row.available, "epoch": epoch,
            "orders_held": recorded.held, "orders_rejected": recorded.rejected.len(), "orders_known": recorded.repeated,
            "orders_returned": recorded.returned, "transfers": recorded.transferred,
        }),
    }
}

#[cfg(test)]
mod tests {
    use domain::TransferId;
    use jiff::Timestamp;
    use ledger::{Transfer, TransferState};
    use stock::Moved;

    use super::memory_of;

    #[test]
    fn a_repaired_segment_has_the_ledger_state_of_its_transfers_only() {
        use TransferState::{Done, Out, Planned};
        let id = TransferId::from_bytes([1; 16]);
        let transfer = |state| Transfer {
            id,
            item: "vase".parse().unwrap(),
            from: Some(0),
            to: Some(1),
            quantity: 5,
            moved: 3,
            state,
            since: Timestamp::UNIX_EPOCH,
        };
        let at = |segment, state| memory_of(&transfer(state), segment).map(|memory| memory.moved);
        assert_eq!(
            [Planned, Out, Done].map(|state| at(0, state)),
            [
                Some(None),
                Some(Some(Moved::Out(3))),
                Some(Some(Moved::Out(3)))
            ]
        );
        assert_eq!(
            [Planned, Out, Done].map(|state| at(1, state)),
            [Some(None), Some(None), Some(Some(Moved::In(3)))]
        );
        assert_eq!(at(2, Done), None);
    }
}
