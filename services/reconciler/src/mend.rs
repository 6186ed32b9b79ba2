//! Makes segments agree with the ledger again: after their history was lost, or where they drift.
//!
//! In this order, each step refused by the stores unless it carries the highest token:
//!
//! 1. halt the segments, so that what is looked at stands still;
//! 2. claim their rows, and stage what their outboxes hold in the open transaction: orders that the ledger does not have are accepted or rejected, returns and
//!    transfers are taken in, and what does not apply is passed over;
//! 3. give the segments back what they must remember, batch by batch, and set their counters to what the staged rows say: a compare-and-set on
//!    the entry of the halt and on the number of batches. The entry that this writes is the new anchor;
//! 4. commit, with these entries as checkpoints.
//!
//! A crash between 3 and 4 leaves anchors that the ledger does not know, which is the same case again. Nothing is ever set on the strength of an
//! older look.

use std::sync::Arc;

use domain::{Item, ItemId, Memory, SegmentKey};
use ledger::{Mended, Mending, NewJournalEntry, Recorded, SegmentRow, Transfer, TransferState};
use stock::{Halted, InspectionEntries, Moved, StockError, TransferMemory};

use crate::{Reconciler, ReconcilerError};

/// A segment that has been looked at.
struct Staged {
    halted: Halted,
    available_before: u64,
    row_before: Option<SegmentRow>,
    row: SegmentRow,
    recorded: Recorded,
}

pub(crate) async fn mend(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
    segments: &[SegmentKey],
) -> Result<(), ReconcilerError> {
    let started = std::time::Instant::now();
    let mut segments = segments.to_vec();
    // A second time if the ledger rejects orders of one segment: other segments count these for their buyers, and must be set right as well.
    while let Some(all) = mend_once(reconciler, token, &segments).await? {
        segments = all;
    }
    metrics::counter!("stockade_mended_segments_total", "item" => id.to_string())
        .increment(segments.len() as u64);
    metrics::histogram!("stockade_mend_seconds").record(started.elapsed().as_secs_f64());
    tracing::warn!(item = %id, token, segments = segments.len(), seconds = started.elapsed().as_secs_f64(), "segments were mended");
    Ok(())
}

/// Returns the segments to be mended instead, if these are too few. Nothing was committed then.
async fn mend_once(
    reconciler: &Reconciler,
    token: u64,
    segments: &[SegmentKey],
) -> Result<Option<Vec<SegmentKey>>, ReconcilerError> {
    let halted = halt(reconciler, segments, token).await?;
    let halted_segments: Vec<_> = halted.iter().map(|halted| halted.segment.clone()).collect();
    let mut mending = reconciler
        .ledger
        .claim_to_mend(&halted_segments, token)
        .await?;
    let outcome = match set_all(reconciler, &mut *mending, &halted).await {
        Ok(Set::All {
            mended,
            epoch,
            journal,
        }) => mending
            .commit(&mended, epoch, &journal)
            .await
            .map(|()| None)
            .map_err(ReconcilerError::from),
        Ok(Set::TooFew(all)) => {
            mending.release().await;
            Ok(Some(all))
        }
        Err(error) => {
            mending.release().await;
            Err(error)
        }
    };
    wake_recorders(reconciler, &halted_segments).await;
    outcome
}

/// They passed these segments over while we had the rows. If this fails, the sweep finds what there is.
async fn wake_recorders(reconciler: &Reconciler, segments: &[SegmentKey]) {
    for segment in segments {
        if let Err(error) = reconciler.stock.wake_recorders(segment).await {
            tracing::debug!(%segment, %error, "recorders were not woken");
        }
    }
}

/// Those that could be halted: a shard that is down must not keep the others from being mended.
async fn halt(
    reconciler: &Reconciler,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Vec<Halted>, ReconcilerError> {
    let (mut halted, mut failed) = (Vec::new(), None);
    for segment in segments {
        match reconciler.stock.halt(segment, token).await {
            Ok(done) => halted.push(done),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if halted.is_empty() => Err(error.into()),
        _ => Ok(halted),
    }
}

/// What became of the segments.
enum Set {
    /// They are set, and the ledger is to be told.
    All {
        mended: Vec<Mended>,
        epoch: u64,
        journal: Vec<NewJournalEntry>,
    },
    /// These are to be mended together.
    TooFew(Vec<SegmentKey>),
}

async fn set_all(
    reconciler: &Reconciler,
    mending: &mut dyn Mending,
    halted: &[Halted],
) -> Result<Set, ReconcilerError> {
    let item = mending.item().clone();
    let (staged, epoch) = stage_all(reconciler, mending, halted, item.epoch).await?;
    if staged.len() < usize::from(item.segments)
        && staged
            .iter()
            .any(|staged| !staged.recorded.rejected.is_empty())
    {
        return Ok(Set::TooFew(
            (0..item.segments)
                .map(|segment| SegmentKey {
                    item: item.id.clone(),
                    segment,
                })
                .collect(),
        ));
    }
    let (memories, transfers) = (mending.memories().await?, mending.transfers().await?);
    let (mut mended, mut journal) = (Vec::new(), Vec::new());
    for staged in &staged {
        mended.push(set(reconciler, &item, staged, &memories, &transfers, epoch).await?);
        journal.push(entry(&item, staged, epoch));
    }
    Ok(Set::All {
        mended,
        epoch,
        journal,
    })
}

/// The epoch is above whatever any of the segments has seen.
async fn stage_all(
    reconciler: &Reconciler,
    mending: &mut dyn Mending,
    halted: &[Halted],
    mut epoch: u64,
) -> Result<(Vec<Staged>, u64), ReconcilerError> {
    let mut all = Vec::new();
    for halted in halted {
        let segment = &halted.segment;
        let row_before = mending
            .rows()
            .iter()
            .find(|row| row.key == *segment)
            .cloned();
        let inspection = reconciler
            .stock
            .inspect(segment, InspectionEntries::All)
            .await?;
        if inspection.last != halted.entry {
            // A failover has undone the halt: what was read is not what stands still.
            return Err(StockError::Moved(segment.clone()).into());
        }
        epoch = epoch.max(inspection.epoch);
        let (row, recorded) = mending.stage(segment, &inspection.entries).await?;
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
) -> Result<Mended, ReconcilerError> {
    let (stock, halted) = (&reconciler.stock, &staged.halted);
    let transfers: Vec<_> = transfers
        .iter()
        .filter_map(|transfer| memory_of(transfer, halted.segment.segment))
        .collect();
    let restoration = stock.restore(item, halted, memories, &transfers).await?;
    let adjusted = stock
        .adjust(item, halted, restoration, staged.row.available, epoch)
        .await?;
    Ok(Mended {
        segment: halted.segment.clone(),
        checkpoint: adjusted.entry,
        anchor: adjusted.fingerprint,
    })
}

/// What the segment must remember of the transfer, if it is one of its two ends.
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
        action: "mend".into(),
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
    fn a_segment_remembers_what_the_ledger_knows_of_a_transfer_and_nothing_else() {
        use TransferState::{Done, Out, Planned};
        let id = TransferId::from_bytes([1; 16]);
        let transfer = |state| Transfer {
            id,
            item: "vase".parse().unwrap(),
            from: Some(0),
            to: Some(1),
            asked: 5,
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
