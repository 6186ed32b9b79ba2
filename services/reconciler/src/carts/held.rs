//! Carts whose holds were not paid in time. Many end in one transaction.

use std::{slice, sync::Arc, time::Instant};

use domain::{Cart, CartState, ItemId, Order};
use ledger::{CartStep, ExpiredCarts, LedgerError, SteppedCart};
use supervision::ErrorLatch;

use super::{SEARCH_MAX, count, items, take};
use crate::{
    ERRORS, Reconciler, ReconcilerError,
    batch_size::BatchSize,
    clock,
    due::{self, Due},
    expire::with_timeout,
    returns,
    stuck::{self, Part, Stuck},
};

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("expiry of carts", ERRORS);
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

async fn end_due(reconciler: &Reconciler, size: &mut BatchSize) -> Result<(), ReconcilerError> {
    let mut due = DueCarts::default();
    due::end_all(reconciler, &mut due, size).await?;
    due.stuck.into_result()
}

/// Held carts that one search has found, and that have not ended yet.
#[derive(Default)]
struct DueCarts {
    left: Vec<Cart>,
    /// Whether it has found as many as it may: there may be more.
    is_full: bool,
    /// Whether one of them has ended, or is stuck. If not, another search would find the same.
    has_progressed: bool,
    stuck: Stuck,
}

impl Due for DueCarts {
    /// Ends as many carts as fit into a transaction, and searches for more if none is left.
    async fn end_next(
        &mut self,
        reconciler: &Reconciler,
        size: &mut BatchSize,
    ) -> Result<Vec<Order>, ReconcilerError> {
        if self.left.is_empty() {
            self.search(reconciler).await?;
        }
        let batch = self.take(size.rows());
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let expired = expire(reconciler, &batch).await;
        // Also after a time-out.
        size.adapt(lines(&batch), began.elapsed());
        let ExpiredCarts { ended, left } = match expired {
            Err(error) if stuck::may_be_of_a_part(&error) => {
                self.end_each(reconciler, batch).await?;
                return Ok(Vec::new());
            }
            expired => expired?,
        };
        self.has_progressed |= !ended.is_empty();
        let left = batch.into_iter().filter(|cart| left.contains(&cart.id));
        self.end_each(reconciler, left.collect()).await?;
        Ok(freed(ended))
    }

    fn are_ended(&self) -> bool {
        self.left.is_empty() && !(self.is_full && self.has_progressed)
    }
}

impl DueCarts {
    async fn search(&mut self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        let now = clock::now(reconciler).await?;
        let except = self.stuck.items();
        let due = reconciler.ledger.due_carts(except, now, SEARCH_MAX);
        self.left = with_timeout(reconciler, due).await?;
        self.is_full = self.left.len() >= SEARCH_MAX;
        self.has_progressed = false;
        Ok(())
    }

    /// The next carts, until they have so many lines together.
    fn take(&mut self, lines: usize) -> Vec<Cart> {
        let mut taken = 0;
        let next = self.left.iter().take_while(|cart| {
            let is_short = taken < lines;
            taken += cart.lines.len();
            is_short
        });
        let next = next.count();
        self.left.drain(..next).collect()
    }

    async fn end_each(
        &mut self,
        reconciler: &Reconciler,
        carts: Vec<Cart>,
    ) -> Result<(), ReconcilerError> {
        let carts = carts.into_iter().map(HeldCart).collect();
        self.has_progressed |= self.stuck.end_each(reconciler, carts).await?;
        self.left
            .retain(|cart| !self.stuck.would_wait(&items(cart)));
        Ok(())
    }
}

async fn expire(reconciler: &Reconciler, carts: &[Cart]) -> Result<ExpiredCarts, LedgerError> {
    let expired = reconciler.ledger.expire_carts(carts);
    let expired = with_timeout(reconciler, expired).await?;
    count(CartState::Expired, expired.ended.len());
    Ok(expired)
}

fn lines(carts: &[Cart]) -> usize {
    carts.iter().map(|cart| cart.lines.len()).sum()
}

fn freed(ended: Vec<SteppedCart>) -> Vec<Order> {
    ended.into_iter().flat_map(|ended| ended.freed).collect()
}

/// A held cart that ends alone.
struct HeldCart(Cart);

impl Part for HeldCart {
    fn items(&self) -> Vec<ItemId> {
        items(&self.0)
    }

    /// A step of its own knows what becomes of lines that are not held.
    async fn end(self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        let ExpiredCarts { ended, left } = expire(reconciler, slice::from_ref(&self.0)).await?;
        returns::return_orders(reconciler, &freed(ended)).await;
        if left.is_empty() {
            return Ok(());
        }
        take(reconciler, &CartStep::to(&self.0, CartState::Expired)).await
    }
}
