//! A pool, its name in errors, and the time limit of an answer.

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::{Error, Pool, pool::PoolConnection};
use tokio::time::timeout;

use super::{
    dialect::{Dialect, Options},
    pooler::{self, PoolerMode},
};
use crate::{
    error::{Answer, InvalidArgument, LockError, Vote},
    secrets::without_secrets,
    store,
};

/// Enough connections for statements that each take a few milliseconds.
const CONNECTIONS_MAX: u32 = 4;
/// Fraction of the time limit for which SQLite waits for a locked file: its refusal must arrive
/// before the limit.
const BUSY_TIMEOUT_FRACTION: (u32, u32) = (3, 4);

pub(crate) struct Database<DB: Dialect> {
    pub pool: Pool<DB>,
    pub label: String,
    /// Time limit of an answer.
    pub timeout: Duration,
}

impl<DB: Dialect> Database<DB> {
    pub(crate) fn new(pool: Pool<DB>, timeout: Duration) -> Self {
        let label = DB::label(&pool.connect_options());
        Self {
            pool,
            label,
            timeout,
        }
    }

    /// Connects when the first connection is needed.
    pub(crate) fn lazy(url: &str, timeout: Duration) -> Result<Self, InvalidArgument> {
        let refused = |_| InvalidArgument::Url {
            found: without_secrets(url),
            expected: DB::URL,
        };
        let options: Options<DB> = url.parse().map_err(refused)?;
        let options = DB::adapt(
            options,
            timeout * BUSY_TIMEOUT_FRACTION.0 / BUSY_TIMEOUT_FRACTION.1,
        );
        let pool = sqlx::pool::PoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .connect_lazy_with(options);
        Ok(Self::new(pool, timeout))
    }

    pub(crate) fn votes(&self, answer: Answer) -> Vec<Vote> {
        Vote::single(&self.label, answer)
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

    /// A connection within the time limit.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<DB>, Error> {
        timeout(self.timeout, self.pool.acquire())
            .await
            .map_err(|_| Error::PoolTimedOut)?
    }

    /// Awaits an answer within the time limit.
    pub(crate) async fn within_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Answer> {
        timeout(self.timeout, request)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

pub(crate) fn failed(error: Error) -> Answer {
    match error {
        Error::PoolTimedOut => Answer::TimedOut,
        error if pooler::explains(&error) => Answer::Failed(Arc::new(PoolerMode)),
        error => Answer::Failed(Arc::new(error)),
    }
}

/// The answer. A connection to a server that takes no writes is closed instead of returned to its
/// pool, so the next one resolves the address anew.
pub(crate) fn trusted<DB: Dialect, T>(
    connection: &mut PoolConnection<DB>,
    answer: Result<T, Error>,
) -> Result<T, Error> {
    answer.inspect_err(|error| {
        if store::is_of_wrong_server(error) {
            connection.close_on_drop();
        }
    })
}

/// Whether the same statement may succeed immediately: it lost a conflict with another one, or its
/// pooled connection was dead or led to the wrong server.
pub(crate) fn is_worth_repeating(error: &Error) -> bool {
    !matches!(error, Error::PoolTimedOut) && store::is_transient(error)
}
