//! Ends carts whose time is over: holds that were not paid, and carts whose placing was abandoned.
//!
//! The ledger changes first, by compare-and-set on the version that was read, all lines at once. If
//! a payment arrives concurrently, or a request that is still placing the cart, exactly one of the
//! two wins. A cart that has failed is looked at until no line of it can be recorded any more,
//! because a request that was under way may have taken units for one after the end.

use std::{sync::Arc, time::Instant};

use domain::{Cart, CartRefusal, CartState, Order, RefusalReason};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use ledger::{CartStep, ExpiredCarts, LedgerError};
use supervision::ErrorLatch;

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    batch_size::BatchSize,
    clock,
    due::{self, Due},
    expire::with_timeout,
    returns,
};

/// Carts of one search.
const SEARCH_MAX: usize = 500;
/// Carts that are ended concurrently, each in a transaction of its own.
const CART_CONCURRENCY: usize = 8;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("carts", ERRORS);
    let mut size = due::batch_size(&*reconciler.ledger);
    loop {
        match end_due(&reconciler, &mut size).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        if reconciler.pause(reconciler.settings.expiry_interval).await {
            return;
        }
    }
}

/// Ends carts until none is due. One that cannot be ended does not keep the others from their end.
async fn end_due(reconciler: &Reconciler, size: &mut BatchSize) -> Result<(), ReconcilerError> {
    let mut due = DueCarts::default();
    due::end_all(reconciler, &mut due, size).await?;
    due.error.map_or(Ok(()), Err)
}

/// Carts that one search has found, and that have not ended yet.
#[derive(Default)]
struct DueCarts {
    /// These are held, and end together.
    held: Vec<Cart>,
    /// Each of these ends in a transaction of its own.
    alone: Vec<Cart>,
    /// When the search was made.
    now: Timestamp,
    /// Whether it has found as many as it may: there may be more.
    is_full: bool,
    /// Whether one of them has ended. If none has, another search would find the same.
    has_progressed: bool,
    /// Why a cart could not be ended.
    error: Option<ReconcilerError>,
}

impl Due for DueCarts {
    /// Ends the carts that end alone, or as many held ones as fit into a transaction. Searches for more
    /// if none is left.
    async fn end_next(
        &mut self,
        reconciler: &Reconciler,
        size: &mut BatchSize,
    ) -> Result<Vec<Order>, ReconcilerError> {
        if self.held.is_empty() && self.alone.is_empty() {
            self.search(reconciler).await?;
        }
        if !self.alone.is_empty() {
            self.end_each(reconciler).await;
            return Ok(Vec::new());
        }
        let batch = self.take(size.rows());
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let expired = with_timeout(reconciler, reconciler.ledger.expire_carts(&batch)).await;
        // Also after a time-out.
        size.adapt(lines(&batch), began.elapsed());
        let ExpiredCarts { ended, left } = match expired {
            Ok(expired) => expired,
            Err(error) if may_be_of_one(&error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    carts = batch.len(),
                    "could not end a batch of carts, ending them one by one"
                );
                self.alone = batch;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        };
        count(CartState::Expired, ended.len());
        self.has_progressed |= !ended.is_empty();
        let left = batch.into_iter().filter(|cart| left.contains(&cart.id));
        self.alone = left.collect();
        Ok(ended.into_iter().flat_map(|ended| ended.freed).collect())
    }

    fn are_ended(&self) -> bool {
        let are_all_tried = self.held.is_empty() && self.alone.is_empty();
        are_all_tried && !(self.is_full && self.has_progressed)
    }
}

impl DueCarts {
    async fn search(&mut self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        self.now = clock::now(reconciler).await?;
        let due = reconciler.ledger.due_carts(self.now, SEARCH_MAX);
        let due = with_timeout(reconciler, due).await?;
        self.is_full = due.len() >= SEARCH_MAX;
        self.has_progressed = false;
        let is_held = |cart: &Cart| cart.state == CartState::Held;
        (self.held, self.alone) = due.into_iter().partition(is_held);
        Ok(())
    }

