//! The lock that is a row with an expiry, as in ShedLock, except that the database's clock decides, every acquisition is an owner of its own, and
//! each has a token.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::time::{sleep, timeout};

use super::{claim::Claim, database::Database, dialect::Dialect, table::Table};
use crate::{
    Capabilities, FencingToken, Grant, Guard, Hold, InvalidArgument, Lock, LockError, Mode,
    Request, Sequencer,
    error::Answer,
    lease::Lease,
    name,
    patience::{self, Ask, jittered},
};

/// How long, at the most, contenders that got in each other's way stay apart.
const SCATTER: Duration = Duration::from_millis(20);

/// Locks that are rows of a table. Cheap to clone.
pub struct SqlLock<DB: Dialect>(Arc<Inner<DB>>);

pub(crate) struct Inner<DB: Dialect> {
    pub database: Database<DB>,
    pub table: Table<DB>,
    pub lease: Lease,
    /// Of the row: the lease and the lock-delay.
    pub ttl: Duration,
    pub retry: Duration,
}

impl<DB: Dialect> Clone for SqlLock<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: Dialect> SqlLock<DB> {
    pub(crate) fn new(inner: Inner<DB>) -> Self {
        Self(Arc::new(inner))
    }

    /// The statement that makes the table, for a migration.
    pub fn schema(&self) -> String {
        let [locks, _] = self.0.table.schema();
        locks
    }

    /// Makes the table, unless it is there.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub async fn create_table(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.0.database.connection().await?;
        DB::run(&mut connection, self.schema()).await
    }
}

#[async_trait]
impl<DB: Dialect> Lock for SqlLock<DB> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: false,
            shared: false,
            reentrant: false,
            push_loss: false,
            lock_delay: true,
            clock_free: false,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        name::check(request.name)?;
        alone::<DB>(request.mode)?;
        let mut contender = Contender {
            rows: Arc::clone(&self.0),
            name: request.name.into(),
        };
        patience::ask(request.patience, &mut contender).await
    }
}

/// Nobody shares these.
pub(crate) fn alone<DB: Dialect>(mode: Mode) -> Result<(), InvalidArgument> {
    match mode {
        Mode::Exclusive => Ok(()),
        Mode::Shared => Err(InvalidArgument::Unsupported {
            backend: DB::BACKEND,
            what: "shared mode",
        }),
    }
}

struct Contender<DB: Dialect> {
    rows: Arc<Inner<DB>>,
    name: Arc<str>,
}

impl<DB: Dialect> Contender<DB> {
    fn admit(
        &self,
        claim: Claim<DB>,
        token: FencingToken,
        started: Instant,
    ) -> Result<Guard, LockError> {
        let lease = self.rows.lease;
        let Some(deadline) = lease.deadline(started) else {
            return Err(LockError::TooLate {
                elapsed: started.elapsed(),
                votes: self.rows.database.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.as_ref().into(),
            mode: Mode::Exclusive,
            token,
        };
        let hold = Box::new(Held {
            rows: Arc::clone(&self.rows),
            claim,
        });
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost: Default::default(),
            hold,
        }))
    }
}

impl<DB: Dialect> Ask for Contender<DB> {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        let started = Instant::now();
        let mut claim = Claim::new(Arc::clone(&self.rows), Arc::clone(&self.name));
        let asked = tokio::spawn(async move {
            let answer = claim.acquire().await;
            (claim, answer)
        });
        let answer = match timeout(self.rows.database.answer, asked).await {
            Ok(Ok((claim, Ok(token)))) => return self.admit(claim, token, started),
            Ok(Ok((_, Err(answer)))) => answer,
            Ok(Err(error)) => Answer::Failed(Arc::new(error)),
            Err(_) => Answer::TimedOut,
        };
        Err(self.rows.database.refusal(answer))
    }

    /// Until the lock may be free, but not too long: it may be given back earlier.
    async fn pause(&mut self, refusal: &LockError) {
        let pause = match refusal.votes() {
            [vote] => match vote.answer {
                Answer::Held {
                    remaining: Some(remaining),
                    ..
                } => remaining.clamp(SCATTER.min(self.rows.retry), self.rows.retry),
                _ => self.rows.retry,
            },
            _ => self.rows.retry,
        };
        sleep(jittered(pause)).await;
    }
}

struct Held<DB: Dialect> {
    rows: Arc<Inner<DB>>,
    /// Sweeps itself when it is dropped.
    claim: Claim<DB>,
}

impl<DB: Dialect> Held<DB> {
    fn no(&self, answer: Answer) -> LockError {
        LockError::NoQuorum {
            causes: self.rows.database.votes(answer),
        }
    }

    async fn lost(&self) -> LockError {
        LockError::Lost {
            votes: self.rows.database.votes(self.claim.look().await),
        }
    }
}

#[async_trait]
impl<DB: Dialect> Hold for Held<DB> {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let started = Instant::now();
        match self.claim.extend().await {
            Ok(true) => self
                .rows
                .lease
                .deadline(started)
                .ok_or_else(|| LockError::TooLate {
                    elapsed: started.elapsed(),
                    votes: self.rows.database.votes(Answer::Accepted),
                }),
            Ok(false) => Err(self.lost().await),
            Err(answer) => Err(self.no(answer)),
        }
    }

    fn lapse(&mut self) {
        if self.rows.ttl > self.rows.lease.length {
            self.claim.leave();
        }
    }

    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        let Some(released) = self.claim.sweep() else {
            return Err(LockError::lost());
        };
        match released.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.lost().await),
            Ok(Err(answer)) => Err(self.no(answer)),
            Err(error) => Err(self.no(Answer::Failed(Arc::new(error)))),
        }
    }
}
