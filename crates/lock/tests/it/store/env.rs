//! A database with a test row, sessions on it, and queries that bypass the library.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock::{
    FencingToken,
    store::{Assignments, Check, Claim, FencedTable, StoreError, Write},
};
use sqlx::{AssertSqlSafe, Connection};

/// InnoDB caches the tables of its transactions for 100 ms, for all sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(230);
/// Key of the row under test.
pub const KEY: i64 = 1;

#[cfg(feature = "postgres")]
static POSTGRES: tokio::sync::OnceCell<testbed::Postgres> = tokio::sync::OnceCell::const_new();
#[cfg(feature = "mysql")]
static MARIADB: tokio::sync::OnceCell<testbed::MariaDb> = tokio::sync::OnceCell::const_new();
#[cfg(any(feature = "postgres", feature = "mysql"))]
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A server that no test stops.
#[cfg(feature = "postgres")]
pub async fn shared_postgres() -> &'static testbed::Postgres {
    POSTGRES
        .get_or_try_init(testbed::Postgres::start)
        .await
        .unwrap()
}

/// A server that no test stops.
#[cfg(feature = "mysql")]
pub async fn shared_mariadb() -> &'static testbed::MariaDb {
    MARIADB
        .get_or_try_init(testbed::MariaDb::start)
        .await
        .unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MariaDb,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// The table `items`, with the row [`KEY`].
pub struct TestEnv {
    pub kind: Kind,
    pub url: String,
    pub items: FencedTable,
    _folder: Option<tempfile::TempDir>,
}

/// State of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub value: String,
    pub fence: i64,
    pub version: i64,
}

impl Row {
    pub fn of(value: &str, fence: i64, version: i64) -> Self {
        let value = value.into();
        Self {
            value,
            fence,
            version,
        }
    }
}

/// A write that has made this version.
pub fn applied(version: i64) -> Write {
    Write::Applied { version }
}

/// A write that has found this version, and not the one that it names.
pub fn conflict(version: i64) -> Write {
    Write::Conflict { version }
}

/// A separate connection to any of the databases.
#[async_trait]
pub trait Session: Send {
    async fn claim(
        &mut self,
        table: &FencedTable,
        key: i64,
        token: FencingToken,
    ) -> Result<Claim, StoreError>;
    async fn write(
        &mut self,
        table: &FencedTable,
        key: i64,
        token: FencingToken,
        version: i64,
        value: &str,
    ) -> Result<Write, StoreError>;
    async fn check(
        &mut self,
        table: &FencedTable,
        key: i64,
        token: FencingToken,
    ) -> Result<Check, StoreError>;
    /// Writes to another column than `value`.
    async fn set(
        &mut self,
        table: &FencedTable,
        token: FencingToken,
        version: i64,
        columns: &[&str],
    ) -> Result<Write, StoreError>;
    /// Runs a plain statement. Returns the number of matched rows.
    async fn try_run(&mut self, sql: String) -> Result<u64, sqlx::Error>;
    async fn number(&mut self, sql: String) -> i64;
    async fn text(&mut self, sql: String) -> String;
}

pub fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

impl dyn Session + '_ {
    pub async fn run(&mut self, sql: impl Into<String> + Send) -> u64 {
        self.try_run(sql.into()).await.unwrap()
    }

    /// Claims the row under test.
    pub async fn claims(&mut self, env: &TestEnv, number: i64) -> Claim {
        let claim = self.claim(&env.items, KEY, token(number)).await;
        claim.unwrap()
    }

    /// The version that such a claim has made.
    pub async fn claimed(&mut self, env: &TestEnv, number: i64) -> i64 {
        match self.claims(env, number).await {
            Claim::Claimed { version } => version,
            other => panic!("{other:?}"),
        }
    }

    /// Writes to the row under test.
    pub async fn writes(&mut self, env: &TestEnv, number: i64, version: i64, value: &str) -> Write {
        let write = self.write(&env.items, KEY, token(number), version, value);
        write.await.unwrap()
    }

    /// Checks the claim of the row under test.
    pub async fn checks(&mut self, env: &TestEnv, number: i64) -> Check {
        let check = self.check(&env.items, KEY, token(number)).await;
        check.unwrap()
    }

    pub async fn row(&mut self) -> Row {
        Row {
            value: self
                .text(format!("SELECT value FROM items WHERE id = {KEY}"))
                .await,
            fence: self
                .number(format!("SELECT fence FROM items WHERE id = {KEY}"))
                .await,
            version: self
                .number(format!("SELECT version FROM items WHERE id = {KEY}"))
                .await,
        }
    }

    /// Sets the state of the row.
    pub async fn put(&mut self, value: &str, fence: i64, version: i64) {
        assert_eq!(self.run(format!("UPDATE items SET value = '{value}', fence = {fence}, version = {version} WHERE id = {KEY}")).await, 1);
    }
}

