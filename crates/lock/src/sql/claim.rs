//! What an owner may have in the table, and the certainty that it goes away again.
//!
//! An acquisition runs in a task that has the claim, never in the caller's future: if nobody waits for its answer any more, the claim is dropped
//! when the answer is there, and not before. A claim that is dropped is released by a task of its own, again and again until the database
//! has answered or the lease is over.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::Error;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{sleep, timeout_at},
};

use super::{
    database::{failed, is_worth_repeating},
    dialect::Dialect,
    row::Inner,
    table::Asked,
};
use crate::{FencingToken, error::Answer, owner::unique, patience::jittered};

/// How often a statement is repeated that lost against another.
const REPEATS: usize = 4;
const REPEAT_PAUSE: Duration = Duration::from_millis(10);
/// How long a database that did not answer is left alone before it is told again to release.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Whether a release came in time.
pub(crate) type Released = oneshot::Receiver<Result<bool, Answer>>;

pub(crate) struct Claim<DB: Dialect> {
    rows: Arc<Inner<DB>>,
    name: Arc<str>,
    owner: Arc<str>,
    /// When everything that was asked for is over by itself. `None`: nothing was asked for, or it is being swept.
    traces_until: Option<Instant>,
}

impl<DB: Dialect> Claim<DB> {
    /// For an owner that nobody else is.
    pub(crate) fn new(rows: Arc<Inner<DB>>, name: Arc<str>) -> Self {
        Self {
            rows,
            name,
            owner: unique().into(),
            traces_until: None,
        }
    }

    /// An owner that asks again, because it has not heard the answer, gets the same token.
    pub(crate) async fn acquire(&mut self) -> Result<FencingToken, Answer> {
        let hang = Instant::now() + self.rows.ttl;
        self.traces_until = Some(hang + self.rows.ttl);
        let answer = match timeout_at(hang.into(), self.repeatedly()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(Answer::TimedOut),
        };
        if answer.is_err() {
            self.traces_until = None;
        }
        answer
    }

    async fn repeatedly(&self) -> Asked<FencingToken> {
        let mut repeats = 0..REPEATS;
        loop {
            match self.once().await {
                Err(error) if is_worth_repeating(&error) && repeats.next().is_some() => {
                    sleep(jittered(REPEAT_PAUSE)).await
                }
                answer => return answer,
            }
        }
    }

    async fn once(&self) -> Asked<FencingToken> {
        let mut connection = self.rows.database.pool.acquire().await?;
        self.rows
            .table
            .acquire(&mut connection, &self.name, &self.owner, self.rows.ttl)
            .await
    }

    pub(crate) async fn extend(&mut self) -> Result<bool, Answer> {
        self.traces_until = Some(Instant::now() + 2 * self.rows.ttl);
        let asked = async {
            let mut connection = self.rows.database.pool.acquire().await?;
            self.rows
                .table
                .extend(&mut connection, &self.name, &self.owner, self.rows.ttl)
                .await
        };
        self.rows.database.within(asked).await
    }

    /// Whoever has it now, as far as the database says.
    pub(crate) async fn look(&self) -> Answer {
        self.rows.look(&self.name).await
    }

    /// Leaves what there is to its end.
    pub(crate) fn leave(&mut self) {
        self.traces_until = None;
    }

    /// Starts the task that gives the lock back. It ends by itself, and nothing else ends it but the runtime.
    pub(crate) fn sweep(&mut self) -> Option<Released> {
        let until = self.traces_until.take()?;
        // Without a runtime the lease ends by itself.
        let runtime = Handle::try_current().ok()?;
        let (sender, released) = oneshot::channel();
        let (rows, name, owner) = (
            Arc::clone(&self.rows),
            Arc::clone(&self.name),
            Arc::clone(&self.owner),
        );
        runtime.spawn(async move {
            let mut answer = rows.release(&name, &owner).await;
            let mut failing = answer.is_err();
            // Nobody may be listening.
            let _ = sender.send(answer);
            while failing && Instant::now() < until {
                sleep(SWEEP_PAUSE).await;
                answer = rows.release(&name, &owner).await;
                failing = answer.is_err();
            }
        });
        Some(released)
    }
}

impl<DB: Dialect> Drop for Claim<DB> {
    fn drop(&mut self) {
        self.sweep();
    }
}

impl<DB: Dialect> Inner<DB> {
    async fn release(&self, name: &str, owner: &str) -> Result<bool, Answer> {
        let asked = async {
            let mut connection = self.database.pool.acquire().await?;
            self.table.release(&mut connection, name, owner).await
        };
        self.database.within(asked).await
    }

    async fn look(&self, name: &str) -> Answer {
        let asked = async {
            let mut connection = self.database.pool.acquire().await?;
            let answer: Result<_, Error> = self.table.look(&mut connection, name).await;
            answer
        };
        match self.database.within(asked).await {
            Ok(Some(
                answer @ Answer::Held {
                    remaining: Some(remaining),
                    ..
                },
            )) if !remaining.is_zero() => answer,
            Ok(_) => Answer::Gone,
            Err(answer) => answer,
        }
    }
}
