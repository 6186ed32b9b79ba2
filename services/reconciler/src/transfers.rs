//! Executes transfers: out of a segment, through the ledger, into another segment.
//!
//! Each step is idempotent by the transfer's id, and is refused without the highest token. The
//! ledger records how far each transfer is. So after a crash at any step the next holder of the
//! lock continues the transfer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentKey};
use ledger::{Transfer, TransferState};

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
    loop {
        let open = reconciler.ledger.open_transfers(Some(id)).await?;
        if open.is_empty() || Instant::now() > until {
            return Ok(());
        }
        for transfer in &open {
            step(reconciler, transfer, token).await?;
        }
        tokio::time::sleep(TRANSFER_POLL_INTERVAL).await;
    }
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
