//! The lock that lives as long as its session. Waiters stand in the server's own queue.
//!
//! # Why tokens rise
//!
//! The session first acquires the lock. Then the token is drawn in a commit of its own, which the
//! death of the holder does not roll back. Then the session checks that it still holds the lock. If
//! it does, it held the lock when the token was drawn: every earlier holder drew a lower token, and
//! every later one draws a higher one. If it does not, the token is discarded. A session cannot
//! lose its lock and get it back.
//!
//! The session of an advisory lock draws the token itself. A row under `FOR UPDATE` is in a
//! transaction, and a rollback would give a token that was drawn there again. So the token is drawn
//! on another connection.
//!
//! # Limits
//!
//! The lock ends when its connection does, for whatever reason, and the server then admits the next
//! waiter *immediately*. The holder may learn of that only at its next extension or at its
//! deadline. That is no worse than the end of a lease, but it can happen at any time.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use tokio::{runtime::Handle, sync::Mutex, time::sleep};

use super::{method::SessionDialect, session::Session, session_server::SessionServer};
use crate::{
    backend::Lock,
    error::{Answer, LockError},
    guard::Guard,
    hold::{Grant, Hold},
    request::{Capabilities, Mode, Request},
    retry::{self, Acquire, jittered},
    sequencer::Sequencer,
    validate::check_name,
};

/// Locks that are held by sessions of a database. Cheap to clone.
pub struct SessionLock<DB: SessionDialect>(Arc<SessionServer<DB>>);

impl<DB: SessionDialect> Clone for SessionLock<DB> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<DB: SessionDialect> SessionLock<DB> {
    pub(crate) fn new(server: SessionServer<DB>) -> Self {
        Self(Arc::new(server))
    }

    /// The statements that create the tables, for a migration: of the tokens, and of the rows that
    /// `FOR UPDATE` locks.
    pub fn schema(&self) -> Vec<String> {
        let [tokens, rows] = self.0.table.schema();
        if self.0.method.row.is_some() {
            vec![tokens, rows]
        } else {
            vec![tokens]
        }
    }

    /// Creates the tables that are missing.
    ///
    /// # Errors
    ///
    /// The error of the database.
    pub async fn create_table(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.0.database.connection().await?;
        for statement in self.schema() {
            DB::run(&mut connection, statement).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<DB: SessionDialect> Lock for SessionLock<DB> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: self.0.method.fair,
            shared: false,
            reentrant: false,
            push_loss: false,
            lock_delay: false,
            clock_free: DB::CLOCK_FREE,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        check_name(request.name)?;
        request.require_exclusive(DB::BACKEND)?;
        let mut contender = Contender {
            server: Arc::clone(&self.0),
            name: request.name.into(),
            progress: Progress::NotConnected,
        };
        retry::acquire(request.wait, &mut contender).await
    }
}

struct Contender<DB: SessionDialect> {
    server: Arc<SessionServer<DB>>,
    name: String,
    progress: Progress<DB>,
}

/// How far an acquisition has come. Dropping a session that waits removes it from the server's
/// queue.
enum Progress<DB: SessionDialect> {
    NotConnected,
    Connected(Session<DB>),
    Locked(Session<DB>),
}

impl<DB: SessionDialect> Contender<DB> {
    async fn lock(&mut self) -> Result<Session<DB>, Answer> {
        let mut session = match std::mem::replace(&mut self.progress, Progress::NotConnected) {
            Progress::Locked(session) => return Ok(session),
            Progress::Connected(session) => session,
            Progress::NotConnected => Session::open(Arc::clone(&self.server), &self.name).await?,
        };
        if session.try_lock().await? {
            return Ok(session);
        }
        self.progress = Progress::Connected(session);
        Err(Answer::Held {
            remaining: None,
            fence: None,
        })
    }

    async fn admit(&mut self) -> Result<Guard, LockError> {
        let server = Arc::clone(&self.server);
        let (database, lease) = (&server.database, server.timing.lease);
        let refusal = |answer| database.refusal(answer);
        let mut session = self.lock().await.map_err(refusal)?;
        let token = session.draw_token(&self.name).await.map_err(refusal)?;
        let started = Instant::now();
        if !session.is_locked().await.map_err(refusal)? {
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
            server: Arc::clone(&self.server),
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

impl<DB: SessionDialect> Acquire for Contender<DB> {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        self.admit().await
    }

    /// Waits in the server's queue while the server is reachable.
    async fn wait_for_retry(&mut self, _: &LockError) {
        let Progress::Connected(mut session) =
            std::mem::replace(&mut self.progress, Progress::NotConnected)
        else {
            return sleep(jittered(self.server.timing.failed_retry())).await;
        };
        let locked = tokio::select! {
            locked = session.lock() => locked,
            () = self.server.unreachable() => return,
        };
        // After any other result the session is dropped. The next attempt opens a new one, whose
        // state is known.
        if matches!(locked, Ok(true)) {
            self.progress = Progress::Locked(session);
        }
    }
}

struct Held<DB: SessionDialect> {
    server: Arc<SessionServer<DB>>,
    /// `None` once it has failed: then it is closed and the lock is free. The mutex is never
    /// locked; it only provides `Sync`.
    session: Mutex<Option<Session<DB>>>,
}

#[async_trait]
impl<DB: SessionDialect> Hold for Held<DB> {
    /// A session that has failed is lost, because it cannot be resumed. A session that does not
    /// answer in time may still hold the lock.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let started = Instant::now();
        let Some(session) = self.session.get_mut() else {
            return Err(self.server.lost(Answer::Gone));
        };
        match session.is_locked().await {
            Ok(true) => {
                self.server
                    .timing
                    .lease
                    .deadline(started)
                    .ok_or_else(|| LockError::TooLate {
                        elapsed: started.elapsed(),
                        votes: self.server.database.votes(Answer::Accepted),
                    })
            }
            Err(Answer::TimedOut) => Err(self.server.no_quorum(Answer::TimedOut)),
            answer => {
                *self.session.get_mut() = None;
                Err(self.server.lost(answer.err().unwrap_or(Answer::Gone)))
            }
        }
    }

    /// Runs in its own task, so that a caller that drops the future does not leave half a statement
    /// behind.
    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        let Some(session) = self.session.get_mut().take() else {
            return Err(self.server.lost(Answer::Gone));
        };
        let answer = match Handle::try_current() {
            Ok(runtime) => runtime
                .spawn(session.unlock())
                .await
                .unwrap_or_else(|error| Err(Answer::Failed(Arc::new(error)))),
            Err(_) => session.unlock().await,
        };
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.server.lost(Answer::Gone)),
            Err(Answer::TimedOut) => Err(self.server.no_quorum(Answer::TimedOut)),
            Err(answer) => Err(self.server.lost(answer)),
        }
    }
}
