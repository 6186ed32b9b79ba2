//! Expires holds.
//!
//! The ledger changes first, by compare-and-set on the version that was read: if a payment arrives
//! concurrently, exactly one of the two wins. Then the units return to their segments, where they
//! can be sold again immediately. Any number of expirers may run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, Order, OrderState};
use jiff::Timestamp;
use ledger::{Ledger, LedgerError, Transition};
use supervision::ErrorLatch;
use tokio::time::timeout;

use crate::{ERRORS, Reconciler, ReconcilerError, clock, returns};

/// Maximum number of orders in a transaction. Orders of other items wait for the ledger behind it.
const EXPIRY_BATCH_MAX: usize = 500;

/// After a full batch, the pause is so many times as long as the batch took: the ledger belongs to
/// the orders for a third of the time. Half a million holds that expire together still end within a
/// minute.
pub(crate) const PAUSE_FACTOR: f64 = 0.5;

/// After the last batch, the pause is so many times as long as the search for it, at least: the search
/// passes over the lines of carts whose holds have ended, and which end with their cart. Of half a
/// million it reads all, and finds nothing.
const SEARCH_PAUSE_FACTOR: u32 = 2;
const SEARCH_PAUSE_MAX: Duration = Duration::from_secs(5);

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("expiry", ERRORS);
    let interval = reconciler.settings.expiry_interval;
    loop {
        let pause = match expire_due(&reconciler).await {
            Ok(searched) => {
                error_latch.recovered();
                interval.max((searched * SEARCH_PAUSE_FACTOR).min(SEARCH_PAUSE_MAX))
            }
            Err(error) => {
                error_latch.failed(&error);
                interval
            }
        };
        if reconciler.pause(pause).await {
            return;
        }
    }
}

/// Expires batches until no hold is due, with a pause after each. While the units of one batch
/// return to their segments, the ledger ends the next batch. Returns how long the last search took.
async fn expire_due(reconciler: &Reconciler) -> Result<Duration, ReconcilerError> {
    let mut ended: Vec<Order> = Vec::new();
    loop {
        let began = Instant::now();
        let (_, next) = tokio::join!(
            returns::return_orders(reconciler, &ended),
            expire_batch(reconciler)
        );
        let Batch {
            due,
            searched,
            expired,
        } = next?;
        ended = expired;
        let is_last = due < EXPIRY_BATCH_MAX;
        if is_last
            || reconciler
                .pause(began.elapsed().mul_f64(PAUSE_FACTOR))
                .await
        {
            returns::return_orders(reconciler, &ended).await;
            return Ok(searched);
        }
    }
}

/// Holds that were due together.
struct Batch {
    /// How many.
    due: usize,
    /// How long it took to find them.
    searched: Duration,
    /// The orders that this call ended. Other expirers may have ended some.
    expired: Vec<Order>,
}

async fn expire_batch(reconciler: &Reconciler) -> Result<Batch, ReconcilerError> {
    let now = clock::now(reconciler).await?;
    let began = Instant::now();
    let due = with_timeout(
        reconciler,
        reconciler.ledger.due(None, now, EXPIRY_BATCH_MAX),
    )
    .await?;
    Ok(Batch {
        due: due.len(),
        searched: began.elapsed(),
        expired: end_all(reconciler, due).await?,
    })
}

/// Ends these holds, and returns the orders that this call ended.
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

/// Expires the due holds of one item.
pub(crate) async fn expire_item(
    reconciler: &Reconciler,
    id: &ItemId,
) -> Result<(), ReconcilerError> {
    let now = clock::now(reconciler).await?;
    let ended = end_all(reconciler, due_of(&*reconciler.ledger, id, now).await?).await?;
    returns::return_orders(reconciler, &ended).await;
    Ok(())
}

/// Orders of one item whose holds have expired at `now`, up to [`EXPIRY_BATCH_MAX`].
pub(crate) async fn due_of(
    ledger: &dyn Ledger,
    id: &ItemId,
    now: Timestamp,
) -> Result<Vec<Order>, LedgerError> {
    ledger.due(Some(id), now, EXPIRY_BATCH_MAX).await
}

async fn end(
    reconciler: &Reconciler,
    transitions: &[Transition],
) -> Result<Vec<Order>, LedgerError> {
    Ok(
        with_timeout(reconciler, reconciler.ledger.transition(transitions))
            .await?
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// Gives up on a ledger that does not answer. The next round retries; holds whose end was committed
/// meanwhile are not due any more.
pub(crate) async fn with_timeout<T>(
    reconciler: &Reconciler,
    call: impl Future<Output = Result<T, LedgerError>>,
) -> Result<T, LedgerError> {
    let limit = reconciler.settings.ledger_timeout;
    timeout(limit, call)
        .await
        .unwrap_or(Err(LedgerError::NoAnswer(limit)))
}

/// Retries each hold separately: an error may belong to one of them, and must not block the others.
async fn end_each(
    reconciler: &Reconciler,
    transitions: &[Transition],
    all: &LedgerError,
) -> Result<Vec<Order>, LedgerError> {
    tracing::warn!(
        error = all as &dyn std::error::Error,
        holds = transitions.len(),
        "could not end a batch of holds, ending them one by one"
    );
    let mut ended = Vec::new();
    for transition in transitions {
        match end(reconciler, std::slice::from_ref(transition)).await {
            Ok(orders) => ended.extend(orders),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                tracing::error!(order = %transition.order.id, error = &error as &dyn std::error::Error, "could not end a hold")
            }
        }
    }
    Ok(ended)
}
