//! The lock that lives as long as its session, and somebody who waits for one in the server's own queue.
//!
//! # Why tokens rise
//!
//! First the session gets the lock. Then the token is drawn, in a commit of its own: a holder that dies does not take it back. Then the session
//! is asked whether it still has the lock. If it has, it had it when the token was drawn, so whoever had the lock before drew a lower one, and
//! whoever comes after draws a higher one. If it has not, nobody ever sees that token. A session cannot lose its lock and get it back.
//!
//! An advisory lock's session draws the token itself. A row under `FOR UPDATE` is in a transaction, and a token drawn in that would be
//! given again after a rollback; so it is drawn on another connection.
//!
//! # What a reader could get wrong
//!
//! The lock ends when its connection does, for whatever reason, and the server then lets the next one in *at once*. The holder may
//! learn of that only at its next extension, or at its deadline. That is no worse than a lease that runs out, but it can come at any time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::{runtime::Handle, sync::Mutex, time::sleep};

use super::{
    database::Database,
    means::{Means, Sessions},
    row::alone,
    session::Session,
    table::Table,
};
use crate::{
    Capabilities, FencingToken, Grant, Guard, Hold, Lock, LockError, Mode, Request, Sequencer,
    error::Answer,
    lease::Lease,
    name,
    patience::{self, Ask, jittered},
};

/// Locks of sessions of a database. Cheap to clone.
pub struct SessionLock<DB: Sessions>(Arc<Inner<DB>>);

pub(crate) struct Inner<DB: Sessions> {
    /// For tokens, and to see whether the server is there. The locks have connections of their own.
    pub database: Database<DB>,
    pub table: Table<DB>,
    pub means: Means,
    pub lease: Lease,
    pub retry: Duration,
}

impl<DB: Sessions> Clone for SessionLock<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: Sessions> SessionLock<DB> {
    pub(crate) fn new(inner: Inner<DB>) -> Self {
        Self(Arc::new(inner))
    }

    /// The statements that make the tables, for a migration: of the tokens, and of the rows that `FOR UPDATE` locks.
    pub fn schema(&self) -> Vec<String> {
        let [tokens, rows] = self.0.table.schema();
        if self.0.means.row.is_some() {
            vec![tokens, rows]
        } else {
            vec![tokens]
        }
    }

    /// Makes the tables, unless they are there.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub async fn create_table(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.0.database.connection().await?;
        for statement in self.schema() {
            DB::run(&mut connection, statement).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<DB: Sessions> Lock for SessionLock<DB> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: self.0.means.fair,
            shared: false,
            reentrant: false,
            push_loss: false,
            lock_delay: false,
            clock_free: DB::CLOCK_FREE,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        name::check(request.name)?;
        alone::<DB>(request.mode)?;
        let mut waiter = Waiter {
            lock: Arc::clone(&self.0),
            name: request.name.into(),
            place: Place::None,
        };
        patience::ask(request.patience, &mut waiter).await
    }
}

struct Waiter<DB: Sessions> {
    lock: Arc<Inner<DB>>,
    name: String,
    place: Place<DB>,
}

/// How far it has come. Dropping a session that waits takes it out of the queue.
enum Place<DB: Sessions> {
    None,
    /// Connected.
    Outside(Session<DB>),
    /// The lock is its own.
    Inside(Session<DB>),
}

impl<DB: Sessions> Waiter<DB> {
    async fn enter(&mut self) -> Result<Session<DB>, Answer> {
        let mut session = match std::mem::replace(&mut self.place, Place::None) {
            Place::Inside(session) => return Ok(session),
            Place::Outside(session) => session,
            Place::None => Session::open(Arc::clone(&self.lock), &self.name).await?,
        };
        if session.take().await? {
            return Ok(session);
        }
        self.place = Place::Outside(session);
        Err(Answer::Held {
            remaining: None,
            fence: None,
        })
    }