    /// The next held carts, until they have so many lines together.
    fn take(&mut self, lines: usize) -> Vec<Cart> {
        let mut taken = 0;
        let next = self.held.iter().take_while(|cart| {
            let is_short = taken < lines;
            taken += cart.lines.len();
            is_short
        });
        let next = next.count();
        let rest = self.held.split_off(next);
        std::mem::replace(&mut self.held, rest)
    }

    /// Ends each of the carts that end alone. Where the ledger does not answer, or rows of the sale are
    /// locked, it waits for a few of them and not for all: what is left is found again.
    async fn end_each(&mut self, reconciler: &Reconciler) {
        let (carts, now) = (std::mem::take(&mut self.alone), self.now);
        let ended = stream::iter(carts).map(|cart| end(reconciler, cart, now));
        let mut ended = ended.buffer_unordered(CART_CONCURRENCY);
        let mut unanswered = 0;
        while let Some(ended) = ended.next().await {
            match ended {
                Ok(()) => self.has_progressed = true,
                Err(error) => {
                    unanswered += usize::from(is_unanswered(&error));
                    self.error = self.error.take().or(Some(error));
                }
            }
            if unanswered >= CART_CONCURRENCY || reconciler.stop.is_cancelled() {
                return;
            }
        }
    }
}

fn lines(carts: &[Cart]) -> usize {
    carts.iter().map(|cart| cart.lines.len()).sum()
}

/// Whether the others might have ended without one of the carts: the ledger refuses it, a line of it has
/// changed, or it waits for a row that something else has locked.
fn may_be_of_one(error: &LedgerError) -> bool {
    !error.is_retryable() || is_slow(error) || matches!(error, LedgerError::CartSuperseded(_))
}

fn is_unanswered(error: &ReconcilerError) -> bool {
    matches!(error, ReconcilerError::Ledger(error) if is_slow(error))
}

fn is_slow(error: &LedgerError) -> bool {
    matches!(
        error,
        LedgerError::NoAnswer(_) | LedgerError::TimedOut { .. }
    )
}

fn count(to: CartState, carts: usize) {
    metrics::counter!("stockade_carts_total", "to" => to.as_str()).increment(carts as u64);
}

/// Ends the cart, unless something else has changed it.
async fn end(reconciler: &Reconciler, cart: Cart, now: Timestamp) -> Result<(), ReconcilerError> {
    let step = match cart.state {
        CartState::Placing => CartStep {
            refusal: Some(CartRefusal {
                reason: RefusalReason::TimedOut,
                item: None,
            }),
            ..CartStep::to(&cart, CartState::Failed)
        },
        CartState::Failed => CartStep {
            is_settled: is_settled(reconciler, &cart, now).await?,
            ..CartStep::to(&cart, CartState::Failed)
        },
        _ => CartStep::to(&cart, CartState::Expired),
    };
    let stepped = with_timeout(reconciler, reconciler.ledger.step_cart(&step)).await?;
    let Some(stepped) = stepped else {
        return Ok(());
    };
    if cart.state != step.to {
        count(step.to, 1);
    }
    returns::return_orders(reconciler, &stepped.freed).await;
    Ok(())
}

/// Whether no line can be recorded any more: no request may take units for the cart, no spillover
/// of a line is open, and no outbox has a line that the ledger lacks.
async fn is_settled(
    reconciler: &Reconciler,
    cart: &Cart,
    now: Timestamp,
) -> Result<bool, ReconcilerError> {
    if CartStep::may_take(cart, now) {
        return Ok(false);
    }
    for line in &cart.lines {
        let Some(item) = reconciler.item_stock(&line.item).await? else {
            continue;
        };
        let recorded = reconciler.ledger.order(line.order).await?;
        if recorded.is_none()
            && (item.is_undecided(&cart.buyer, line.order).await?
                || item.find_unrecorded(line.order).await?.is_some())
        {
            return Ok(false);
        }
    }
    Ok(true)
}
