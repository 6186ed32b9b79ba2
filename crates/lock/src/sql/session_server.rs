//! The database of session locks, apart from the sessions themselves.

use tokio::time::sleep;

use super::{
    database::Database,
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
}

impl<DB: SessionDialect> SessionServer<DB> {
    /// Returns when the server has not answered for a while, on a connection that waits for no
    /// lock.
    pub(crate) async fn unreachable(&self) {
        loop {
            sleep(self.timing.lease.length.max(self.database.timeout)).await;
            let probed = async {
                let mut connection = self.database.pool.acquire().await?;
                DB::run(&mut connection, "SELECT 1".into()).await
            };
            if self.database.within_timeout(probed).await.is_err() {
                return;
            }
        }
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
