//! Ends holds that are over.
//!
//! The ledger is told first, with the version that the hold was seen with: against a payment that comes at the same moment one of the two wins. Then the
//! units go back to their segments, where they can be bought again at once. Any number of these may run.

use std::sync::Arc;

use domain::{Order, OrderState};
use jiff::Timestamp;
use ledger::{LedgerError, Transition};

use crate::{Reconciler, returns, trouble::Trouble};

/// Orders in a transaction.
const AT_ONCE: usize = 5000;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let trouble = Trouble::new("expiry");
    loop {
        match expire_due(&reconciler).await {
            Ok(()) => trouble.is_well(),
            Err(error) => trouble.failed(&error),
        }
        if reconciler.pause(reconciler.settings.expire_every).await {
            return;
        }
    }
}

/// Until none is due any more. While one batch goes back to its segments the next one is ended in the ledger.
async fn expire_due(reconciler: &Reconciler) -> Result<(), LedgerError> {
    let mut ended: Vec<Order> = Vec::new();
    loop {
        let (_, next) = tokio::join!(returns::give_back_orders(reconciler, &ended), expire_batch(reconciler));
        let (due, expired) = next?;
        ended = expired;
        if due < AT_ONCE || reconciler.stop.is_cancelled() {
            returns::give_back_orders(reconciler, &ended).await;
            return Ok(());
        }
    }
}

/// How many were due, and those that this ended: others may have been faster.
async fn expire_batch(reconciler: &Reconciler) -> Result<(usize, Vec<Order>), LedgerError> {
    let due = reconciler.ledger.due(Timestamp::now(), AT_ONCE).await?;
    let transitions: Vec<_> = due.into_iter().map(|order| Transition { order, to: OrderState::Expired, payment: None }).collect();
    if transitions.is_empty() {
        return Ok((0, Vec::new()));
    }
    let expired: Vec<_> = reconciler.ledger.transition(&transitions).await?.into_iter().flatten().collect();
    owe_refunds(reconciler, &expired).await?;
    metrics::counter!("stockade_transitions_total", "to" => OrderState::Expired.as_str()).increment(expired.len() as u64);
    Ok((transitions.len(), expired))
}

/// An order that has a payment and was held anew for it, by somebody who did not get to confirm it: the money is to be given back.
async fn owe_refunds(reconciler: &Reconciler, expired: &[Order]) -> Result<(), LedgerError> {
    let paid = expired.iter().filter(|order| order.payment.is_some());
    let owed: Vec<_> = paid.map(|order| Transition { order: order.clone(), to: OrderState::RefundDue, payment: None }).collect();
    if !owed.is_empty() {
        reconciler.ledger.transition(&owed).await?;
    }
    Ok(())
}
