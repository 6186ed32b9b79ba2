//! The reconciler: expires holds, returns units to their segments, checks the conservation
//! invariant, repairs segments that violate it, and deletes what is left of old sales.
//!
//! There are two kinds of work. Some work may run at any time, repeatedly and concurrently, and
//! needs no lock: expiring holds (a version decides), and repeating returns and settling spillovers
//! (recorded decisions never change). Other work decides on a snapshot: repairing segments and
//! moving units. It runs under the item's fenced lock. Ledger and segments accept only the highest
//! token and the version that was decided on. A reconciler that stalls and resumes after its lease
//! has lost the lock, and all of them refuse its writes.
//!
//! This service only connects `stock`, `ledger`, `audit` and `lock`. It contains no HTTP, no key
//! name and no table name.

mod anomaly;
mod archive;
mod archive_once;
mod archives;
mod audits;
mod balance;
mod batch_size;
mod carts;
mod clock;
mod close;
mod confirmation;
mod drops;
mod due;
mod expire;
mod gauges;
mod home_check;
mod invariant;
mod item_gauges;
mod item_lock;
mod lock_log;
mod plan;
mod rebuild;
mod reconcile_loop;
mod repair;
mod restore;
mod returns;
mod spillovers;
mod stuck;
mod transfers;
mod wakeups;
mod waves;

use std::{path::PathBuf, sync::Arc, time::Duration};

use audit::AuditError;
use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use ledger::{Ledger, LedgerError, Pace as _, WithoutPause};
use lock::{FencingToken, Lock, LockError};
use stock::{ItemStock, Stock, StockError, WokenItems};
use supervision::supervise;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{archives::Archives, audits::Audits, gauges::Backlog};

pub use archive_once::{Archived, archive_once};
pub use drops::{DropError, Dropped, drop_once};
pub use lock_log::LockLog;
pub use plan::{Plan, Step, plan, reconcile_once};
pub use rebuild::rebuild_once;

/// Settings of the reconciler.
#[derive(Debug, Clone)]
pub struct ReconcilerSettings {
    /// How often to poll items that are selling.
    pub poll_interval: Duration,
    /// How often to look up holds that have expired.
    pub expiry_interval: Duration,
    /// How long a return may be pending before the reconciler repeats it. Normally the service that
    /// ended the order returns the units immediately.
    pub return_delay: Duration,
    /// How long an anomaly must persist, unchanged, before it is repaired.
    pub confirmation_period: Duration,
    /// How often the orders of an item are compared with its counters, at most. An item whose rows
    /// have not changed since its last good audit is not looked at again.
    pub audit_interval: Duration,
    /// How often they are summed up without a change, about.
    pub full_audit_interval: Duration,
    /// About how many orders an audit reads at a time.
    pub audit_piece: u64,
    /// An item with at most so many orders is summed up whenever it has changed. Of a larger one
    /// only what has changed is compared.
    pub audit_walked: u64,
    /// How often to look up items that are to be dropped.
    pub drop_interval: Duration,
    /// How long the ledger may take to list expired holds, or to end a batch of them, before the
    /// request is retried.
    pub ledger_timeout: Duration,
    /// How many orders a repair reads at a time. It bounds the memory that a repair needs.
    pub repair_page: usize,
    /// Whether to move units between segments.
    pub balance: bool,
    /// How long after the end of its window an item is closed. Orders of the last moment may still
    /// be trying segments, so it is at least the time that an order may take. After a failover,
    /// homes are checked after twice this time.
    pub close_delay: Duration,
    /// How long after its end a closed and settled item is archived. `None`: only on request.
    pub archive_after: Option<Duration>,
    /// How long after its archive an item is dropped. `None`: only on request.
    pub drop_after: Option<Duration>,
    /// The folder of the exports of items that are dropped. `None`: nothing is dropped.
    pub drop_exports: Option<PathBuf>,
    /// This process's clock. Redis's is compared with it before a hold ends or an item is closed,
    /// and that of the ledger, too, before an item is archived by itself.
    pub clock: fn() -> Timestamp,
    /// Gets the item locks that the reconciler takes.
    pub locks: Arc<LockLog>,
}

impl Default for ReconcilerSettings {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(250),
            expiry_interval: Duration::from_millis(200),
            return_delay: Duration::from_secs(1),
            confirmation_period: Duration::from_secs(1),
            audit_interval: Duration::from_secs(60),
            full_audit_interval: Duration::from_secs(24 * 3600),
            audit_piece: WithoutPause.piece_orders(),
            audit_walked: 100_000,
            drop_interval: Duration::from_secs(5),
            ledger_timeout: Duration::from_secs(30),
            repair_page: 10_000,
            balance: true,
            close_delay: Duration::from_secs(5),
            archive_after: None,
            drop_after: None,
            drop_exports: None,
            clock: Timestamp::now,
            locks: Arc::default(),
        }
    }
}

/// Why reconciling failed. It is retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcilerError {
    /// A call of Redis failed.
    #[error("a stock operation failed")]
    Stock(#[from] StockError),
    /// A call of the ledger failed.
    #[error("a ledger operation failed")]
    Ledger(#[from] LedgerError),
    /// The ledger has a final audit that this release cannot read.
    #[error("failed to read the final audit")]
    FinalAudit(#[from] serde_json::Error),
    /// The item's lock could not be acquired, or was lost.
    #[error("the item's lock could not be acquired, or was lost")]
    Lock(#[from] LockError),
    /// Another process has held the item's lock for the whole time.
    #[error(
        "another process has held the item's lock for the whole time: is a reconciler running?"
    )]
    Locked,
    /// This process's clock and Redis's differ so much that one of them is wrong.
    #[error(
        "this process's clock is {ahead_seconds} seconds ahead of Redis's (negative: behind), so no hold is ended: \
         synchronize the clocks (NTP)"
    )]
    Clock {
        /// Seconds by which this process's clock is ahead.
        ahead_seconds: i64,
    },
    /// This process's clock and the ledger's differ so much that one of them is wrong.
    #[error("the clock of the ledger's server is another one, so no item is archived")]
    LedgerClock(#[from] ledger::ClocksDiffer),
}

