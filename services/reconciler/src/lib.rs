//! The reconciler: ends holds that are over, brings every unit home, watches the identity, and makes what disagrees agree again.
//!
//! Two kinds of work. What may be done by anybody at any time, twice or at once, needs no lock: expiring holds (a version decides), repeating
//! returns and settling walks (answers never change). What decides on what it has looked at (mending a segment, moving units) is done
//! under the item's fenced lock: the ledger takes only what carries the highest token and the version that was decided on, and so do the
//! segments. A reconciler that was stopped and wakes up after its lease has lost the lock and is refused by all of them.
//!
//! This service only assembles `stock`, `ledger`, `audit` and `lock`. It must not know HTTP, a key name or a table name.

mod authority;
mod balance;
mod evidence;
mod expire;
mod explain;
mod identity;
mod mend;
mod needs;
mod returns;
mod round;
mod transfers;
mod trouble;
mod walks;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use audit::AuditError;
use domain::ItemId;
use futures::FutureExt;
use ledger::{Ledger, LedgerError};
use lock::{Lock, LockError};
use stock::{ItemStock, Stock, StockError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use explain::{Explanation, Step, explain, reconcile_once};

/// How the reconciler works.
#[derive(Debug, Clone)]
pub struct ReconcilerSettings {
    /// How often to look at items that are selling.
    pub round_every: Duration,
    /// How often to look for holds that are over.
    pub expire_every: Duration,
    /// How long a return may be pending before it is repeated: whoever ended the order does it at once.
    pub return_after: Duration,
    /// How long a difference must stand, unchanged, before it is repaired.
    pub confirm_for: Duration,
    /// How often the orders of an item are summed up and held against its counters.
    pub audit_every: Duration,
    /// How long the ledger may take to say which holds are over, or to end a batch of them, before it is asked again.
    pub ledger_within: Duration,
    /// Whether to move units between segments.
    pub balance: bool,
}

impl Default for ReconcilerSettings {
    fn default() -> Self {
        Self {
            round_every: Duration::from_millis(250),
            expire_every: Duration::from_millis(200),
            return_after: Duration::from_secs(1),
            confirm_for: Duration::from_secs(1),
            audit_every: Duration::from_secs(60),
            ledger_within: Duration::from_secs(30),
            balance: true,
        }
    }
}

/// Why something was not reconciled. It is tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcilerError {
    /// Redis did not.
    #[error("the stock did not answer, or refused")]
    Stock(#[from] StockError),
    /// SQL did not.
    #[error("the ledger did not answer, or refused")]
    Ledger(#[from] LedgerError),
    /// The lock was not given, or was lost.
    #[error("the item's lock was not given, or was lost")]
    Lock(#[from] LockError),
}

impl From<AuditError> for ReconcilerError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Stock(error) => error.into(),
            AuditError::Ledger(error) => error.into(),
        }
    }
}

/// What the tasks of a reconciler share.
pub(crate) struct Reconciler {
    pub stock: Arc<Stock>,
    pub ledger: Arc<dyn Ledger>,
    pub lock: Arc<dyn Lock>,
    pub settings: ReconcilerSettings,
    pub stop: CancellationToken,
}

impl Reconciler {
    /// The item's stock, if there is such an item.
    pub(crate) async fn item_stock(
        &self,
        id: &ItemId,
    ) -> Result<Option<Arc<ItemStock>>, LedgerError> {
        if let Some(known) = self.stock.known_item(id) {
            return Ok(Some(known));
        }
        Ok(self
            .ledger
            .item(id)
            .await?
            .map(|item| self.stock.item(&item)))
    }

    /// Whether the end came first.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.stop.cancelled())
            .await
            .is_ok()
    }
}

/// Reconciles until `stop`. Dropping it ends everything at once: what was begun is repeated by whoever comes next.
pub async fn run(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    settings: ReconcilerSettings,
    stop: CancellationToken,
) {
    let reconciler = Arc::new(Reconciler {
        stock,
        ledger,
        lock,
        settings,
        stop: stop.child_token(),
    });
    let mut tasks = JoinSet::new();
    let [expirer, returner, rounds] = [0; 3].map(|_| Arc::clone(&reconciler));
    tasks.spawn(keep("expiry", move || expire::run(Arc::clone(&expirer))));
    tasks.spawn(keep("returns", move || returns::run(Arc::clone(&returner))));
    tasks.spawn(keep("rounds", move || round::run(Arc::clone(&rounds))));
    while tasks.join_next().await.is_some() {}
}

/// Starts the task again if it panics: nothing else would do its work.
async fn keep<F: Future<Output = ()>>(what: &'static str, task: impl Fn() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!(what, "a panic ended it; it is started again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
