//! A contender: acquires the lock, changes the two rows of its experiment, and releases the lock.
//! It runs in a process of its own, so that an experiment can stop or kill it.

use std::time::Duration;

use anyhow::{Context, Result};
use lock::{Capabilities, FencingToken};
use postmortem::actor::{self, Host};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    client::{self, Client, HeldLock, LockSettings},
    store::{ClaimResult, RowKind, Snapshot, Store},
};

/// Name of the subcommand that runs a contender.
pub(crate) const ROLE: &str = "contender";

/// Point: the process is ready, and has not asked for the lock yet.
pub(crate) const READY: &str = "before acquiring the lock";
/// Point: the contender holds the lock, and has not touched the rows yet.
pub(crate) const ACQUIRED: &str = "after acquiring the lock";
/// Point: the contender has read the rows, and sends its write next.
pub(crate) const DECIDED: &str = "before writing";
/// Point: the contender did not get the lock in time.
pub(crate) const TIMED_OUT: &str = "after the acquire timeout";

/// How often a contender claims the row before it writes without a claim. After each refusal it
/// reports the higher token to the lock and acquires the lock again.
const CLAIM_ATTEMPTS_MAX: usize = 3;
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// What a contender has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) store_url: String,
    pub(crate) experiment: i64,
    pub(crate) settings: LockSettings,
    pub(crate) lock_name: String,
    pub(crate) acquire_timeout_ms: u64,
    pub(crate) work: Work,
}

/// How a contender behaves under the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Tries once, and releases immediately if it got the lock.
    Probe,
    /// Does not check the lock between decision and write, as if both were in one request that is
    /// already on its way.
    Unchecked,
    /// Stops where it is when the lock reports that it is lost.
    StopOnLoss,
}

/// What a contender reports at its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) acquired: bool,
    /// The tokens that the lock gave it, in order.
    pub(crate) tokens: Vec<i64>,
    /// Whether the lock reported its loss and the contender stopped.
    pub(crate) stopped: bool,
    pub(crate) promises: Option<Promises>,
}

/// The capabilities of a lock that the verdict checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// Tokens rise from holder to holder.
    pub fenced: bool,
    /// No wall clock decides when the lock expires.
    pub clock_free: bool,
}

impl From<Capabilities> for Promises {
    fn from(capabilities: Capabilities) -> Self {
        Self {
            fenced: capabilities.fenced,
            clock_free: capabilities.clock_free,
        }
    }
}

/// Runs a contender in this process. `port` is the port on which the experiment listens.
pub(crate) async fn run(port: u16) -> Result<()> {
    actor::act_as(port, contend).await
}

async fn contend(host: &Host, task: Task) -> Result<Value> {
    let client = client::open(&task.settings, Some(host)).await?;
    let store = Store::open(&task.store_url).await?;
    let contender = Contender {
        host,
        client,
        store,
        task,
    };
    contender.warm_up().await?;
    host.point(READY).await?;
    Ok(serde_json::to_value(contender.contend().await?)?)
}

struct Contender<'a> {
    host: &'a Host,
    client: Box<dyn Client + 'a>,
    store: Store,
    task: Task,
}

/// A lock that is held. `version`: the version of the fenced row that its token has claimed.
struct Claim {
    held: Box<dyn HeldLock>,
    version: Option<i64>,
}

/// What the contender has decided to write.
struct Decision {
    turn: i64,
    unchecked: Snapshot,
    fenced: Option<(FencingToken, Snapshot)>,
}

impl Contender<'_> {
    /// Connects to all servers and loads all scripts, so that a later partition hits a contender
    /// with established connections.
    async fn warm_up(&self) -> Result<()> {
        let name = format!("warm-up {}", std::process::id());
        if let Some(held) = self.client.acquire(&name, WARM_UP_TIMEOUT).await? {
            held.release().await;
        }
        Ok(())
    }

    async fn contend(&self) -> Result<Report> {
        let mut report = Report {
            promises: self.client.capabilities().map(Promises::from),
            ..Report::default()
        };
        if self.task.work == Work::Probe {
            if let Some(held) = self.client.try_acquire(&self.task.lock_name).await? {
                report.acquired = true;
                held.release().await;
            }
            return Ok(report);
        }
        match self.acquire(&mut report).await? {
            Some(held) => self.work(held, &mut report).await?,
            None => self.host.point(TIMED_OUT).await?,
        }
        Ok(report)
    }

    async fn acquire(&self, report: &mut Report) -> Result<Option<Box<dyn HeldLock>>> {
        let timeout = Duration::from_millis(self.task.acquire_timeout_ms);
        let held = self.client.acquire(&self.task.lock_name, timeout).await?;
        if let Some(held) = &held {
            report.acquired = true;
            report.tokens.extend(held.token().map(FencingToken::get));
        }
        Ok(held)
    }

    async fn work(&self, held: Box<dyn HeldLock>, report: &mut Report) -> Result<()> {
        self.host.point(ACQUIRED).await?;
        let turn = self.store.enter(self.task.experiment).await?;
        let Claim { mut held, version } = self.claim(held, report).await?;
        let decision = self.decide(turn, held.token(), version).await?;
        if self.task.work == Work::StopOnLoss {
            tokio::select! {
                biased;
                () = held.lost() => report.stopped = true,
                written = self.write(&decision) => written?,
            }
        } else {
            self.write(&decision).await?;
        }
        self.store.leave(self.task.experiment, turn).await?;
        held.release().await;
        Ok(())
    }

    /// Claims the fenced row. If the row has seen a higher token, the contender reports that token
    /// to the lock and acquires the lock again.
    async fn claim(&self, mut held: Box<dyn HeldLock>, report: &mut Report) -> Result<Claim> {
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let Some(token) = held.token() else { break };
            match self.store.claim(self.task.experiment, token).await? {
                ClaimResult::Claimed { version } => {
                    return Ok(Claim {
                        held,
                        version: Some(version),
                    });
                }
                ClaimResult::Superseded(current) => {
                    self.client.note_token(&self.task.lock_name, current)?;
                }
            }
            held.release().await;
            held = self
                .acquire(report)
                .await?
                .context("acquiring the lock again after a refused claim timed out")?;
        }
        Ok(Claim {
            held,
            version: None,
        })
    }

    async fn decide(
        &self,
        turn: i64,
        token: Option<FencingToken>,
        version: Option<i64>,
    ) -> Result<Decision> {
        let experiment = self.task.experiment;
        let unchecked = self.store.read(experiment, RowKind::Unchecked, 0).await?;
        let fenced = match (token, version) {
            (Some(token), Some(version)) => {
                let snapshot = self
                    .store
                    .read(experiment, RowKind::Fenced, version)
                    .await?;
                Some((token, snapshot))
            }
            _ => None,
        };
        Ok(Decision {
            turn,
            unchecked,
            fenced,
        })
    }

    async fn write(&self, decision: &Decision) -> Result<()> {
        self.host.point(DECIDED).await?;
        let (experiment, turn) = (self.task.experiment, decision.turn);
        self.store
            .write(experiment, turn, decision.unchecked)
            .await?;
        if let Some((token, snapshot)) = decision.fenced {
            self.store
                .write_fenced(experiment, turn, snapshot, token)
                .await?;
        }
        Ok(())
    }
}
