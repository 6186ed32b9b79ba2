//! The process reports itself to the ledger: that it is alive, the item locks that it has, and what
//! came of the requests for each item. The console shows the reports of all processes.
//!
//! A report is one statement every five seconds, and once a second while requests come. Requests
//! themselves call nothing for it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ItemId;
use jiff::Timestamp;
use ledger::{LedgerError, ProcessReport, RequestCounts};
use order::Engine;
use reconciler::LockLog;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Time between two reports while requests come, and while none do.
const PERIOD: Duration = Duration::from_secs(1);
const QUIET_PERIOD: Duration = Duration::from_secs(5);
/// Processes that are silent for so long are removed.
const SILENCE_MAX: Duration = Duration::from_secs(3600);
const REMOVAL_PERIOD: Duration = Duration::from_secs(60);
/// How long a report may take, and the last one, for which the process waits before it ends.
const TIMEOUT: Duration = Duration::from_secs(5);
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// What a report consists of.
pub struct Heartbeat {
    engine: Arc<Engine>,
    locks: Arc<LockLog>,
    id: Uuid,
    roles: String,
    host: String,
    started_at: Timestamp,
    /// Whether the ledger has a report under this id.
    is_known: bool,
    /// Totals that the ledger may not have yet.
    unreported: HashMap<ItemId, RequestCounts>,
    /// Totals that it has, and those of them that it has under earlier ids of this process.
    reported: HashMap<ItemId, RequestCounts>,
    earlier: HashMap<ItemId, RequestCounts>,
    reported_at: Option<Instant>,
    removed_at: Option<Instant>,
}

impl Heartbeat {
    /// The reports of a process with these roles.
    pub fn new(engine: Arc<Engine>, roles: String, locks: Arc<LockLog>) -> Self {
        Self {
            engine,
            locks,
            id: Uuid::new_v4(),
            roles,
            host: host(),
            started_at: Timestamp::now(),
            is_known: false,
            unreported: HashMap::new(),
            reported: HashMap::new(),
            earlier: HashMap::new(),
            reported_at: None,
            removed_at: None,
        }
    }

    /// Reports until `stop`, and then that the process has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // A report that failed is repeated: it has totals, so it counts once.
            if let Err(error) = bounded(TIMEOUT, self.beat()).await {
                tracing::debug!(error, "could not report this process to the ledger");
            }
            if tokio::time::timeout(PERIOD, stop.cancelled()).await.is_ok() {
                break;
            }
        }
        if let Err(error) = bounded(LAST_TIMEOUT, self.end()).await {
            tracing::debug!(error, "could not report the end of this process");
        }
    }

    async fn beat(&mut self) -> Result<(), LedgerError> {
        let requests = self.changed();
        let is_due = |at: Option<Instant>, period| at.is_none_or(|at| at.elapsed() >= period);
        if !requests.is_empty() || is_due(self.reported_at, QUIET_PERIOD) {
            self.report(requests).await?;
        }
        if is_due(self.removed_at, REMOVAL_PERIOD) {
            self.removed_at = Some(Instant::now());
            self.engine.ledger.end_silent_processes(SILENCE_MAX).await?;
        }
        Ok(())
    }

    /// The items whose counts the ledger may not have yet.
    fn changed(&mut self) -> Vec<(ItemId, RequestCounts)> {
        self.unreported.extend(self.engine.changed_requests());
        let of = |(id, total): (&ItemId, &RequestCounts)| {
            let earlier = self.earlier.get(id);
            let counts = earlier.map_or(*total, |earlier| total.since(earlier));
            (id.clone(), counts)
        };
        self.unreported.iter().map(of).collect()
    }

    async fn report(&mut self, requests: Vec<(ItemId, RequestCounts)>) -> Result<(), LedgerError> {
        let report = ProcessReport {
            id: self.id,
            roles: self.roles.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            host: self.host.clone(),
            pid: std::process::id(),
            started_at: self.started_at,
            now: Timestamp::now(),
            locks: self.locks.latest(),
            requests,
        };
        let ledger = &self.engine.ledger;
        if ledger.report_process(&report, !self.is_known).await? {
            self.is_known = true;
            self.reported_at = Some(Instant::now());
            self.reported.extend(self.unreported.drain());
        } else {
            self.begin_anew();
        }
        Ok(())
    }

    /// The process was suspended for so long that others took it for dead, and kept its counts. It
    /// goes on under another id, with what has come since.
    fn begin_anew(&mut self) {
        self.earlier.clone_from(&self.reported);
        self.id = Uuid::new_v4();
        self.is_known = false;
    }

    async fn end(&mut self) -> Result<(), LedgerError> {
        let requests = self.changed();
        if !requests.is_empty() {
            self.report(requests).await?;
        }
        self.engine.ledger.end_process(self.id).await
    }
}

async fn bounded(
    timeout: Duration,
    work: impl Future<Output = Result<(), LedgerError>>,
) -> Result<(), String> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the ledger did not answer in time".into()),
    }
}

/// The name of this machine, or of its container.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".into())
}
