//! What cannot be ended now must not keep the rest from its end.
//!
//! A batch fails as a whole where the ledger refuses one of its orders, or where something else has
//! locked the rows of one sale. So the parts of such a batch end apart, and the sales of those that
//! fail again are left out until the next pass: the searches of this one find what is behind them.

use domain::ItemId;
use futures::{StreamExt, stream::FuturesUnordered};
use ledger::LedgerError;

use crate::{Reconciler, ReconcilerError};

/// Parts that end concurrently, each in a transaction of its own.
const CONCURRENCY: usize = 8;
/// After so many sales, one after another, for which the ledger did not answer, it does not answer at
/// all.
const UNANSWERED_MAX: usize = 2 * CONCURRENCY;

/// What ends in a transaction of its own.
pub(crate) trait Part {
    /// The items of its orders.
    fn items(&self) -> Vec<ItemId>;

    /// Ends it, and returns its units to their segments.
    async fn end(self, reconciler: &Reconciler) -> Result<(), ReconcilerError>;
}

/// Sales of which something could not be ended in this pass.
#[derive(Default)]
pub(crate) struct Stuck {
    /// The searches of this pass leave them out.
    items: Vec<ItemId>,
    /// The items of each part that waited in vain. What has all items of one would wait as well.
    waited: Vec<Vec<ItemId>>,
    error: Option<ReconcilerError>,
}

impl Stuck {
    pub(crate) fn items(&self) -> &[ItemId] {
        &self.items
    }

    /// Whether something with these items would wait in vain.
    pub(crate) fn would_wait(&self, items: &[ItemId]) -> bool {
        let has_all = |waited: &Vec<ItemId>| waited.iter().all(|item| items.contains(item));
        self.waited.iter().any(has_all)
    }

    /// Why one of them is stuck.
    pub(crate) fn into_result(self) -> Result<(), ReconcilerError> {
        self.error.map_or(Ok(()), Err)
    }

    /// Ends each part by itself, without those that would wait in vain. Returns whether one of them has
    /// ended, or another sale is stuck. An error is one of the whole ledger.
    pub(crate) async fn end_each<P: Part>(
        &mut self,
        reconciler: &Reconciler,
        parts: Vec<P>,
    ) -> Result<bool, ReconcilerError> {
        let mut parts = parts.into_iter();
        let mut under_way = FuturesUnordered::new();
        let (mut has_progressed, mut unanswered) = (false, 0);
        loop {
            while under_way.len() < CONCURRENCY && !reconciler.stop.is_cancelled() {
                let is_free = |part: &P| !self.would_wait(&part.items());
                let Some(part) = parts.find(is_free) else {
                    break;
                };
                let items = part.items();
                under_way.push(async { (items, part.end(reconciler).await) });
            }
            let Some((items, end)) = under_way.next().await else {
                return Ok(has_progressed);
            };
            let Err(error) = end else {
                (has_progressed, unanswered) = (true, 0);
                continue;
            };
            if is_of_all(&error) {
                return Err(error);
            }
            unanswered = match is_unanswered(&error) {
                true => unanswered + usize::from(!self.would_wait(&items)),
                false => 0,
            };
            if unanswered >= UNANSWERED_MAX {
                return Err(error);
            }
            has_progressed |= self.add(items, error);
        }
    }

    /// Returns whether one of the items was not stuck before.
    fn add(&mut self, items: Vec<ItemId>, error: ReconcilerError) -> bool {
        let before = self.items.len();
        for item in &items {
            if !self.items.contains(item) {
                tracing::warn!(%item, error = &error as &dyn std::error::Error, "could not end all that is due of an item, which is left to the next pass");
                self.items.push(item.clone());
            }
        }
        if (is_unanswered(&error) || matches!(error, ReconcilerError::Stock(_)))
            && !self.would_wait(&items)
        {
            self.waited.push(items);
        }
        self.error.get_or_insert(error);
        self.items.len() > before
    }
}

/// Whether a batch may have failed because of a part of it: the ledger refuses it, a line of a cart has
/// changed, or it waits for a row that something else has locked.
pub(crate) fn may_be_of_a_part(error: &LedgerError) -> bool {
    !error.is_retryable() || is_slow(error) || matches!(error, LedgerError::CartSuperseded(_))
}

/// Whether any other part would have failed as well.
fn is_of_all(error: &ReconcilerError) -> bool {
    matches!(error, ReconcilerError::Ledger(error) if !may_be_of_a_part(error))
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
