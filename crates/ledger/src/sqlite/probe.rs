//! The question whether the file can be written, on a connection of its own: it must not queue
//! behind the writers of this process.
//!
//! To take the write lock and to give it back again shows nearly everything, and writes nothing.
//! Only a full disk shows in a commit alone, because SQLite writes nothing before. A commit waits
//! for the disk while every other writer waits for it, so it is rare. A disk that fills up shows in
//! the orders first.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::OnceCell;

use super::{is_busy, writer::Writer};
use crate::{
    LedgerError,
    transaction::{self, Transact},
};

/// How long the probe waits for the write lock. From a second on, sqlx would warn of each look at a
/// lock that others have, which is no news.
const BUSY_TIMEOUT: Duration = Duration::from_millis(900);

/// How long a question waits for the one before it.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two commits, unless the last answer was bad.
const COMMIT_EACH: Duration = Duration::from_secs(10);

/// How long it is no news that others write. One that holds the lock for longer than this keeps all
/// orders waiting.
const BUSY_FOR: Duration = Duration::from_secs(10);

pub(super) struct Probe {
    options: SqliteConnectOptions,
    /// Connected by the first question.
    writer: OnceCell<Writer>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When the lock was had last.
    locked: Option<Instant>,
    /// When a page was committed last, and nothing bad was seen since.
    committed: Option<Instant>,
}

impl Seen {
    fn commits_at(&self, now: Instant) -> bool {
        self.committed
            .is_none_or(|at| now.saturating_duration_since(at) >= COMMIT_EACH)
    }

    /// Keeps what an attempt has come to, and returns what it says about the file.
    fn note(
        &mut self,
        now: Instant,
        committed: bool,
        attempt: Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        let is_young = |at: Instant| now.saturating_duration_since(at) < BUSY_FOR;
        match attempt {
            Ok(()) => {
                self.locked = Some(now);
                self.committed = committed.then_some(now).or(self.committed);
                Ok(())
            }
            Err(LedgerError::Database(error))
                if is_busy(&error) && self.locked.is_some_and(is_young) =>
            {
                Ok(())
            }
            Err(error) => {
                self.committed = None;
                Err(error)
            }
        }
    }
}

impl Probe {
    pub(super) fn new(options: &SqliteConnectOptions) -> Self {
        Self {
            options: options.clone().busy_timeout(BUSY_TIMEOUT),
            writer: OnceCell::new(),
            seen: Mutex::default(),
        }
    }

    pub(super) async fn check(&self) -> Result<(), LedgerError> {
        let commits = self.seen().commits_at(Instant::now());
        let attempt = self.ask(commits).await;
        self.seen().note(Instant::now(), commits, attempt)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, commits: bool) -> Result<(), LedgerError> {
        let connect = || Writer::connect(&self.options, TURN_TIMEOUT);
        let writer = self.writer.get_or_try_init(connect).await?;
        let mut transaction = writer.begin().await?;
        if !commits {
            // Nothing was changed, so nothing is written.
            return transaction.commit().await;
        }
        // The page with the header: it gets the version number that it has.
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&mut *transaction)
            .await?;
        let same = format!("PRAGMA user_version = {version}");
        let written = sqlx::raw_sql(sqlx::AssertSqlSafe(same))
            .execute(&mut *transaction)
            .await;
        let written = written.map(|_| ()).map_err(LedgerError::from);
        transaction::end(transaction, written).await
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor, SqliteConnection};

    use super::{BUSY_FOR, COMMIT_EACH, Instant, Seen};
    use crate::LedgerError;

    /// The error of a file whose write lock another connection has.
    async fn busy() -> LedgerError {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/ledger.db?mode=rwc", folder.path().display());
        let mut writer = SqliteConnection::connect(&url).await.unwrap();
        writer.execute("BEGIN IMMEDIATE").await.unwrap();
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("PRAGMA busy_timeout = 0").await.unwrap();
        LedgerError::from(other.execute("BEGIN IMMEDIATE").await.unwrap_err())
    }

    #[tokio::test]
    async fn writers_that_are_busy_are_no_news_for_a_while() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        assert!(
            seen.note(start, true, Err(busy().await)).is_err(),
            "it was never had"
        );
        seen.note(start, true, Ok(())).unwrap();
        let soon = start + BUSY_FOR / 2;
        seen.note(soon, false, Err(busy().await)).unwrap();
        assert!(
            seen.note(start + BUSY_FOR, false, Err(busy().await))
                .is_err()
        );
    }

    #[tokio::test]
    async fn a_page_is_committed_at_first_and_then_rarely_and_after_each_refusal() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        assert!(seen.commits_at(start));
        seen.note(start, true, Ok(())).unwrap();
        let soon = start + COMMIT_EACH / 2;
        assert!(!seen.commits_at(soon));
        seen.note(soon, false, Ok(())).unwrap();
        assert!(!seen.commits_at(soon) && seen.commits_at(start + COMMIT_EACH));
        let refused = LedgerError::from(sqlx::Error::PoolClosed);
        assert!(seen.note(soon, false, Err(refused)).is_err());
        assert!(seen.commits_at(soon));
    }
}
