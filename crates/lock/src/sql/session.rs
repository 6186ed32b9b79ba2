//! A connection that has a lock, or waits for it. Whatever ends the connection ends the lock.
//!
//! The server ends it when it was not heard from for a lease. We count from before we were last heard, so we know first.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection, Error};
use tokio::{runtime::Handle, time::timeout};

use super::{
    database::failed,
    dialect::{Value, arguments},
    means::{Row, Sessions},
    waiter::Inner,
};
use crate::error::Answer;

/// A new connection costs more than a statement on an old one.
const CONNECT_MIN: Duration = Duration::from_secs(2);
/// How long somebody who makes a name's row may be in the way of others who would.
const ADD_MAX: Duration = Duration::from_secs(3);
const CLOSE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Session<DB: Sessions> {
    lock: Arc<Inner<DB>>,
    key: Arc<[u8]>,
    /// `None` once it is closed.
    connection: Option<DB::Connection>,
    /// Whether nothing is on its way, so that a farewell is heard.
    quiet: bool,
}

impl<DB: Sessions> Session<DB> {
    /// Connects, and makes sure that there is something to lock.
    pub(crate) async fn open(lock: Arc<Inner<DB>>, name: &str) -> Result<Self, Answer> {
        let key = format!("{}{name}", lock.means.prefix).into_bytes().into();
        let options = lock.database.pool.connect_options();
        let connected = async {
            let mut connection = DB::Connection::connect_with(&options).await?;
            DB::run(&mut connection, DB::settings(lock.lease.length)).await?;
            if let Some(settings) = DB::settings_if_known() {
                // Without it, those who have gone stay in the queue until it is their turn, and go then.
                let _ = DB::run(&mut connection, settings).await;
            }
            Ok(connection)
        };
        let patience = lock.database.answer.max(CONNECT_MIN);
        let connection = timeout(patience, connected)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)?;
        let mut session = Self {
            lock: Arc::clone(&lock),
            key,
            connection: Some(connection),
            quiet: true,
        };
        if let Some(row) = &lock.means.row {
            timeout(patience + ADD_MAX, session.begin(row))
                .await
                .map_err(|_| Answer::TimedOut)?
                .map_err(failed)?;
        }
        Ok(session)
    }

    /// In a transaction, with the row in the table. Whoever waits for an insert that another's lock is in the way of knows that it is there.
    async fn begin(&mut self, row: &Row) -> Result<(), Error> {
        if self.number(&row.find).await? == 0 {
            let added = arguments::<DB>(&[Value::Bytes(&self.key)])?;
            if let Err(error) = DB::update(self.connection()?, row.add.clone(), added).await
                && self.number(&row.find).await? == 0
            {
                return Err(error);
            }
        }
        DB::run(self.connection()?, "BEGIN".into()).await
    }

    /// Takes the lock if it is free.
    pub(crate) async fn take(&mut self) -> Result<bool, Answer> {
        let lock = Arc::clone(&self.lock);
        self.asked(&lock.means.take, Some(lock.database.answer))
            .await
    }

    /// Takes the lock when it is free. Dropped before, it must not be asked anything else.
    pub(crate) async fn wait(&mut self) -> Result<bool, Answer> {
        let lock = Arc::clone(&self.lock);
        self.asked(&lock.means.wait, None).await
    }

    /// Whether it has the lock.
    pub(crate) async fn check(&mut self) -> Result<bool, Answer> {
        let lock = Arc::clone(&self.lock);
        self.asked(&lock.means.check, Some(lock.database.answer))
            .await
    }

    /// Gives the lock back, and says whether it had it.
    pub(crate) async fn free(mut self) -> Result<bool, Answer> {
        let lock = Arc::clone(&self.lock);
        let had = self
            .asked(&lock.means.free, Some(lock.database.answer))
            .await?;
        if lock.means.row.is_some() {
            let ended = async { DB::run(self.connection()?, "COMMIT".into()).await };
            lock.database.within(ended).await?;
        }
        Ok(had)
    }

    /// The connection, for statements about the lock that only its holder may send.
    pub(crate) fn connection(&mut self) -> Result<&mut DB::Connection, Error> {
        self.quiet = false;
        self.connection.as_mut().ok_or(Error::WorkerCrashed)
    }

    async fn asked(&mut self, sql: &str, patience: Option<Duration>) -> Result<bool, Answer> {
        let number = match patience {
            Some(patience) => timeout(patience, self.number(sql))
                .await
                .map_err(|_| Answer::TimedOut)?,
            None => self.number(sql).await,
        };
        let answer = number.map_err(failed)? == 1;
        self.quiet = true;
        Ok(answer)
    }

    /// No row is no.
    async fn number(&mut self, sql: &str) -> Result<i64, Error> {
        let key = arguments::<DB>(&[Value::Bytes(&self.key)])?;
        Ok(DB::number(self.connection()?, sql.to_owned(), key)
            .await?
            .unwrap_or(0))
    }
}

/// The server frees the lock as soon as it knows that the connection is closed. It says goodbye where it can, for the server's log.
impl<DB: Sessions> Drop for Session<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.quiet
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(CLOSE_MAX, connection.close()));
        }
    }
}
