//! One SQLite file.

use std::{sync::Arc, time::Duration};

use lock::{Lock, SqlLockBuilder};
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{Site, contract};
use crate::site::ms;

pub struct File {
    pub url: String,
    _folder: TempDir,
    /// Somebody else, who has the whole file and does not let go.
    intruder: Option<SqliteConnection>,
}

pub async fn session(url: &str) -> SqliteConnection {
    let mut session = SqliteConnection::connect(url).await.unwrap();
    session
        .execute("PRAGMA busy_timeout = 10000")
        .await
        .unwrap();
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
        let site = Self {
            url,
            _folder: folder,
            intruder: None,
        };
        site.builder()
            .build()
            .unwrap()
            .create_table()
            .await
            .unwrap();
        site
    }

    pub fn builder(&self) -> SqlLockBuilder<sqlx::Sqlite> {
        SqlLockBuilder::connect(&self.url)
            .lease(Self::LEASE)
            .timeout(ms(1000))
            .retry(ms(50))
    }
}

impl Site for File {
    async fn shared() -> &'static Self {
        static SHARED: OnceCell<File> = OnceCell::const_new();
        SHARED.get_or_init(Self::new).await
    }

    async fn own() -> Self {
        Self::new().await
    }

    async fn client(&self) -> Arc<dyn Lock> {
        Arc::new(self.builder().build().unwrap())
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        Arc::new(self.builder().lock_delay(delay).build().unwrap())
    }

    /// There is no server to kill. A writer that hangs in its transaction is what keeps a file from everybody.
    async fn break_down(&mut self) {
        let mut intruder = session(&self.url).await;
        intruder.execute("BEGIN EXCLUSIVE").await.unwrap();
        self.intruder = Some(intruder);
    }

    async fn mend(&mut self) {
        self.intruder.take().unwrap().close().await.unwrap();
    }

    async fn steal(&self, name: &str) {
        let steal =
            sqlx::query("UPDATE locks SET expires_at_us = 0 WHERE name = ?").bind(name.as_bytes());
        steal.execute(&mut session(&self.url).await).await.unwrap();
    }
}

contract!(row, File);