macro_rules! session {
    ($connection:ty) => {
        #[async_trait]
        impl Session for $connection {
            async fn claim(
                &mut self,
                table: &FencedTable,
                key: i64,
                token: FencingToken,
            ) -> Result<Claim, StoreError> {
                table.claim(self, key, token).await
            }

            async fn write(
                &mut self,
                table: &FencedTable,
                key: i64,
                token: FencingToken,
                version: i64,
                value: &str,
            ) -> Result<Write, StoreError> {
                table
                    .write(
                        self,
                        key,
                        token,
                        version,
                        Assignments::new().set("value", value),
                    )
                    .await
            }

            async fn check(
                &mut self,
                table: &FencedTable,
                key: i64,
                token: FencingToken,
            ) -> Result<Check, StoreError> {
                table.check(self, key, token).await
            }

            async fn set(
                &mut self,
                table: &FencedTable,
                token: FencingToken,
                version: i64,
                columns: &[&str],
            ) -> Result<Write, StoreError> {
                let assignments = columns
                    .iter()
                    .fold(Assignments::new(), |assignments, column| {
                        assignments.set(column, Some(5_i64))
                    });
                table.write(self, KEY, token, version, assignments).await
            }

            async fn try_run(&mut self, sql: String) -> Result<u64, sqlx::Error> {
                // Unprepared, because MariaDB cannot prepare every statement.
                Ok(
                    sqlx::Executor::execute(self, sqlx::raw_sql(AssertSqlSafe(sql)))
                        .await?
                        .rows_affected(),
                )
            }

            async fn number(&mut self, sql: String) -> i64 {
                sqlx::query_scalar(AssertSqlSafe(sql))
                    .fetch_one(self)
                    .await
                    .unwrap()
            }

            async fn text(&mut self, sql: String) -> String {
                sqlx::query_scalar(AssertSqlSafe(sql))
                    .fetch_one(self)
                    .await
                    .unwrap()
            }
        }
    };
}

#[cfg(feature = "postgres")]
session!(sqlx::PgConnection);
#[cfg(feature = "mysql")]
session!(sqlx::MySqlConnection);
#[cfg(feature = "sqlite")]
session!(sqlx::SqliteConnection);

impl TestEnv {
    #[cfg(feature = "postgres")]
    pub async fn postgres() -> Self {
        Self::new(
            Kind::Postgres,
            shared_postgres()
                .await
                .create_database(&name())
                .await
                .unwrap(),
            None,
        )
        .await
    }

    #[cfg(feature = "mysql")]
    pub async fn mariadb() -> Self {
        Self::new(
            Kind::MariaDb,
            shared_mariadb()
                .await
                .create_database(&name())
                .await
                .unwrap(),
            None,
        )
        .await
    }

    #[cfg(feature = "sqlite")]
    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/store.db?mode=rwc", folder.path().display());
        Self::new(Kind::Sqlite, url, Some(folder)).await
    }

    async fn new(kind: Kind, url: String, folder: Option<tempfile::TempDir>) -> Self {
        let items = FencedTable::builder("items").build().unwrap();
        let env = Self {
            kind,
            url,
            items,
            _folder: folder,
        };
        let mut session = env.session().await;
        session.run("CREATE TABLE items (id BIGINT PRIMARY KEY, value VARCHAR(2000) NOT NULL, other BIGINT)").await;
        for statement in env.schema(&env.items) {
            session.run(statement).await;
        }
        session
            .run(format!(
                "INSERT INTO items (id, value) VALUES ({KEY}, ''), (2, 'another')"
            ))
            .await;
        env
    }

    pub fn schema(&self, table: &FencedTable) -> [String; 2] {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => table.schema::<sqlx::Postgres>(),
            #[cfg(feature = "mysql")]
            Kind::MariaDb => table.schema::<sqlx::MySql>(),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => table.schema::<sqlx::Sqlite>(),
        }
    }

    pub async fn session(&self) -> Box<dyn Session> {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => Box::new(sqlx::PgConnection::connect(&self.url).await.unwrap()),
            #[cfg(feature = "mysql")]
            Kind::MariaDb => Box::new(sqlx::MySqlConnection::connect(&self.url).await.unwrap()),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
                // The file need not survive a power failure.
                let settings = format!(
                    "PRAGMA busy_timeout = {}; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF",
                    testbed::timeout().as_millis()
                );
                connection.try_run(settings).await.unwrap();
                Box::new(connection)
            }
        }
    }

    pub async fn row(&self) -> Row {
        self.session().await.row().await
    }

    /// Begins a transaction that will write. On SQLite it takes the write lock immediately.
    pub fn begin(&self) -> &'static str {
        match self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => "BEGIN IMMEDIATE",
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            _ => "BEGIN",
        }
    }

    /// Waits until a statement in this database waits for a lock. SQLite does not report that;
    /// there the second statement waits in any case.
    pub async fn is_blocked(&self) {
        let waiting: Option<&str> = match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => Some(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                 AND wait_event IN ('transactionid', 'tuple')",
            ),
            #[cfg(feature = "mysql")]
            Kind::MariaDb => Some(
                "SELECT count(*) FROM information_schema.INNODB_TRX JOIN information_schema.PROCESSLIST ON ID = trx_mysql_thread_id \
                 WHERE DB = DATABASE() AND trx_state = 'LOCK WAIT'",
            ),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => None,
        };
        let Some(waiting) = waiting else { return };
        let mut session = self.session().await;
        testbed::eventually("a statement that waits for a lock", async || {
            if session.number(waiting.into()).await > 0 {
                return true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            false
        })
        .await;
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn name() -> String {
    format!("store_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
