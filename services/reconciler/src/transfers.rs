//! Executes transfers: out of a segment, through the ledger, into another segment.
//!
//! Each step is idempotent by the transfer's id, and is refused without the highest token. The
//! ledger records how far each transfer is. So after a crash at any step the next holder of the
//! lock continues the transfer.
//!
//! A segment counts the units that leave it, as *leaving*, until [`settle`] notes that they have
//! arrived: a spillover that misses them must not end sold out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentKey};
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
    let mut stepped = Ok(());
    loop {
        let open = reconciler.ledger.open_transfers(Some(id)).await?;
        if open.is_empty() {
            return settle_all(reconciler, id).await;
        }
        let is_fenced = stepped
            .as_ref()
            .is_err_and(|error: &ReconcilerError| error.fence().is_some());
        if is_fenced || Instant::now() > until {
            return stepped;
        }
        // One whose step fails keeps no other from its next steps.
        let steps = open
            .iter()
            .map(|transfer| step(reconciler, transfer, token));
        stepped = join_all(steps).await.into_iter().collect();
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
