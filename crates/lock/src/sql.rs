//! Locks in a database that is there anyway: PostgreSQL, MySQL or MariaDB, SQLite.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `dialect` | in what the databases differ |
//! | `database` | a pool, its name in errors, and how long an answer is waited for |
//! | `table` | the table, and every statement on it |
//! | `row` | the lock that is a row with an expiry, as in ShedLock |
//! | `claim` | what an owner may have in the table, and the certainty that it goes away again |
//! | `means` | in what an advisory lock and a row under `FOR UPDATE` differ |
//! | `session` | a connection that has such a lock, or waits for it |
//! | `waiter` | the lock that lives as long as its session |
//!
//! # What a reader could get wrong
//!
//! * **All time is the database's.** A client says how long, never until when. Its own deadline is monotonic, and counted from before it asked.
//! * **A row is never deleted**, because it holds the token. A release sets its expiry to now.
//! * **The locks of one kind do not see those of another** on the same table; but they draw their tokens from the same column.
//! * **Tokens are as durable as a commit.** A database that forgets what it has committed (`synchronous_commit = off`,
//!   `innodb_flush_log_at_trx_commit = 0`, a replica that is promoted too early) may give a token twice.

mod builder;
mod claim;
mod database;
mod dialect;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod means;
mod row;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod session;
mod table;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod waiter;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use self::waiter::SessionLock;
pub use self::{builder::SqlLockBuilder, row::SqlLock};

/// A row of a PostgreSQL table, with an expiry.
#[cfg(feature = "postgres")]
pub type PostgresLock = SqlLock<sqlx::Postgres>;
/// A row of a MySQL or MariaDB table, with an expiry.
#[cfg(feature = "mysql")]
pub type MySqlLock = SqlLock<sqlx::MySql>;
/// A row of a SQLite table, with an expiry.
#[cfg(feature = "sqlite")]
pub type SqliteLock = SqlLock<sqlx::Sqlite>;
/// A lock of a PostgreSQL session.
#[cfg(feature = "postgres")]
pub type PostgresSessionLock = SessionLock<sqlx::Postgres>;
/// A lock of a MySQL or MariaDB session.
#[cfg(feature = "mysql")]
pub type MySqlSessionLock = SessionLock<sqlx::MySql>;