    async fn admit(&mut self) -> Result<Guard, LockError> {
        let lock = Arc::clone(&self.lock);
        let (database, lease) = (&lock.database, lock.lease);
        let refusal = |answer| database.refusal(answer);
        let mut session = self.enter().await.map_err(refusal)?;
        let token = lock.draw(&self.name, &mut session).await.map_err(refusal)?;
        let started = Instant::now();
        if !session.check().await.map_err(refusal)? {
            return Err(refusal(Answer::Gone));
        }
        let Some(deadline) = lease.deadline(started) else {
            return Err(LockError::TooLate {
                elapsed: started.elapsed(),
                votes: database.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token,
        };
        let hold = Box::new(Held {
            lock: Arc::clone(&self.lock),
            session: Mutex::new(Some(session)),
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

impl<DB: Sessions> Ask for Waiter<DB> {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        self.admit().await
    }

    /// In the server's queue, for as long as the server is there.
    async fn pause(&mut self, _: &LockError) {
        let Place::Outside(mut session) = std::mem::replace(&mut self.place, Place::None) else {
            return sleep(jittered(self.lock.retry)).await;
        };
        let taken = tokio::select! {
            taken = session.wait() => taken,
            () = self.lock.is_away() => return,
        };
        // Otherwise it was shown out; it asks anew, on a connection that nothing has happened to.
        if matches!(taken, Ok(true)) {
            self.place = Place::Inside(session);
        }
    }
}

impl<DB: Sessions> Inner<DB> {
    /// The next token, for the session that has the lock.
    async fn draw(&self, name: &str, session: &mut Session<DB>) -> Result<FencingToken, Answer> {
        let drawn = async {
            if self.means.row.is_none() {
                return self.table.mint(session.connection()?, name).await;
            }
            let mut connection = self.database.pool.acquire().await?;
            self.table.mint(&mut connection, name).await
        };
        self.database.within(drawn).await?
    }

    /// Returns when the server has not answered for a while, on a connection that need not wait.
    async fn is_away(&self) {
        loop {
            sleep(self.lease.length.max(self.database.answer)).await;
            let answered = async {
                let mut connection = self.database.pool.acquire().await?;
                DB::run(&mut connection, "SELECT 1".into()).await
            };
            if self.database.within(answered).await.is_err() {
                return;
            }
        }
    }

    fn no(&self, answer: Answer) -> LockError {
        LockError::NoQuorum {
            causes: self.database.votes(answer),
        }
    }

    fn lost(&self, answer: Answer) -> LockError {
        LockError::Lost {
            votes: self.database.votes(answer),
        }
    }
}

struct Held<DB: Sessions> {
    lock: Arc<Inner<DB>>,
    /// `None` once it has failed: then it is closed, and the lock is nobody's. Nobody ever locks this; it is what `Sync` asks for.
    session: Mutex<Option<Session<DB>>>,
}

#[async_trait]
impl<DB: Sessions> Hold for Held<DB> {
    /// A session that has failed is lost, because it cannot be taken up again. One that does not answer may still have the lock.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let started = Instant::now();
        let Some(session) = self.session.get_mut() else {
            return Err(self.lock.lost(Answer::Gone));
        };
        match session.check().await {
            Ok(true) => self
                .lock
                .lease
                .deadline(started)
                .ok_or_else(|| LockError::TooLate {
                    elapsed: started.elapsed(),
                    votes: self.lock.database.votes(Answer::Accepted),
                }),
            Err(Answer::TimedOut) => Err(self.lock.no(Answer::TimedOut)),
            answer => {
                *self.session.get_mut() = None;
                Err(self.lock.lost(answer.err().unwrap_or(Answer::Gone)))
            }
        }
    }

    /// In a task of its own, lest a caller that does not wait for the answer leaves half a statement behind.
    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        let Some(session) = self.session.get_mut().take() else {
            return Err(self.lock.lost(Answer::Gone));
        };
        let answer = match Handle::try_current() {
            Ok(runtime) => runtime
                .spawn(session.free())
                .await
                .unwrap_or_else(|error| Err(Answer::Failed(Arc::new(error)))),
            Err(_) => session.free().await,
        };
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lock.lost(Answer::Gone)),
            Err(Answer::TimedOut) => Err(self.lock.no(Answer::TimedOut)),
            Err(answer) => Err(self.lock.lost(answer)),
        }
    }
}
