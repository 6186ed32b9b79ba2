//! The statements of a lock that is a row, each on a pooled connection and with a time limit.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use sqlx::Error;

use super::{
    database::{Database, trusted},
    dialect::Dialect,
    table::{StatementResult, Table},
};
use crate::{error::Answer, options::Timing, token::FencingToken};

/// What the clones of a [`SqlLock`](super::SqlLock) share.
pub(crate) struct Rows<DB: Dialect> {
    pub database: Database<DB>,
    pub table: Table<DB>,
    pub timing: Timing,
    /// The highest token that is known from elsewhere; the next ones are above it.
    pub floor: AtomicI64,
}

impl<DB: Dialect> Rows<DB> {
    /// Lifetime of a row: the lease and the lock-delay.
    pub(crate) fn ttl(&self) -> Duration {
        self.timing.ttl()
    }

    /// Without a time limit: the caller has its own.
    pub(crate) async fn acquire(&self, name: &str, owner: &str) -> StatementResult<FencingToken> {
        let mut connection = self.database.pool.acquire().await?;
        let floor = self.floor.load(Ordering::Relaxed);
        let acquired = self
            .table
            .acquire(&mut connection, name, owner, floor, self.ttl())
            .await;
        trusted(&mut connection, acquired)
    }

    /// Whether the owner still held the lock.
    pub(crate) async fn extend(&self, name: &str, owner: &str) -> Result<bool, Answer> {
        let extended = async {
            let mut connection = self.database.pool.acquire().await?;
            let extended = self
                .table
                .extend(&mut connection, name, owner, self.ttl())
                .await;
            trusted(&mut connection, extended)
        };
        self.database.within_timeout(extended).await
    }

    /// Whether the owner still held the lock.
    pub(crate) async fn release(&self, name: &str, owner: &str) -> Result<bool, Answer> {
        let released = async {
            let mut connection = self.database.pool.acquire().await?;
            let released = self.table.release(&mut connection, name, owner).await;
            trusted(&mut connection, released)
        };
        self.database.within_timeout(released).await
    }

    /// The current holder, as far as the database answers.
    pub(crate) async fn holder(&self, name: &str) -> Answer {
        let read = async {
            let mut connection = self.database.pool.acquire().await?;
            let holder: Result<_, Error> = self.table.holder(&mut connection, name).await;
            trusted(&mut connection, holder)
        };
        match self.database.within_timeout(read).await {
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