impl ReconcilerError {
    /// The higher token that the item's row or a segment has seen, if that is the reason and a lock
    /// can issue one above it. It cannot if the segment is the tombstone of an archived item.
    pub(crate) fn fence(&self) -> Option<FencingToken> {
        let (Self::Ledger(LedgerError::Fenced { fence, .. })
        | Self::Stock(StockError::Fenced { fence, .. })) = self
        else {
            return None;
        };
        let token = i64::try_from(*fence).ok().and_then(FencingToken::new);
        token.filter(|token| *token != FencingToken::LAST)
    }
}

impl From<AuditError> for ReconcilerError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Stock(error) => error.into(),
            AuditError::Ledger(error) => error.into(),
            AuditError::FinalAudit(error) => error.into(),
        }
    }
}

/// Limit for a command that works on one item, and its pauses while another process has the lock.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const COMMAND_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long a command asks again for a lock whose servers do not answer in time. A service asks
/// once: its next round comes soon.
const COMMAND_LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Counts the failures of every task.
pub(crate) const ERRORS: &str = "stockade_reconciler_errors_total";

/// State shared by the tasks of a reconciler.
pub(crate) struct Reconciler {
    pub stock: Arc<Stock>,
    pub ledger: Arc<dyn Ledger>,
    pub lock: Arc<dyn Lock>,
    /// How long a lock is asked for again whose servers do not answer in time.
    pub lock_patience: Duration,
    pub settings: ReconcilerSettings,
    pub backlog: Backlog,
    pub audits: Audits,
    pub archives: Archives,
    /// What the reconcile loop is to look at.
    pub woken: WokenItems,
    pub stop: CancellationToken,
}

impl Reconciler {
    fn new(
        stock: Arc<Stock>,
        ledger: Arc<dyn Ledger>,
        lock: Arc<dyn Lock>,
        settings: ReconcilerSettings,
        stop: CancellationToken,
    ) -> Self {
        Self {
            stock,
            ledger,
            lock,
            lock_patience: Duration::ZERO,
            settings,
            backlog: Backlog::default(),
            audits: Audits::default(),
            archives: Archives::default(),
            woken: WokenItems::default(),
            stop,
        }
    }

    /// For a command, which works on one item and ends.
    pub(crate) fn of_command(
        stock: Arc<Stock>,
        ledger: Arc<dyn Ledger>,
        lock: Arc<dyn Lock>,
        settings: ReconcilerSettings,
    ) -> Arc<Self> {
        Arc::new(Self {
            lock_patience: COMMAND_LOCK_PATIENCE,
            ..Self::new(stock, ledger, lock, settings, CancellationToken::new())
        })
    }

    /// The item's stock. `None`: there is no such item.
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

    pub(crate) fn close_delay(&self) -> SignedDuration {
        SignedDuration::try_from(self.settings.close_delay).unwrap_or(SignedDuration::MAX)
    }

    /// Time after which no order of now can take units any more. It is twice the time that an order
    /// may take: deadlines go by the clocks of the Redis servers, which must agree within it.
    pub(crate) fn deadlines_pass(&self) -> Duration {
        self.settings.close_delay * 2
    }

    /// Waits for `pause` or for the stop signal, and returns whether it was the stop signal.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.stop.cancelled())
            .await
            .is_ok()
    }
}

/// Reconciles until `stop`. Dropping the future stops everything immediately: the next reconciler
/// repeats what was under way.
pub async fn run(
    stock: Arc<Stock>,
    ledger: Arc<dyn Ledger>,
    lock: Arc<dyn Lock>,
    settings: ReconcilerSettings,
    stop: CancellationToken,
) {
    let stop = stop.child_token();
    let reconciler = Arc::new(Reconciler::new(stock, ledger, lock, settings, stop));
    gauges::show_initial();
    let mut tasks = JoinSet::new();
    let [
        expirer,
        carter,
        placer,
        returner,
        looper,
        gauger,
        auditor,
        archiver,
        dropper,
        listener,
        watcher,
    ] = [0; 11].map(|_| Arc::clone(&reconciler));
    tasks.spawn(supervise("expiry", move || {
        expire::run(Arc::clone(&expirer))
    }));
    tasks.spawn(supervise("the expiry of carts", move || {
        carts::held::run(Arc::clone(&carter))
    }));
    tasks.spawn(supervise("the end of abandoned carts", move || {
        carts::abandoned::run(Arc::clone(&placer))
    }));
    tasks.spawn(supervise("returns", move || {
        returns::run(Arc::clone(&returner))
    }));
    tasks.spawn(supervise("the reconcile loop", move || {
        reconcile_loop::run(Arc::clone(&looper))
    }));
    tasks.spawn(supervise("audits", move || {
        audits::run(Arc::clone(&auditor))
    }));
    tasks.spawn(supervise("archives", move || {
        archives::run(Arc::clone(&archiver))
    }));
    tasks.spawn(supervise("drops", move || drops::run(Arc::clone(&dropper))));
    tasks.spawn(supervise("the wake-ups", move || {
        wakeups::run(Arc::clone(&listener))
    }));
    tasks.spawn(supervise("the histories of the masters", move || {
        wakeups::watch_histories(Arc::clone(&watcher))
    }));
    tasks.spawn(supervise("the gauges", move || {
        gauges::run(Arc::clone(&gauger))
    }));
    while tasks.join_next().await.is_some() {}
}
