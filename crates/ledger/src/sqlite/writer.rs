//! The connection that writes, and transactions on it.
//!
//! A connection of `sqlx` is a thread, and whatever it is asked costs a switch to it and one back. A
//! pool asks it twice for each transaction whether it is alive, and `sqlx::Transaction` has it wait
//! for its caller at the begin and at the end. SQLite has one writer, so there is nothing to choose
//! from, and a transaction here is its statements.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use sqlx::{
    ConnectOptions, Connection as _, Either, Executor as _, SqliteConnection,
    sqlite::SqliteConnectOptions,
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use crate::{
    LedgerError,
    error::answers::{nothing_sent, proves_unchanged},
    transaction::Transact,
};

/// The queue to the one connection that writes.
pub(super) struct Writer {
    place: Arc<Mutex<Place>>,
    options: SqliteConnectOptions,
    /// How long a caller waits for its turn.
    acquire_timeout: Duration,
}

impl Writer {
    pub(super) async fn connect(
        options: &SqliteConnectOptions,
        acquire_timeout: Duration,
    ) -> Result<Self, sqlx::Error> {
        let place = Place {
            connection: options.connect().await?,
            runtime: Handle::current(),
            is_open: false,
        };
        Ok(Self {
            place: Arc::new(Mutex::new(place)),
            options: options.clone(),
            acquire_timeout,
        })
    }

    /// A transaction. Dropping it rolls back some time later, and before anything else is written.
    pub(super) async fn begin(&self) -> Result<Transaction, LedgerError> {
        let mut lent = self.turn().await.map_err(nothing_sent)?;
        let begun = lent.0.begin(&self.options).await;
        begun.map_err(nothing_sent)?;
        Ok(Transaction(lent))
    }

    /// The connection, for a statement without a transaction.
    pub(super) async fn lend(&self) -> Result<Lent, LedgerError> {
        let mut lent = self.turn().await.map_err(nothing_sent)?;
        if lent.ping().await.is_err() {
            let connected = self.options.connect().await;
            lent.0.connection = connected.map_err(nothing_sent)?;
        }
        Ok(lent)
    }

    /// Another connection, for what has to know its transaction.
    pub(super) async fn connect_apart(&self) -> Result<SqliteConnection, LedgerError> {
        self.options.connect().await.map_err(nothing_sent)
    }

    /// Waits until no one else has the connection, and nothing is open on it.
    async fn turn(&self) -> Result<Lent, sqlx::Error> {
        let turn = async {
            let mut lent = Lent(Arc::clone(&self.place).lock_owned().await);
            lent.0.roll_back().await;
            lent
        };
        let turn = timeout(self.acquire_timeout, turn).await;
        turn.map_err(|_| sqlx::Error::PoolTimedOut)
    }
}

struct Place {
    connection: SqliteConnection,
    /// What rolls back where its caller has left. Runtimes that serve requests may end earlier.
    runtime: Handle,
    /// A transaction was begun and has not ended. If no one has the place, it was dropped.
    is_open: bool,
}

impl Place {
    /// Executes a statement that returns no rows. A thread that dies answers nothing at all, which
    /// `execute` takes for a success.
    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        let answers = self.connection.fetch_many(sqlx::query(statement));
        let has_ended = answers.try_fold(false, async |has_ended, answer| {
            Ok(has_ended || matches!(answer, Either::Left(_)))
        });
        match has_ended.await? {
            true => Ok(()),
            false => Err(sqlx::Error::WorkerCrashed),
        }
    }

    async fn begin(&mut self, options: &SqliteConnectOptions) -> Result<(), sqlx::Error> {
        // Before it is: the caller may be dropped while it waits.
        self.is_open = true;
        let mut begun = self.run("BEGIN IMMEDIATE").await;
        if begun.as_ref().is_err_and(|error| !proves_unchanged(error)) {
            // The thread is dead, or an end that failed has left something open.
            self.connection = options.connect().await?;
            begun = self.run("BEGIN IMMEDIATE").await;
        }
        self.is_open = begun.is_ok();
        begun
    }

    /// Rolls back what is open. It fails if SQLite has ended it by itself, as when the disk is full.
    async fn roll_back(&mut self) {
        if self.is_open {
            let _ = self.run("ROLLBACK").await;
            self.is_open = false;
        }
    }
}

/// The connection, for as long as it is lent.
pub(super) struct Lent(OwnedMutexGuard<Place>);

impl Deref for Lent {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.0.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.0.connection
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The next caller would roll it back first. Until then the file would be locked.
        if self.0.is_open {
            let place = Arc::clone(OwnedMutexGuard::mutex(&self.0));
            let roll_back = async move { place.lock().await.roll_back().await };
            self.0.runtime.spawn(roll_back);
        }
    }
}

/// An open transaction. It has the write lock from its begin.
pub(super) struct Transaction(Lent);

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.0
    }
}

#[async_trait]
impl Transact for Transaction {
    async fn commit(mut self) -> Result<(), LedgerError> {
        let place = &mut *self.0.0;
        place.run("COMMIT").await.map_err(LedgerError::commit)?;
        place.is_open = false;
        Ok(())
    }

    async fn roll_back(mut self) {
        self.0.0.roll_back().await;
    }
}
