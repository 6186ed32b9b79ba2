//! Locks in an existing database: PostgreSQL, MySQL or MariaDB, SQLite.
//!
//! | file | content |
//! |---|---|
//! | `builder` | every setting and its validation |
//! | `dialect` | the differences of the databases |
//! | `pooler` | recognising a connection pooler in transaction mode |
//! | `database` | a pool, its name in errors, and the time limit of an answer |
//! | `table` | the tables and every statement on them |
//! | `row_lock` | the lock that is a row with an expiry, as in ShedLock |
//! | `rows` | its statements, each on a pooled connection |
//! | `acquisition` | an acquisition in the table, and its release |
//! | `session_lock` | the lock that lives as long as its session |
//! | `session` | a connection that holds such a lock or waits for it |
//! | `session_server` | the database of those sessions |
//! | `method` | the difference of an advisory lock and a row under `FOR UPDATE` |
//!
//! # Invariants and limits
//!
//! * **All time is the database's.** A client sends durations, never points in time. Its own
//!   deadline is monotonic and counted from before the request.
//! * **A row is never deleted**, because it holds the token. A release sets its expiry to now.
//! * **Locks of different kinds do not see each other** on the same table, but they draw their
//!   tokens from the same column.
//! * **A server that takes no writes gives no locks and keeps none.** A connection to one is closed
//!   after its first answer, and the next one resolves the address anew.
//! * **A pooler must be in session mode.** In transaction mode, two clients may share a session,
//!   and with it an advisory lock.
//! * **Tokens are as durable as a commit.** A database that loses commits
//!   (`synchronous_commit = off`, `innodb_flush_log_at_trx_commit = 0`, a replica that is promoted
//!   too early) may give a token twice.

mod acquisition;
mod builder;
mod database;
mod dialect;
#[cfg(feature = "_session_lock")]
mod method;
mod pooler;
mod row_lock;
mod rows;
#[cfg(feature = "_session_lock")]
mod session;
#[cfg(feature = "_session_lock")]
mod session_lock;
#[cfg(feature = "_session_lock")]
mod session_server;
mod table;

#[cfg(feature = "_session_lock")]
pub use self::session_lock::SessionLock;
pub use self::{builder::SqlLockBuilder, row_lock::SqlLock};

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
