//! A pool, its name in errors, and how long an answer is waited for.

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::{Error, Pool, pool::PoolConnection};
use tokio::time::timeout;

use super::dialect::{Dialect, Options};
use crate::{
    LockError,
    error::{Answer, InvalidArgument, Vote, without_credentials},
    store,
};

/// How many connections are enough for statements that each take a moment.
const CONNECTIONS_MAX: u32 = 4;
/// SQLite must say that the file is locked before we stop listening.
const BUSY_FOR: (u32, u32) = (3, 4);

pub(crate) struct Database<DB: Dialect> {
    pub pool: Pool<DB>,
    pub label: String,
    /// How long an answer is waited for.
    pub answer: Duration,
}

impl<DB: Dialect> Database<DB> {
    pub(crate) fn new(pool: Pool<DB>, answer: Duration) -> Self {
        let label = DB::label(&pool.connect_options());
        Self {
            pool,
            label,
            answer,
        }
    }

    /// Connects when it is first asked.
    pub(crate) fn lazy(url: &str, answer: Duration) -> Result<Self, InvalidArgument> {
        let refused = |_| InvalidArgument::Url {
            found: without_credentials(url),
            expected: DB::URL,
        };
        let options: Options<DB> = url.parse().map_err(refused)?;
        let options = DB::with_patience(options, answer * BUSY_FOR.0 / BUSY_FOR.1);
        let pool = sqlx::pool::PoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .connect_lazy_with(options);
        Ok(Self::new(pool, answer))
    }

    pub(crate) fn votes(&self, answer: Answer) -> Vec<Vote> {
        vec![Vote {
            node: self.label.clone(),
            answer,
        }]
    }

    /// The error for an answer to an acquisition.
    pub(crate) fn refusal(&self, answer: Answer) -> LockError {
        match answer {
            Answer::Held { .. } => LockError::Held {
                votes: self.votes(answer),
            },
            Answer::TooLow { .. } | Answer::Unreadable(_) => LockError::NoTokenLeft {
                votes: self.votes(answer),
            },
            _ => LockError::NoQuorum {
                causes: self.votes(answer),
            },
        }
    }

    /// A connection, within the time of an answer.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<DB>, Error> {
        timeout(self.answer, self.pool.acquire())
            .await
            .map_err(|_| Error::PoolTimedOut)?
    }

    /// Waits for an answer as long as it is of use.
    pub(crate) async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Answer> {
        timeout(self.answer, asked)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

pub(crate) fn failed(error: Error) -> Answer {
    match error {
        Error::PoolTimedOut => Answer::TimedOut,
        error => Answer::Failed(Arc::new(error)),
    }
}

/// Whether the same statement may succeed at once: it lost against another, or its connection was an old one.
pub(crate) fn is_worth_repeating(error: &Error) -> bool {
    !matches!(error, Error::PoolTimedOut) && store::is_passing(error)
}
