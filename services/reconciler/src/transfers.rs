//! Executes transfers: out of a segment, through the ledger, into another segment.
//!
//! Each step is idempotent by the transfer's id, and is refused without the highest token. The
//! ledger records how far each transfer is. So after a crash at any step the next holder of the
//! lock continues the transfer.
//!
//! A segment counts the units that leave it, as *leaving*, until [`settle`] notes that they have
//! arrived: a spillover that misses them must not end sold out.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentKey, TransferId};
use futures::future::join_all;
use ledger::{Transfer, TransferState};
use stock::{Inspection, InspectionEntries};

use crate::{Reconciler, ReconcilerError};

/// Limit for the transfers of one item: each step waits for the recorder.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
const TRANSFER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Advances the item's transfers until all are done or [`TRANSFER_TIMEOUT`] has passed.
pub(crate) async fn drive(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
) -> Result<(), ReconcilerError> {
    let until = Instant::now() + TRANSFER_TIMEOUT;
    // One whose step fails is left to the next attempt, and keeps no other from its next steps.
    let mut failed: HashMap<TransferId, ReconcilerError> = HashMap::new();
    loop {
        let mut open = reconciler.ledger.open_transfers(Some(id)).await?;
        if open.is_empty() {
            return settle_all(reconciler, id).await;
        }
        open.retain(|transfer| !failed.contains_key(&transfer.id));
        if open.is_empty() || Instant::now() > until {
            return failed.into_values().next().map_or(Ok(()), Err);
        }
        let steps = open
            .iter()
            .map(|transfer| step(reconciler, transfer, token));
        for (transfer, stepped) in open.iter().zip(join_all(steps).await) {
            match stepped {
                Ok(()) => {}
                Err(error) if error.fence().is_some() => return Err(error),
                Err(error) => drop(failed.insert(transfer.id, error)),
            }
        }
        tokio::time::sleep(TRANSFER_POLL_INTERVAL).await;
    }
}

async fn settle_all(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let Some(item) = reconciler.item_stock(id).await? else {
        return Ok(());
    };
    settle(
        reconciler,
        id,
        &item.inspect(InspectionEntries::None).await?,
    )
    .await
}

/// Notes at the segments from which units have left that all of them have arrived, if the ledger
/// has no open transfer of the item. Until then no order is told that the item is sold out. The
/// ledger is read after the segments: a transfer that begins in between makes the segment refuse.
pub(crate) async fn settle(
    reconciler: &Reconciler,
    id: &ItemId,
    segments: &[Inspection],
) -> Result<(), ReconcilerError> {
    let leaving = segments.iter().filter(|segment| segment.leaving > 0);
    let unsettled: Vec<_> = leaving
        .map(|segment| (segment.segment.clone(), segment.left))
        .collect();
    if unsettled.is_empty() || !reconciler.ledger.open_transfers(Some(id)).await?.is_empty() {
        return Ok(());
    }
    for (segment, left) in unsettled {
        reconciler.stock.settle_transfers(&segment, left).await?;
    }
    Ok(())
}

async fn step(
    reconciler: &Reconciler,
    transfer: &Transfer,
    token: u64,
) -> Result<(), ReconcilerError> {
    let at = |segment| SegmentKey {
        item: transfer.item.clone(),
        segment,
    };
    match (transfer.state, transfer.from, transfer.to) {
        (TransferState::Planned, Some(from), _) => {
            reconciler
                .stock
                .transfer_out(&at(from), transfer.id, transfer.quantity, token)
                .await?;
        }
        // Units may arrive only after the ledger has recorded that they left.
        (TransferState::Out, _, Some(to)) => {
            reconciler
                .stock
                .transfer_in(&at(to), transfer.id, transfer.moved, token)
                .await?;
        }
        (TransferState::Out, _, None) => {
            reconciler
                .ledger
                .finish_withdrawal(transfer, token, "reconciler")
                .await?
        }
        (TransferState::Planned, None, _) | (TransferState::Done, ..) => {}
    }
    Ok(())
}
