//! An acquisition in the table, and its release.
//!
//! The acquire runs in a task that owns the acquisition, never in the caller's future. If the
//! caller has gone, the acquisition is dropped when the answer arrives, and not before. The drop
//! starts a task that releases the lock. It repeats the release until the database has answered or
//! the lease has ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{sleep, timeout_at},
};

use super::{
    database::{failed, is_worth_repeating},
    dialect::Dialect,
    rows::Rows,
    table::StatementResult,
};
use crate::{error::Answer, owner::unique, retry::jittered, token::FencingToken};

/// Repetitions of a statement that lost a conflict with another one.
const CONFLICT_RETRIES: usize = 4;
const CONFLICT_RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Pause before a database that did not answer is sent the release again.
const RELEASE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the release came before the lease had ended.
pub(crate) type Released = oneshot::Receiver<Result<bool, Answer>>;

pub(crate) struct Acquisition<DB: Dialect> {
    rows: Arc<Rows<DB>>,
    name: Arc<str>,
    owner: Arc<str>,
    /// When everything that was requested has expired. `None` if nothing was requested, or if the
    /// release has started.
    expires_at: Option<Instant>,
}

impl<DB: Dialect> Acquisition<DB> {
    /// An acquisition with a unique owner. Nothing is sent yet.
    pub(crate) fn new(rows: Arc<Rows<DB>>, name: Arc<str>) -> Self {
        Self {
            rows,
            name,
            owner: unique().into(),
            expires_at: None,
        }
    }

    /// Idempotent: an owner that repeats the request, because the answer was lost, gets the same
    /// token.
    pub(crate) async fn acquire(&mut self) -> Result<FencingToken, Answer> {
        let limit = Instant::now() + self.rows.ttl();
        self.expires_at = Some(limit + self.rows.ttl());
        let answer = match timeout_at(limit.into(), self.acquire_with_retries()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(Answer::TimedOut),
        };
        if answer.is_err() {
            self.expires_at = None;
        }
        answer
    }

    async fn acquire_with_retries(&self) -> StatementResult<FencingToken> {
        let mut retries = 0..CONFLICT_RETRIES;
        loop {
            match self.rows.acquire(&self.name, &self.owner).await {
                Err(error) if is_worth_repeating(&error) && retries.next().is_some() => {
                    sleep(jittered(CONFLICT_RETRY_PAUSE)).await
                }
                answer => return answer,
            }
        }
    }

    pub(crate) async fn extend(&mut self) -> Result<bool, Answer> {
        self.expires_at = Some(Instant::now() + 2 * self.rows.ttl());
        self.rows.extend(&self.name, &self.owner).await
    }

    /// The current holder of the lock, as far as the database answers.
    pub(crate) async fn holder(&self) -> Answer {
        self.rows.holder(&self.name).await
    }

    /// Skips the release, so that the lock-delay runs to its end.
    pub(crate) fn keep_lock_delay(&mut self) {
        self.expires_at = None;
    }

    /// Starts the task that releases the lock. Only the end of the runtime can stop it.
    pub(crate) fn release_in_background(&mut self) -> Option<Released> {
        let until = self.expires_at.take()?;
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
            // The caller may have gone.
            let _ = sender.send(answer);
            while failing && Instant::now() < until {
                sleep(RELEASE_RETRY_INTERVAL).await;
                answer = rows.release(&name, &owner).await;
                failing = answer.is_err();
            }
        });
        Some(released)
    }
}

impl<DB: Dialect> Drop for Acquisition<DB> {
    fn drop(&mut self) {
        self.release_in_background();
    }
}
