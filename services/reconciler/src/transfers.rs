//! Carries transfers through: out of a segment, through the ledger, into another one.
//!
//! Every step is idempotent by the transfer's id and refused without the highest token, and the ledger says how far each is. So a crash
//! anywhere leaves a transfer that the next holder of the lock carries on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentKey};
use ledger::{Transfer, TransferState};

use crate::{Reconciler, ReconcilerError};

/// How long to go on with one item: each step waits for the recorder.
const WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Until all are done, or for a while.
pub(crate) async fn drive(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    token: u64,
) -> Result<(), ReconcilerError> {
    let until = Instant::now() + WITHIN;
    loop {
        let open = reconciler.ledger.open_transfers(Some(id)).await?;
        if open.is_empty() || Instant::now() > until {
            return Ok(());
        }
        for transfer in &open {
            step(reconciler, transfer, token).await?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
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
                .transfer_out(&at(from), transfer.id, transfer.asked, token)
                .await?;
        }
        // Only what the ledger knows to have left may arrive.
        (TransferState::Out, _, Some(to)) => {
            reconciler
                .stock
                .transfer_in(&at(to), transfer.id, transfer.moved, token)
                .await?;
        }
        (TransferState::Out, _, None) => {
            reconciler
                .ledger
                .finish_take_back(transfer, token, "reconciler")
                .await?
        }
        (TransferState::Planned, None, _) | (TransferState::Done, ..) => {}
    }
    Ok(())
}
