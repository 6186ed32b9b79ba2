//! One SQLite file.

use std::{sync::Arc, time::Duration};

use lock::{Lock, SqlLockBuilder};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use testbed::timeout;

use super::{TestEnv, answer_timeout};
use crate::support::{HOUR, ms};

pub struct File {
    pub url: String,
    _folder: TempDir,
    /// Another client that keeps the whole file locked.
    intruder: Option<SqliteConnection>,
}

pub async fn session(url: &str) -> SqliteConnection {
    let mut session = SqliteConnection::connect(url).await.unwrap();
    let settings = format!("PRAGMA busy_timeout = {}", timeout().as_millis());
    session.execute(AssertSqlSafe(settings)).await.unwrap();
    session
}

impl File {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/locks.db", folder.path().display());
        session(&format!("{url}?mode=rwc"))
            .await
            .execute("PRAGMA journal_mode = WAL")
            .await
            .unwrap();
        let env = Self {
            url,
            _folder: folder,
            intruder: None,
        };
        let builder = env.builder(Self::LEASE);
        builder.build().unwrap().create_table().await.unwrap();
        env
    }

    fn builder(&self, lease: Duration) -> SqlLockBuilder<sqlx::Sqlite> {
        SqlLockBuilder::connect(&self.url)
            .lease(lease)
            .timeout(answer_timeout(lease))
            .retry(ms(50))
    }
}

impl TestEnv for File {
    async fn shared() -> &'static Self {
        static SHARED: OnceCell<File> = OnceCell::const_new();
        SHARED.get_or_init(Self::new).await
    }

    async fn own() -> Self {
        Self::new().await
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(lease).build().unwrap())
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder(Self::LEASE).retry(HOUR).build().unwrap())
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder(Self::LEASE).lock_delay(delay).build().unwrap())
    }

    /// There is no server to kill. A writer that hangs in its transaction makes the file
    /// unavailable to all clients.
    async fn make_unavailable(&mut self) {
        let mut intruder = session(&self.url).await;
        intruder.execute("BEGIN EXCLUSIVE").await.unwrap();
        self.intruder = Some(intruder);
    }

    async fn make_available(&mut self) {
        self.intruder.take().unwrap().close().await.unwrap();
    }

    async fn revoke(&self, name: &str) {
        let revoke =
            sqlx::query("UPDATE locks SET expires_at_us = 0 WHERE name = ?").bind(name.as_bytes());
        revoke.execute(&mut session(&self.url).await).await.unwrap();
    }
}
