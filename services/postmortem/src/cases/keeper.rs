//! A stock-keeper: changes one row of PostgreSQL under a lock on other servers, and shows the row its token. A process of its own, so that it
//! can be stopped between what it has read and what it writes. Several cases break it, each in what the row checks or where tokens come from.

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
    stage::Stage,
    timeline::{Doing, Event},
};

/// Where a keeper stands when its process runs, and it has not asked for anything yet.
const READY: &str = "before the lock is asked for";
/// Where it stands when it has read, has decided what to write, and the next thing that it sends is the write.
pub(super) const DECIDED: &str = "after it was decided what to write";
/// Where it stands when its first write was answered.
pub(super) const ANSWERED: &str = "after the write was answered";

/// How long a keeper takes to decide, in the story.
const DECISION: Duration = Duration::from_secs(2);

/// What a keeper is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    database: String,
    speed: f64,
    lease_ms: u64,
    locks: Locks,
    keeping: Keeping,
}

/// How it keeps the row. This is what the ways of a case differ in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Keeping {
    pub work: Work,
    /// It asks the lock whether it is still its own, and only then writes.
    pub looks_first: bool,
    /// What the row checks.
    pub check: Check,
}

/// What it does to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// Counts what is on the shelf, and writes that down.
    Recount,
    /// Sells a unit: reads the row, and writes one unit less.
    Sale,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Under which tokens it has had the lock, in order.
    pub tokens: Vec<i64>,
    /// Whether it had to give up, because it had the lock and got no token for it.
    pub without_token: bool,
}

/// Starts one more keeper. Its process runs, and it has not yet asked for the lock.
pub(super) async fn keeper(
    stage: &Stage,
    row: &Row,
    number: usize,
    lease: Duration,
    locks: Locks,
    keeping: Keeping,
) -> Result<Actor> {
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let task = Task {
        database: row.database.clone(),
        speed: stage.pace.speed(),
        lease_ms,
        locks,
        keeping,
    };
    let mut keeper = Actor::start(stage, &format!("keeper {number}"), Role::Keeper, &task).await?;
    keeper.until(READY).await?;
    Ok(keeper)
}

/// Is a keeper.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let pace = Pace::new(task.speed).unwrap_or_else(|| unreachable!("it was one"));
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
    /// Until what it has to do is done, or is somebody else's to do.
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
            // A later count is as good as ours, or better. But a buyer who was refused still wants the unit.
            if written? != Some(Outcome::Refused) || self.keeping.work == Work::Recount {
                return Ok(kept);
            }
        }
    }

    async fn lock(&self) -> Result<Option<Held>> {
        let waiting = self.host.begins(Doing::Waiting, "wants the lock").await?;
        let held = self.locksmith.take().await?;
        self.host.ends(waiting).await?;
        if held.is_none() {
            self.host
                .notes(Event::Refused, "has the lock, but no token")
                .await?;
        }
        Ok(held)
    }

    /// What came of the write, if there was one.
    async fn keep(&self, held: &Held, kept: &mut Kept) -> Result<Option<Outcome>> {
        let turn = self.store.next_turn().await?;
        let mut seen = self.store.read(held.token()).await?;
        let counted = self.store.count_shelf().await?;
        if self.keeping.work == Work::Sale && seen.stock <= 0 {
            self.host.notes(Event::Refused, "sold out").await?;
            return Ok(None);
        }
        self.pace.sleep(DECISION).await;
        if self.keeping.looks_first && held.is_lost() {
            self.host
                .notes(Event::Refused, "sees that its lock is over")
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
            self.tell(outcome, token, turn, stock).await?;
            self.host.point(ANSWERED).await?;
            // What every framework does that checks versions: read again, and save again.
            if self.keeping.check != Check::Version || outcome == Outcome::Applied {
                return Ok(Some(outcome));
            }
            seen = self.store.read(Some(token)).await?;
        }
    }

    async fn tell(&self, outcome: Outcome, token: i64, turn: i64, stock: i64) -> Result<()> {
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
