//! The two kinds of session locks: an advisory lock and a row under `FOR UPDATE`, on each database.
//!
//! The key of an advisory lock is a number or a short text, so it is a hash of the name. Two names
//! with the same hash (64 bits of SHA-256 on PostgreSQL, 224 on MySQL) exclude each other
//! needlessly, but their tokens stay apart.

use std::time::Duration;

use super::{
    dialect::{Dialect, with_placeholders},
    table::Table,
};

/// A database whose sessions can hold locks.
pub trait SessionDialect: Dialect {
    /// Whether the server times out silent sessions by a monotonic clock.
    const CLOCK_FREE: bool;
    /// The number one as a 64-bit integer.
    const ONE: &'static str;

    /// Whether the server takes writes. A server that takes none gives no tokens, and another one
    /// has its locks by now or soon.
    const WRITABLE: &'static str;
    /// The number of the session, where poolers may share sessions.
    const SESSION_ID: Option<&'static str>;

    /// Settings of a new session: the server ends it after a lease of silence, but not while it
    /// waits for a lock.
    fn settings(lease: Duration) -> String;

    /// Settings that not every version of the server supports.
    fn optional_settings() -> Option<String>;

    /// The statements of an advisory lock. Each takes the lock's key and returns 1 for success.
    fn advisory() -> AdvisoryStatements;
}

/// The statements of an advisory lock, with `?` as placeholders.
pub struct AdvisoryStatements {
    try_lock: String,
    lock: String,
    is_locked: String,
    unlock: String,
}

/// How a session locks. Every statement takes one argument and returns a number: 1 for success.
pub(crate) struct LockMethod {
    /// Acquires the lock if it is free.
    pub try_lock: String,
    /// Waits for the lock and acquires it.
    pub lock: String,
    /// Whether the session holds the lock.
    pub is_locked: String,
    /// Releases the lock and returns whether the session held it.
    pub unlock: String,
    /// For a row under `FOR UPDATE`: finds and inserts the row.
    pub row: Option<Row>,
    /// Prefix of the name in the argument, because advisory locks belong to no table.
    pub prefix: String,
    /// Whether the server serves waiters in the order in which they arrived.
    pub fair: bool,
}

/// `FOR UPDATE` locks only a row that exists.
pub(crate) struct Row {
    pub find: String,
    pub insert: String,
}

impl LockMethod {
    /// Both servers hand a lock over to the session that has waited longest.
    pub(crate) fn advisory<DB: SessionDialect>(table: &Table<DB>) -> Self {
        let statements = DB::advisory();
        let sql = |sql: String| with_placeholders::<DB>(&sql);
        Self {
            try_lock: sql(statements.try_lock),
            lock: sql(statements.lock),
            is_locked: sql(statements.is_locked),
            unlock: sql(statements.unlock),
            row: None,
            prefix: format!("{}:", table.plain),
            fair: true,
        }
    }

    pub(crate) fn for_update<DB: SessionDialect>(table: &Table<DB>) -> Self {
        let (rows, one) = (&table.rows, DB::ONE);
        let sql = |sql: String| with_placeholders::<DB>(&sql);
        let find = sql(format!("SELECT count(*) FROM {rows} WHERE name = ?"));
        Self {
            try_lock: sql(format!(
                "SELECT {one} FROM {rows} WHERE name = ? FOR UPDATE SKIP LOCKED"
            )),
            lock: sql(format!(
                "SELECT {one} FROM {rows} WHERE name = ? FOR UPDATE"
            )),
            is_locked: format!("{find} AND {}", DB::WRITABLE),
            unlock: find.clone(),
            row: Some(Row {
                find,
                insert: sql(format!(
                    "INSERT INTO {rows} (name) VALUES (?){}",
                    DB::ON_CONFLICT_IGNORE
                )),
            }),
            prefix: String::new(),
            fair: false,
        }
    }
}

/// When its timer fires, the server compares the wall clock with the end of the timeout. A clock
/// that was set back makes a silent session last longer.
#[cfg(feature = "postgres")]
impl SessionDialect for sqlx::Postgres {
    const CLOCK_FREE: bool = false;
    const ONE: &'static str = "CAST(1 AS BIGINT)";
    /// Not `transaction_read_only`: a lock's own transaction is older than a change of the setting.
    const WRITABLE: &'static str =
        "NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'";
    const SESSION_ID: Option<&'static str> = Some("SELECT pg_backend_pid()::bigint");

    /// No limit of a statement, also if the role or the database has one: the wait for a lock is
    /// the point of the statement, and the client bounds it.
    fn settings(lease: Duration) -> String {
        let ms = lease.as_millis();
        format!(
            "SET idle_session_timeout = {ms}; SET idle_in_transaction_session_timeout = {ms}; SET lock_timeout = 0; SET statement_timeout = 0"
        )
    }

    /// The server removes a waiter whose connection has closed, instead of keeping it until it gets
    /// the lock.
    fn optional_settings() -> Option<String> {
        Some("SET client_connection_check_interval = 250".into())
    }

    fn advisory() -> AdvisoryStatements {
        let key = "('x' || left(encode(sha256(?), 'hex'), 16))::bit(64)::bigint";
        AdvisoryStatements {
            try_lock: format!("SELECT pg_try_advisory_lock({key})::int::bigint"),
            lock: format!("SELECT CAST(1 AS BIGINT) FROM pg_advisory_lock({key})"),
            is_locked: format!(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1 \
                 AND ((classid::bigint << 32) | objid::bigint) = {key} AND {}",
                Self::WRITABLE
            ),
            unlock: format!("SELECT pg_advisory_unlock({key})::int::bigint"),
        }
    }
}

/// Advisory locks are global to the server, so the name of the database is part of their keys.
/// MariaDB waits for a year at most.
#[cfg(feature = "mysql")]
impl SessionDialect for sqlx::MySql {
    const CLOCK_FREE: bool = true;
    const ONE: &'static str = "1";
    /// A number, and a word in later releases.
    const WRITABLE: &'static str = "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')";
    const SESSION_ID: Option<&'static str> = None;

    /// InnoDB does not notice that a waiter has gone, so each wait is limited to a second.
    fn settings(lease: Duration) -> String {
        let s = lease.as_millis().div_ceil(1000);
        format!("SET SESSION autocommit = 1, wait_timeout = {s}, innodb_lock_wait_timeout = 1")
    }

    fn optional_settings() -> Option<String> {
        None
    }

    fn advisory() -> AdvisoryStatements {
        let key = "CONCAT('lock:', SHA2(CONCAT(COALESCE(DATABASE(), ''), '.', ?), 224))";
        AdvisoryStatements {
            try_lock: format!("SELECT GET_LOCK({key}, 0)"),
            lock: format!("SELECT GET_LOCK({key}, 31536000)"),
            is_locked: format!(
                "SELECT COALESCE(IS_USED_LOCK({key}) = CONNECTION_ID() AND {}, 0)",
                Self::WRITABLE
            ),
            unlock: format!("SELECT COALESCE(RELEASE_LOCK({key}), 0)"),
        }
    }
}
