//! A stock-keeper changes one row of PostgreSQL under a lock on other servers, and presents its
//! token to the row. It is a separate process, so it can be stopped between its read and its write.
//! Several cases use it; they differ in the checks of the row and in the source of the tokens.

mod locking;
mod row;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::{
    locking::{Held, Locksmith},
    row::{Outcome, Store},
};
pub(super) use self::{
    locking::{Locks, ballot, lock_is_free},
    row::{Check, Row},
};
use crate::{
    actor::{Actor, Host, Role},
    pace::Pace,
    test_env::TestEnv,
    timeline::{Doing, Event},
};

/// Point at which the process runs and has not requested anything.
const READY: &str = "before the lock is asked for";
/// Point at which a keeper has read and decided. Its next request is the write.
pub(super) const DECIDED: &str = "after the decision, before the write";
/// Point at which the first write was answered.
pub(super) const ANSWERED: &str = "after the write was answered";

/// Time that a keeper needs for its decision, in scenario time.
const DECISION_DURATION: Duration = Duration::from_secs(2);

/// Arguments of a keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    database: String,
    speed: f64,
    lease_ms: u64,
    locks: Locks,
    keeping: Keeping,
}

/// How a keeper changes the row. The variants of a case differ in this.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Keeping {
    pub work: Work,
    /// Whether it checks before the write that its lease is still valid.
    pub checks_lease: bool,
    /// What the row checks.
    pub check: Check,
}

/// Kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// Counts the units on the shelf, and writes the count.
    Recount,
    /// Sells a unit: reads the row, and writes one unit less.
    Sale,
}

/// Result of a keeper.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Tokens of its acquisitions, in order.
    pub tokens: Vec<i64>,
    /// Whether it gave up because it got the lock without a token.
    pub without_token: bool,
}

/// Starts a keeper. Its process runs, and has not requested the lock.
pub(super) async fn keeper(
    env: &TestEnv,
    row: &Row,
    number: usize,
    lease: Duration,
    locks: Locks,
    keeping: Keeping,
) -> Result<Actor> {
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let task = Task {
        database: row.database.clone(),
        speed: env.pace.speed(),
        lease_ms,
        locks,
        keeping,
    };
    let mut keeper = Actor::start(env, &format!("keeper {number}"), Role::Keeper, &task).await?;
    keeper.until(READY).await?;
    Ok(keeper)
}

/// Runs a keeper.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace =
        Pace::new(task.speed).unwrap_or_else(|| unreachable!("the runner sends a valid speed"));
    let lease = Duration::from_millis(task.lease_ms);
    let locksmith = Locksmith::open(&task.locks, pace.real(lease)).await?;
    let store = Store::open(&task.database, task.keeping.check).await?;
    let keeper = Keeper {
        host,
        pace,
        locksmith,
        store,
        lease,
        keeping: task.keeping,
    };
    host.point(READY).await?;
    Ok(serde_json::to_value(keeper.serve().await?)?)
}

struct Keeper<'a> {
    host: &'a Host,
    pace: Pace,
    locksmith: Locksmith,
    store: Store,
    lease: Duration,
    keeping: Keeping,
}

impl Keeper<'_> {
    /// Locks, changes the row and unlocks, until the change is made or superseded.
    async fn serve(&self) -> Result<Kept> {
        let mut kept = Kept::default();
        loop {
            let Some(held) = self.lock().await? else {
                kept.without_token = true;
                return Ok(kept);
            };
            let label = held
                .token()
                .map_or("no token yet".into(), |token| format!("token {token}"));
            let inside = self.host.holds(&label, self.lease).await?;
            let written = self.keep(&held, &mut kept).await;
            self.host.ends(inside).await?;
            if !self.locksmith.free(held).await? {
                self.host.notes(Event::Expired, "its lock was gone").await?;
            }
            // A later recount is at least as good as ours, so a refused recount ends here. A
            // refused sale is retried, because its buyer still waits.
            if written? != Some(Outcome::Refused) || self.keeping.work == Work::Recount {
                return Ok(kept);
            }
        }
    }

    async fn lock(&self) -> Result<Option<Held>> {
        let waiting = self
            .host
            .begins(Doing::Waiting, "waits for the lock")
            .await?;
        let held = self.locksmith.take().await?;
        self.host.ends(waiting).await?;
        if held.is_none() {
            self.host
                .notes(Event::Refused, "has the lock, but no token")
                .await?;
        }
        Ok(held)
    }

    /// Changes the row, and returns the outcome of the write, if there was one.
    async fn keep(&self, held: &Held, kept: &mut Kept) -> Result<Option<Outcome>> {
        let turn = self.store.next_turn().await?;
        let mut seen = self.store.read(held.token()).await?;
        let counted = self.store.count_shelf().await?;
        if self.keeping.work == Work::Sale && seen.stock <= 0 {
            self.host.notes(Event::Refused, "sold out").await?;
            return Ok(None);
        }
        self.pace.sleep(DECISION_DURATION).await;
        if self.keeping.checks_lease && held.is_lost() {
            self.host
                .notes(Event::Refused, "finds its lease expired")
                .await?;
            return Ok(None);
        }
        self.host.point(DECIDED).await?;
        let token = self.locksmith.token(held).await?;
        kept.tokens.push(token);
        loop {
            let stock = match self.keeping.work {
                Work::Recount => counted,
                Work::Sale => seen.stock - 1,
            };
            let outcome = self.store.write(token, turn, seen, stock).await?;
            self.note_write(outcome, token, turn, stock).await?;
            self.host.point(ANSWERED).await?;
            // Frameworks that check versions read again and save again after a conflict.
            if self.keeping.check != Check::Version || outcome == Outcome::Applied {
                return Ok(Some(outcome));
            }
            seen = self.store.read(Some(token)).await?;
        }
    }

    async fn note_write(&self, outcome: Outcome, token: i64, turn: i64, stock: i64) -> Result<()> {
        if outcome == Outcome::Refused {
            return self
                .host
                .notes(Event::Refused, &format!("token {token}: refused"))
                .await;
        }
        let harmful = match self.keeping.work {
            Work::Recount => self.store.was_late(turn).await?,
            Work::Sale => self.store.was_blind(turn).await?,
        };
        let event = if harmful { Event::Harm } else { Event::Write };
        self.host
            .notes(event, &format!("token {token}: writes {stock}"))
            .await
    }
}
