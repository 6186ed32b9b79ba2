//! The database of session locks, apart from the sessions themselves.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::{Connection, Error};
use tokio::time::{sleep, timeout};

use super::{
    database::{Database, trusted},
    dialect::Options,
    method::{LockMethod, SessionDialect},
    table::Table,
};
use crate::{
    error::{Answer, LockError},
    options::Timing,
};

/// What the clones of a [`SessionLock`](super::SessionLock) share.
pub(crate) struct SessionServer<DB: SessionDialect> {
    /// Its pool draws tokens and probes the server. Each lock has its own connection outside the
    /// pool.
    pub database: Database<DB>,
    pub table: Table<DB>,
    pub method: LockMethod,
    pub timing: Timing,
    /// Whether connections are known to have a session of their own.
    pub direct: AtomicBool,
}

impl<DB: SessionDialect> SessionServer<DB> {
    /// Returns when the server has not answered for a while, on a connection that waits for no
    /// lock, or when it takes no writes any more: then no lock is given there.
    pub(crate) async fn unreachable(&self) {
        loop {
            sleep(self.timing.lease.length.max(self.database.timeout)).await;
            let probed = async {
                let mut connection = self.database.pool.acquire().await?;
                let writable = format!(
                    "SELECT CASE WHEN {} THEN {} ELSE 0 END",
                    DB::WRITABLE,
                    DB::ONE
                );
                let answer = number::<DB>(&mut connection, writable).await;
                trusted(&mut connection, answer)
            };
            if !matches!(self.database.within_timeout(probed).await, Ok(Some(1))) {
                return;
            }
        }
    }

    /// Whether a pooler gives each transaction to another session. It hands out the session that
    /// was used last, or all in turn: the former shows between two connections, the latter in one.
    /// A server never shows either. `patience`: how long a second connection may take.
    pub(crate) async fn is_pooler(
        &self,
        connection: &mut DB::Connection,
        options: &Options<DB>,
        patience: Duration,
    ) -> Result<bool, Error> {
        let Some(session) = DB::SESSION_ID.filter(|_| !self.direct.load(Ordering::Relaxed)) else {
            return Ok(false);
        };
        // The server may have no connection left for a second one.
        let connecting = timeout(patience, DB::Connection::connect_with(options));
        let Ok(Ok(mut second)) = connecting.await else {
            return Ok(false);
        };
        let before = number::<DB>(connection, session.into()).await?;
        let after = number::<DB>(connection, session.into()).await?;
        // A pooler in session mode may let the second connection wait. Then the next lock asks
        // again.
        let other = timeout(patience, number::<DB>(&mut second, session.into())).await;
        let Ok(other) = other else {
            return Ok(before != after);
        };
        let other = other?;
        let _ = second.close().await;
        let shared = before != after || after == other;
        self.direct.store(!shared, Ordering::Relaxed);
        Ok(shared)
    }

    pub(crate) fn no_quorum(&self, answer: Answer) -> LockError {
        LockError::NoQuorum {
            causes: self.database.votes(answer),
        }
    }

    pub(crate) fn lost(&self, answer: Answer) -> LockError {
        LockError::Lost {
            votes: self.database.votes(answer),
        }
    }
}

/// The number that a statement without arguments returns.
async fn number<DB: SessionDialect>(
    connection: &mut DB::Connection,
    sql: String,
) -> Result<Option<i64>, Error> {
    DB::number(connection, sql, DB::Arguments::default()).await
}
