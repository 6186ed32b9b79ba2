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

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    batch_size::BatchSize,
    clock,
    due::{self, Due},
    returns,
};

/// Maximum number of holds of one search.
const SEARCH_MAX: usize = 500;

/// After the last search, the pause is so many times as long as it took, at least: the search passes
/// over the lines of carts whose holds have ended, and which end with their cart. Of half a million
/// it reads all, and finds nothing.
const SEARCH_PAUSE_FACTOR: u32 = 2;
const SEARCH_PAUSE_MAX: Duration = Duration::from_secs(5);

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("expiry", ERRORS);
    let interval = reconciler.settings.expiry_interval;
    let mut size = due::batch_size(&*reconciler.ledger);
    loop {
        let pause = match expire_due(&reconciler, &mut size).await {
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

/// Ends holds until none is due. Returns how long the last search took.
async fn expire_due(
    reconciler: &Reconciler,
    size: &mut BatchSize,
) -> Result<Duration, ReconcilerError> {
    let mut due = DueHolds::default();
    due::end_all(reconciler, &mut due, size).await?;
    Ok(due.searched)
}

/// Holds that one search has found, and that have not ended yet.
#[derive(Default)]
struct DueHolds {
    left: Vec<Order>,
    /// How long the search took.
    searched: Duration,
    /// Whether it has found as many as it may: there may be more.
    is_full: bool,
}

impl Due for DueHolds {
    /// Ends as many holds as fit into a transaction, and searches for more if none is left. Returns
    /// the orders that this call ended. Other expirers may have ended some.
    async fn end_next(
        &mut self,
        reconciler: &Reconciler,
        size: &mut BatchSize,
    ) -> Result<Vec<Order>, ReconcilerError> {
        if self.left.is_empty() {
            self.search(reconciler).await?;
        }
        let rest = self.left.split_off(size.rows().min(self.left.len()));
        let batch = std::mem::replace(&mut self.left, rest);
        let (rows, began) = (batch.len(), Instant::now());
        let ended = end_all(reconciler, batch).await;
        // Also after a time-out.
        size.adapt(rows, began.elapsed());
        Ok(ended?)
    }

    fn are_ended(&self) -> bool {
        self.left.is_empty() && !self.is_full
    }
}

impl DueHolds {
    async fn search(&mut self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        let now = clock::now(reconciler).await?;
        let began = Instant::now();
        let found = reconciler.ledger.due(None, now, SEARCH_MAX);
        self.left = with_timeout(reconciler, found).await?;
        self.searched = began.elapsed();
        self.is_full = self.left.len() >= SEARCH_MAX;
        Ok(())
    }
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

/// Orders of one item whose holds have expired at `now`, up to [`SEARCH_MAX`].
pub(crate) async fn due_of(
    ledger: &dyn Ledger,
    id: &ItemId,
    now: Timestamp,
) -> Result<Vec<Order>, LedgerError> {
    ledger.due(Some(id), now, SEARCH_MAX).await
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
