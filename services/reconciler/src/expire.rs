//! Ends holds that are over.
//!
//! The ledger is told first, with the version that the hold was seen with: against a payment that comes at the same moment one of the two wins. Then the
//! units go back to their segments, where they can be bought again at once. Any number of these may run.

use std::sync::Arc;

use domain::{ItemId, Order, OrderState};
use jiff::Timestamp;
use ledger::{Ledger, LedgerError, Transition};
use tokio::time::timeout;

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
        let (_, next) = tokio::join!(
            returns::give_back_orders(reconciler, &ended),
            expire_batch(reconciler)
        );
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
    let due = in_time(
        reconciler,
        reconciler.ledger.due(None, Timestamp::now(), AT_ONCE),
    )
    .await?;
    let found = due.len();
    Ok((found, end_all(reconciler, due).await?))
}

/// Ends these, and returns those that this ended.
async fn end_all(reconciler: &Reconciler, due: Vec<Order>) -> Result<Vec<Order>, LedgerError> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let transitions: Vec<_> = due
        .into_iter()
        .map(|order| Transition {
            order,
            to: OrderState::Expired,
            payment: None,
        })
        .collect();
    let expired = match end(reconciler, &transitions).await {
        Ok(expired) => expired,
        Err(error) if error.is_retryable() => return Err(error),
        Err(error) => end_each(reconciler, &transitions, &error).await?,
    };
    metrics::counter!("stockade_transitions_total", "to" => OrderState::Expired.as_str())
        .increment(expired.len() as u64);
    Ok(expired)
}

/// Ends those of one item that are over.
pub(crate) async fn expire_item(reconciler: &Reconciler, id: &ItemId) -> Result<(), LedgerError> {
    let ended = end_all(reconciler, due_of(&*reconciler.ledger, id).await?).await?;
    returns::give_back_orders(reconciler, &ended).await;
    Ok(())
}

/// Orders of one item whose holds are over, the first of them.
pub(crate) async fn due_of(ledger: &dyn Ledger, id: &ItemId) -> Result<Vec<Order>, LedgerError> {
    ledger.due(Some(id), Timestamp::now(), AT_ONCE).await
}

async fn end(
    reconciler: &Reconciler,
    transitions: &[Transition],
) -> Result<Vec<Order>, LedgerError> {
    Ok(
        in_time(reconciler, reconciler.ledger.transition(transitions))
            .await?
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// A ledger that does not answer is given up: the next round asks again, and what was committed meanwhile is not due any more.
async fn in_time<T>(
    reconciler: &Reconciler,
    asked: impl Future<Output = Result<T, LedgerError>>,
) -> Result<T, LedgerError> {
    let within = reconciler.settings.ledger_within;
    timeout(within, asked)
        .await
        .unwrap_or(Err(LedgerError::NoAnswer(within)))
}

/// An error belongs to one of them, perhaps, and must not keep the others from being ended for ever.
async fn end_each(
    reconciler: &Reconciler,
    transitions: &[Transition],
    all: &LedgerError,
) -> Result<Vec<Order>, LedgerError> {
    tracing::warn!(
        error = all as &dyn std::error::Error,
        holds = transitions.len(),
        "a batch of holds could not be ended: one by one"
    );
    let mut ended = Vec::new();
    for transition in transitions {
        match end(reconciler, std::slice::from_ref(transition)).await {
            Ok(orders) => ended.extend(orders),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                tracing::error!(order = %transition.order.id, error = &error as &dyn std::error::Error, "a hold could not be ended")
            }
        }
    }
    Ok(ended)
}
