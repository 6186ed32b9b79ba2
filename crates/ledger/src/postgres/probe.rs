//! The question whether the ledger can write, on a connection of its own: it must not wait for one
//! of the pool, which may be full.

use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::{sync::Mutex, time::timeout};

use super::{doubt, full_disk, session};
use crate::{
    LedgerError,
    error::{NotWritable, ReadOnly},
};

/// How long a connection is kept. A password, a right or an address that has changed shows at a new
/// connection only, and the pools open new ones all the time.
const KEPT_FOR: Duration = Duration::from_secs(30);

pub(super) struct Probe {
    options: PgConnectOptions,
    timeout: Duration,
    /// Only a connection whose last answer was good is kept.
    connection: Mutex<Option<Kept>>,
}

struct Kept {
    connection: PgConnection,
    since: Instant,
}

impl Kept {
    /// Whether it still tells what a new one would.
    fn is_valid(&self) -> bool {
        let age = self.since.elapsed();
        age < KEPT_FOR && !doubt::applies_to(age)
    }
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
        asked.unwrap_or(Err(LedgerError::NoAnswer(self.timeout)))?;
        // The last, because with a full disk clients still connect and read.
        match full_disk::is_remembered() {
            true => Err(NotWritable(ReadOnly::FullDisk).into()),
            false => Ok(()),
        }
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

    /// A kept connection that fails proves nothing about the server that the address names now, so
    /// a new one decides.
    async fn ask(&self) -> Result<(), LedgerError> {
        let mut kept = self.connection.lock().await;
        // Taken and not borrowed: a caller that stops waiting leaves half an answer in it.
        if let Some(mut old) = kept.take().filter(Kept::is_valid) {
            match check(&mut old.connection).await {
                Ok(()) => {
                    *kept = Some(old);
                    return Ok(());
                }
                // The pools have connections to the same server.
                Err(LedgerError::NotWritable(_)) => doubt::raise(),
                Err(_) => {}
            }
        }
        let mut connection = self.options.connect().await?;
        check(&mut connection).await?;
        let since = Instant::now();
        *kept = Some(Kept { connection, since });
        Ok(())
    }
}

async fn check(connection: &mut PgConnection) -> Result<(), LedgerError> {
    match session::read_only(connection).await? {
        None => Ok(()),
        Some(why) => Err(NotWritable(why).into()),
    }
}
