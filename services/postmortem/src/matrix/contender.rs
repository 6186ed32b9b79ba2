//! Somebody who wants the lock, in a process of its own, so that it can be stopped and killed: takes it, changes the two rows of its trial, and
//! gives it back.

use std::time::Duration;

use anyhow::{Context, Result};
use lock::{Capabilities, FencingToken};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    client::{self, Client, Held, Opening},
    store::{Claimed, Seen, Store, Which},
};
use crate::actor::Host;

/// Its process runs, and it has not asked for anything yet.
pub(super) const READY: &str = "before the lock is asked for";
/// It has the lock, and has touched nothing.
pub(super) const INSIDE: &str = "after the lock was had";
/// It has read, and the next thing that it sends is the write.
pub(super) const DECIDED: &str = "after it was decided what to write";
/// It could not get the lock.
pub(super) const GAVE_UP: &str = "after it gave up";

/// Whoever is refused by a later token tells its lock of it and asks anew, so often.
const CLAIMS: usize = 3;
const WARM_WITHIN: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub database: String,
    pub trial: i64,
    pub opening: Opening,
    /// Of the lock.
    pub name: String,
    pub patience_ms: u64,
    pub work: Work,
}

/// How it works under the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// It asks once, and gives back at once what it gets.
    Asks,
    /// It looks at nothing between its decision and its write: both are in one request that is under way.
    Blind,
    /// It stops where it stands when the lock tells it that it is lost.
    Watched,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub had_it: bool,
    /// Of the lock, in order.
    pub tokens: Vec<i64>,
    /// The lock told it to stop, and it did.
    pub stopped: bool,
    /// What the lock promises.
    pub promises: Option<Promises>,
}

/// What the lock says of itself, as far as it is held to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// Tokens rise from holder to holder.
    pub fenced: bool,
    /// No wall clock decides when it ends.
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

/// Is a contender.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let client = client::open(&task.opening, Some(host)).await?;
    let store = Store::open(&task.database).await?;
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

/// A lock that is held, and the version with which its token has claimed the row, if it has.
struct Claim {
    held: Box<dyn Held>,
    version: Option<i64>,
}

/// What is to be written.
struct Decision {
    turn: i64,
    open: Seen,
    fenced: Option<(FencingToken, Seen)>,
}

impl Contender<'_> {
    /// Connections are made, scripts are loaded: whoever is cut off now has been heard before.
    async fn warm_up(&self) -> Result<()> {
        let name = format!("warm-up {}", std::process::id());
        if let Some(held) = self.client.take(&name, WARM_WITHIN).await? {
            held.give_back().await;
        }
        Ok(())
    }

    async fn contend(&self) -> Result<Report> {
        let mut report = Report {
            promises: self.client.capabilities().map(Promises::from),
            ..Report::default()
        };
        if self.task.work == Work::Asks {
            if let Some(held) = self.client.try_take(&self.task.name).await? {
                report.had_it = true;
                held.give_back().await;
            }
            return Ok(report);
        }
        match self.take(&mut report).await? {
            Some(held) => self.work(held, &mut report).await?,
            None => self.host.point(GAVE_UP).await?,
        }
        Ok(report)
    }

    async fn take(&self, report: &mut Report) -> Result<Option<Box<dyn Held>>> {
        let held = self
            .client
            .take(
                &self.task.name,
                Duration::from_millis(self.task.patience_ms),
            )
            .await?;
        if let Some(held) = &held {
            report.had_it = true;
            report.tokens.extend(held.token().map(FencingToken::get));
        }
        Ok(held)
    }

    async fn work(&self, held: Box<dyn Held>, report: &mut Report) -> Result<()> {
        self.host.point(INSIDE).await?;
        let turn = self.store.enter(self.task.trial).await?;
        let Claim { mut held, version } = self.claim(held, report).await?;
        let decision = self.decide(turn, held.token(), version).await?;
        if self.task.work == Work::Watched {
            tokio::select! {
                biased;
                () = held.is_lost() => report.stopped = true,
                written = self.write(&decision) => written?,
            }
        } else {
            self.write(&decision).await?;
        }
        self.store.leave(self.task.trial, turn).await?;
        held.give_back().await;
        Ok(())
    }

    /// Claims the fenced row. A row that knows a later token is believed: the lock hears of it, and is asked for another.
    async fn claim(&self, mut held: Box<dyn Held>, report: &mut Report) -> Result<Claim> {
        for _ in 0..CLAIMS {
            let Some(token) = held.token() else { break };
            match self.store.claim(self.task.trial, token).await? {
                Claimed::Ours { version } => {
                    return Ok(Claim {
                        held,
                        version: Some(version),
                    });
                }
                Claimed::Superseded(current) => self.client.note_token(&self.task.name, current),
            }
            held.give_back().await;
            held = self
                .take(report)
                .await?
                .context("a lock that was given back was not to be had again")?;
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
        let open = self.store.read(self.task.trial, Which::Open, 0).await?;
        let fenced = match (token, version) {
            (Some(token), Some(version)) => Some((
                token,
                self.store
                    .read(self.task.trial, Which::Fenced, version)
                    .await?,
            )),
            _ => None,
        };
        Ok(Decision { turn, open, fenced })
    }

    async fn write(&self, decision: &Decision) -> Result<()> {
        self.host.point(DECIDED).await?;
        self.store
            .write(self.task.trial, decision.turn, decision.open)
            .await?;
        if let Some((token, seen)) = decision.fenced {
            self.store
                .write_fenced(self.task.trial, decision.turn, seen, token)
                .await?;
        }
        Ok(())
    }
}
