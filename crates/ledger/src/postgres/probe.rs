//! The question whether the ledger can write, on a connection of its own: it must not wait for one of
//! the pool, which may be full.

use std::time::Duration;

use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::{sync::Mutex, time::timeout};

use super::session;
use crate::{LedgerError, error::NotWritable};

pub(super) struct Probe {
    options: PgConnectOptions,
    timeout: Duration,
    /// Only a connection whose last answer was good is kept.
    connection: Mutex<Option<PgConnection>>,
}

impl Probe {
    pub(super) fn new(options: PgConnectOptions, timeout: Duration) -> Self {
        Self {
            options,
            timeout,
            connection: Mutex::new(None),
        }
    }

    /// Fails unless a new connection would reach a server that can write.
    pub(super) async fn check(&self) -> Result<(), LedgerError> {
        let asked = timeout(self.timeout, self.ask()).await;
        asked.unwrap_or(Err(LedgerError::NoAnswer(self.timeout)))
    }

    /// Why the pool could not connect. The pool itself often tells only that its time was over.
    pub(super) async fn reason(&self, error: LedgerError) -> LedgerError {
        match error {
            LedgerError::Database(sqlx::Error::PoolTimedOut) => {
                self.check().await.err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// A kept connection that fails proves nothing about the server that the address names now, so a
    /// new one decides.
    async fn ask(&self) -> Result<(), LedgerError> {
        let mut kept = self.connection.lock().await;
        // Taken and not borrowed: a caller that stops waiting leaves half an answer in it.
        if let Some(mut connection) = kept.take()
            && check(&mut connection).await.is_ok()
        {
            *kept = Some(connection);
            return Ok(());
        }
        let mut connection = self.options.connect().await?;
        check(&mut connection).await?;
        *kept = Some(connection);
        Ok(())
    }
}

async fn check(connection: &mut PgConnection) -> Result<(), LedgerError> {
    match session::read_only(connection).await? {
        None => Ok(()),
        Some(why) => Err(NotWritable(why).into()),
    }
}
