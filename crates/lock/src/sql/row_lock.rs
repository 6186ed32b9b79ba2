//! The lock that is a row with an expiry, as in ShedLock. Unlike there, the database's clock
//! decides, every acquisition has its own owner, and each has a token.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::time::{sleep, timeout};

use super::{acquisition::Acquisition, dialect::Dialect, rows::Rows};
use crate::{
    backend::Lock,
    error::{Answer, LockError},
    guard::Guard,
    hold::{Grant, Hold},
    request::{Capabilities, Mode, Request},
    retry::{self, Acquire, jittered},
    sequencer::Sequencer,
    token::FencingToken,
    validate::check_name,
};

/// Shortest pause after an attempt that collided with others.
const RETRY_MIN: Duration = Duration::from_millis(20);

/// Locks that are rows of a table. Cheap to clone.
pub struct SqlLock<DB: Dialect>(Arc<Rows<DB>>);

impl<DB: Dialect> Clone for SqlLock<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: Dialect> SqlLock<DB> {
    pub(crate) fn new(rows: Rows<DB>) -> Self {
        Self(Arc::new(rows))
    }

    /// The statement that creates the table, for a migration.
    pub fn schema(&self) -> String {
        let [locks, _] = self.0.table.schema();
        locks
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    ///
    /// The error of the database.
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

    /// A database that was restored from a backup would issue some tokens again.
    ///
    /// The token counts for every name.
    fn observe(&self, _name: &str, token: FencingToken) -> Result<(), LockError> {
        self.0.floor.fetch_max(token.get(), Ordering::Relaxed);
        Ok(())
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        check_name(request.name)?;
        request.require_exclusive(DB::BACKEND)?;
        let mut contender = Contender {
            rows: Arc::clone(&self.0),
            name: request.name.into(),
        };
        retry::acquire(request.wait, &mut contender).await
    }
}

struct Contender<DB: Dialect> {
    rows: Arc<Rows<DB>>,
    name: Arc<str>,
}

impl<DB: Dialect> Contender<DB> {
    fn admit(
        &self,
        acquisition: Acquisition<DB>,
        token: FencingToken,
        started: Instant,
    ) -> Result<Guard, LockError> {
        let lease = self.rows.timing.lease;
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
            acquisition,
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

impl<DB: Dialect> Acquire for Contender<DB> {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        let started = Instant::now();
        let mut acquisition = Acquisition::new(Arc::clone(&self.rows), Arc::clone(&self.name));
        let acquired = tokio::spawn(async move {
            let answer = acquisition.acquire().await;
            (acquisition, answer)
        });
        let answer = match timeout(self.rows.database.timeout, acquired).await {
            Ok(Ok((acquisition, Ok(token)))) => return self.admit(acquisition, token, started),
            Ok(Ok((_, Err(answer)))) => answer,
            Ok(Err(error)) => Answer::Failed(Arc::new(error)),
            Err(_) => Answer::TimedOut,
        };
        Err(self.rows.database.refusal(answer))
    }

    /// Waits until the lease of the holder ends, but no longer than the retry interval, because the
    /// holder may release earlier.
    async fn wait_for_retry(&mut self, refusal: &LockError) {
        let retry = self.rows.timing.retry;
        let pause = match refusal.votes() {
            [vote] => match vote.answer {
                Answer::Held {
                    remaining: Some(remaining),
                    ..
                } => remaining.clamp(RETRY_MIN.min(retry), retry),
                Answer::Held { .. } => retry,
                _ => self.rows.timing.failed_retry(),
            },
            _ => retry,
        };
        sleep(jittered(pause)).await;
    }
}

struct Held<DB: Dialect> {
    rows: Arc<Rows<DB>>,
    /// Its drop releases the lock.
    acquisition: Acquisition<DB>,
}

impl<DB: Dialect> Held<DB> {
    fn no_quorum(&self, answer: Answer) -> LockError {
        LockError::NoQuorum {
            causes: self.rows.database.votes(answer),
        }
    }

    async fn lost(&self) -> LockError {
        LockError::Lost {
            votes: self.rows.database.votes(self.acquisition.holder().await),
        }
    }
}

#[async_trait]
impl<DB: Dialect> Hold for Held<DB> {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let started = Instant::now();
        match self.acquisition.extend().await {
            Ok(true) => {
                let late = || LockError::TooLate {
                    elapsed: started.elapsed(),
                    votes: self.rows.database.votes(Answer::Accepted),
                };
                let lease = self.rows.timing.lease;
                lease.deadline(started).ok_or_else(late)
            }
            Ok(false) => Err(self.lost().await),
            Err(answer) => Err(self.no_quorum(answer)),
        }
    }

    fn lapse(&mut self) {
        if !self.rows.timing.lock_delay.is_zero() {
            self.acquisition.keep_lock_delay();
        }
    }

    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        let Some(released) = self.acquisition.release_in_background() else {
            return Err(LockError::lost());
        };
        match released.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.lost().await),
            Ok(Err(answer)) => Err(self.no_quorum(answer)),
            Err(error) => Err(self.no_quorum(Answer::Failed(Arc::new(error)))),
        }
    }
}
