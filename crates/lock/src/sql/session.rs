//! A connection that holds a lock or waits for it. The lock ends with the connection.
//!
//! The server closes the connection after a lease of silence. Our deadline is counted from before
//! the last request that the server answered, so it passes first.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection, Error};
use tokio::{runtime::Handle, time::timeout};

use super::{
    database::{failed, trusted},
    dialect::{Value, arguments},
    method::{Row, SessionDialect},
    pooler::PoolerMode,
    session_server::SessionServer,
};
use crate::{error::Answer, token::FencingToken};

/// Shortest time limit of a new connection, which costs more than a statement.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// How long the insert of a name's row may wait for another insert of the same row.
const INSERT_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Session<DB: SessionDialect> {
    server: Arc<SessionServer<DB>>,
    key: Arc<[u8]>,
    /// `None` once it is closed.
    connection: Option<DB::Connection>,
    /// Whether no statement is in flight, so that the connection can be closed cleanly.
    idle: bool,
}

impl<DB: SessionDialect> Session<DB> {
    /// Connects and inserts the row that is locked, if it is missing.
    pub(crate) async fn open(server: Arc<SessionServer<DB>>, name: &str) -> Result<Self, Answer> {
        let key = format!("{}{name}", server.method.prefix)
            .into_bytes()
            .into();
        let options = server.database.pool.connect_options();
        let limit = server.database.timeout.max(CONNECT_TIMEOUT_MIN);
        let connected = async {
            let mut connection = DB::Connection::connect_with(&options).await?;
            let patience = limit / 2;
            let pooler = server.is_pooler(&mut connection, &options, patience);
            if pooler.await? {
                return Ok(Err(Answer::Failed(Arc::new(PoolerMode))));
            }
            DB::run(&mut connection, DB::settings(server.timing.lease.length)).await?;
            if let Some(settings) = DB::optional_settings() {
                // Without them, a waiter that has gone stays in the queue until it gets the lock.
                let _ = DB::run(&mut connection, settings).await;
            }
            Ok(Ok(connection))
        };
        let connection = timeout(limit, connected)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)??;
        let mut session = Self {
            server: Arc::clone(&server),
            key,
            connection: Some(connection),
            idle: true,
        };
        if let Some(row) = &server.method.row {
            timeout(limit + INSERT_TIMEOUT, session.begin(row))
                .await
                .map_err(|_| Answer::TimedOut)?
                .map_err(failed)?;
        }
        Ok(session)
    }

    /// Begins the transaction once the row exists. An insert that fails because another session
    /// holds a lock on the row proves that the row exists.
    async fn begin(&mut self, row: &Row) -> Result<(), Error> {
        if self.number(&row.find).await? == 0 {
            let key = arguments::<DB>(&[Value::Bytes(&self.key)])?;
            if let Err(error) = DB::update(self.connection()?, row.insert.clone(), key).await
                && self.number(&row.find).await? == 0
            {
                return Err(error);
            }
        }
        DB::run(self.connection()?, "BEGIN".into()).await
    }

    /// Acquires the lock if it is free.
    pub(crate) async fn try_lock(&mut self) -> Result<bool, Answer> {
        let server = Arc::clone(&self.server);
        self.query(&server.method.try_lock, Some(server.database.timeout))
            .await
    }

    /// Waits for the lock and acquires it. If this future is dropped, the session must be dropped
    /// as well.
    pub(crate) async fn lock(&mut self) -> Result<bool, Answer> {
        let server = Arc::clone(&self.server);
        self.query(&server.method.lock, None).await
    }

    /// Whether the session holds the lock.
    pub(crate) async fn is_locked(&mut self) -> Result<bool, Answer> {
        let server = Arc::clone(&self.server);
        self.query(&server.method.is_locked, Some(server.database.timeout))
            .await
    }

    /// Releases the lock and returns whether the session held it.
    pub(crate) async fn unlock(mut self) -> Result<bool, Answer> {
        let server = Arc::clone(&self.server);
        let held = self
            .query(&server.method.unlock, Some(server.database.timeout))
            .await?;
        if server.method.row.is_some() {
            let ended = async { DB::run(self.connection()?, "COMMIT".into()).await };
            server.database.within_timeout(ended).await?;
        }
        Ok(held)
    }

    /// The next token, for a session that holds the lock. See [`super::session_lock`] for the
    /// choice of the connection.
    pub(crate) async fn draw_token(&mut self, name: &str) -> Result<FencingToken, Answer> {
        let server = Arc::clone(&self.server);
        let drawn = async {
            if server.method.row.is_none() {
                return server.table.draw_token(self.connection()?, name).await;
            }
            let mut connection = server.database.pool.acquire().await?;
            let drawn = server.table.draw_token(&mut connection, name).await;
            trusted(&mut connection, drawn)
        };
        server.database.within_timeout(drawn).await?
    }

    fn connection(&mut self) -> Result<&mut DB::Connection, Error> {
        self.idle = false;
        self.connection.as_mut().ok_or(Error::WorkerCrashed)
    }

    async fn query(&mut self, sql: &str, limit: Option<Duration>) -> Result<bool, Answer> {
        let number = match limit {
            Some(limit) => timeout(limit, self.number(sql))
                .await
                .map_err(|_| Answer::TimedOut)?,
            None => self.number(sql).await,
        };
        let answer = number.map_err(failed)? == 1;
        self.idle = true;
        Ok(answer)
    }

    /// The number in the first row; zero if there is no row.
    async fn number(&mut self, sql: &str) -> Result<i64, Error> {
        let key = arguments::<DB>(&[Value::Bytes(&self.key)])?;
        Ok(DB::number(self.connection()?, sql.to_owned(), key)
            .await?
            .unwrap_or(0))
    }
}

/// The server releases the lock as soon as the connection is closed. An idle connection is closed
/// cleanly, to keep the server's log free of warnings.
impl<DB: SessionDialect> Drop for Session<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.idle
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(CLOSE_TIMEOUT, connection.close()));
        }
    }
}
