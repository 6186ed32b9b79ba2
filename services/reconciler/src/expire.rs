//! Expires holds.
//!
//! The ledger changes first, by compare-and-set on the version that was read: if a payment arrives
//! concurrently, exactly one of the two wins. Then the units return to their segments, where they
//! can be sold again immediately. Any number of expirers may run.

use std::{
    collections::BTreeMap,
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, Order, OrderState};
use jiff::Timestamp;
use ledger::{ItemScope, Ledger, LedgerError};
use supervision::ErrorLatch;
use tokio::time::timeout;

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    batch_size::BatchSize,
    clock,
    due::{self, Due},
    returns,
    stuck::{self, Part, Stuck},
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
    due.stuck.into_result()?;
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
    stuck: Stuck,
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
        let rows = size.rows().min(self.left.len());
        let batch: Vec<_> = self.left.drain(..rows).collect();
        let began = Instant::now();
        let ended = end(reconciler, &batch).await;
        // Also after a time-out.
        size.adapt(rows, began.elapsed());
        match ended {
            Err(error) if stuck::may_be_of_a_part(&error) => {
                self.end_by_sale(reconciler, batch).await?;
                Ok(Vec::new())
            }
            ended => Ok(ended?),
        }
    }

    fn are_ended(&self) -> bool {
        self.left.is_empty() && !self.is_full
    }
}

impl DueHolds {
    async fn search(&mut self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        let now = clock::now(reconciler).await?;
        let began = Instant::now();
        let scope = ItemScope::Except(self.stuck.items());
        let found = reconciler.ledger.due(scope, now, SEARCH_MAX);
        self.left = with_timeout(reconciler, found).await?;
        self.searched = began.elapsed();
        self.is_full = self.left.len() >= SEARCH_MAX;
        Ok(())
    }

    async fn end_by_sale(
        &mut self,
        reconciler: &Reconciler,
        batch: Vec<Order>,
    ) -> Result<(), ReconcilerError> {
        let mut sales: BTreeMap<ItemId, Vec<Order>> = BTreeMap::new();
        for order in batch {
            sales.entry(order.item.clone()).or_default().push(order);
        }
        let sales = sales.into_values().map(SaleHolds).collect();
        self.stuck.end_each(reconciler, sales).await?;
        self.left
            .retain(|order| !self.stuck.would_wait(slice::from_ref(&order.item)));
        Ok(())
    }
}

/// The due holds of one sale.
struct SaleHolds(Vec<Order>);

impl Part for SaleHolds {
    fn items(&self) -> Vec<ItemId> {
        let first = self.0.first().map(|order| order.item.clone());
        first.into_iter().collect()
    }

    /// One by one, if the ledger refuses some of them.
    async fn end(self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        match end(reconciler, &self.0).await {
            Ok(ended) => {
                returns::return_orders(reconciler, &ended).await;
                Ok(())
            }
            Err(error) if error.is_retryable() => Err(error.into()),
            Err(_) => end_each(reconciler, &self.0).await,
        }
    }
}

/// Expires the due holds of one item.
pub(crate) async fn expire_item(
    reconciler: &Reconciler,
    id: &ItemId,
) -> Result<(), ReconcilerError> {
    let now = clock::now(reconciler).await?;
    let due = due_of(&*reconciler.ledger, id, now).await?;
    SaleHolds(due).end(reconciler).await
}

/// Orders of one item whose holds have expired at `now`, up to [`SEARCH_MAX`].
pub(crate) async fn due_of(
    ledger: &dyn Ledger,
    id: &ItemId,
    now: Timestamp,
) -> Result<Vec<Order>, LedgerError> {
    ledger.due(ItemScope::Only(id), now, SEARCH_MAX).await
}

/// Ends these holds in one transaction, and returns the orders that this call ended.
async fn end(reconciler: &Reconciler, due: &[Order]) -> Result<Vec<Order>, LedgerError> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let ended = with_timeout(reconciler, reconciler.ledger.expire_orders(due)).await?;
    metrics::counter!("stockade_transitions_total", "to" => OrderState::Expired.as_str())
        .increment(ended.len() as u64);
    Ok(ended)
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

/// Ends each hold in a transaction of its own: one that the ledger refuses must not keep the others from
/// their end. Returns the first refusal, after all, or why they could not be tried.
async fn end_each(reconciler: &Reconciler, holds: &[Order]) -> Result<(), ReconcilerError> {
    let (mut freed, mut failure) = (Vec::new(), Ok(()));
    for hold in holds {
        match end(reconciler, slice::from_ref(hold)).await {
            Ok(ended) => freed.extend(ended),
            Err(error) if error.is_retryable() => {
                failure = Err(error.into());
                break;
            }
            Err(error) => {
                tracing::error!(order = %hold.id, error = &error as &dyn std::error::Error, "could not end a hold");
                failure = failure.and(Err(error.into()));
            }
        }
        if reconciler.stop.is_cancelled() {
            break;
        }
    }
    returns::return_orders(reconciler, &freed).await;
    failure
}
