//! In what an advisory lock and a row under `FOR UPDATE` differ, on each database.
//!
//! What a reader could get wrong: an advisory lock has a number or a short text for a name, so it is a hash of ours. Should two names ever
//! have the same (64 bits of SHA-256 on PostgreSQL, 224 on MySQL), they exclude each other needlessly, and that is all: their tokens stay apart.

use std::time::Duration;

use super::{
    dialect::{Dialect, with_placeholders},
    table::Table,
};

/// A database whose sessions can have locks.
pub trait Sessions: Dialect {
    /// Whether the server decides by a clock that nobody sets that a session has been silent for too long.
    const CLOCK_FREE: bool;
    /// The number one, as wide as all our numbers.
    const ONE: &'static str;

    /// What a new session is told: to end when it was not heard from for a lease, and not to end while it waits.
    fn settings(lease: Duration) -> String;

    /// What a new session is told that not every server knows.
    fn settings_if_known() -> Option<String>;

    /// Takes, waits, is ours, gives back: each a statement with the lock's key, a number that is one for yes.
    fn advisory() -> [String; 4];
}

/// How a session locks. Every statement takes one argument, and answers with a number: one is yes.
pub(crate) struct Means {
    /// Takes the lock if it is free.
    pub take: String,
    /// Takes it when it is free.
    pub wait: String,
    /// Whether the session has it.
    pub check: String,
    /// Gives it back, and says whether the session had it.
    pub free: String,
    /// Makes the row that is locked, and finds it.
    pub row: Option<Row>,
    /// Before the name, in the argument: advisory locks know no tables.
    pub prefix: String,
    /// Whether the server serves waiters in the order in which they came.
    pub fair: bool,
}

/// A row that is locked must be there.
pub(crate) struct Row {
    pub find: String,
    pub add: String,
}

impl Means {
    /// Both servers hand a lock over to whoever has waited longest.
    pub(crate) fn advisory<DB: Sessions>(table: &Table<DB>) -> Self {
        let [take, wait, check, free] = DB::advisory().map(|sql| with_placeholders::<DB>(&sql));
        Self {
            take,
            wait,
            check,
            free,
            row: None,
            prefix: format!("{}:", table.plain),
            fair: true,
        }
    }

    pub(crate) fn for_update<DB: Sessions>(table: &Table<DB>) -> Self {
        let (rows, one) = (&table.rows, DB::ONE);
        let sql = |sql: String| with_placeholders::<DB>(&sql);
        let find = sql(format!("SELECT count(*) FROM {rows} WHERE name = ?"));
        Self {
            take: sql(format!(
                "SELECT {one} FROM {rows} WHERE name = ? FOR UPDATE SKIP LOCKED"
            )),
            wait: sql(format!(
                "SELECT {one} FROM {rows} WHERE name = ? FOR UPDATE"
            )),
            check: find.clone(),
            free: find.clone(),
            row: Some(Row {
                find,
                add: sql(format!(
                    "INSERT INTO {rows} (name) VALUES (?){}",
                    DB::UNLESS_THERE
                )),
            }),
            prefix: String::new(),
            fair: false,
        }
    }
}

/// It compares the wall clock with the time that is up when its timer fires: a clock that was set back makes a silent session last longer.
#[cfg(feature = "postgres")]
impl Sessions for sqlx::Postgres {
    const CLOCK_FREE: bool = false;
    const ONE: &'static str = "CAST(1 AS BIGINT)";

    fn settings(lease: Duration) -> String {
        let ms = lease.as_millis();
        format!(
            "SET idle_session_timeout = {ms}; SET idle_in_transaction_session_timeout = {ms}; SET lock_timeout = 0; SET statement_timeout = 0"
        )
    }

    /// A waiter that has gone shall not stay until it is its turn.
    fn settings_if_known() -> Option<String> {
        Some("SET client_connection_check_interval = 250".into())
    }

    fn advisory() -> [String; 4] {
        let key = "('x' || left(encode(sha256(?), 'hex'), 16))::bit(64)::bigint";
        [
            format!("SELECT pg_try_advisory_lock({key})::int::bigint"),
            format!("SELECT CAST(1 AS BIGINT) FROM pg_advisory_lock({key})"),
            format!(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1 \
                 AND ((classid::bigint << 32) | objid::bigint) = {key}"
            ),
            format!("SELECT pg_advisory_unlock({key})::int::bigint"),
        ]
    }
}

/// Advisory locks are the whole server's, so the database is part of their names. A year is as long as MariaDB waits.
#[cfg(feature = "mysql")]
impl Sessions for sqlx::MySql {
    const CLOCK_FREE: bool = true;
    const ONE: &'static str = "1";

    /// InnoDB does not notice that a waiter has gone; so nobody waits for longer than a second at a time.
    fn settings(lease: Duration) -> String {
        let s = lease.as_millis().div_ceil(1000);
        format!("SET SESSION autocommit = 1, wait_timeout = {s}, innodb_lock_wait_timeout = 1")
    }

    fn settings_if_known() -> Option<String> {
        None
    }

    fn advisory() -> [String; 4] {
        let key = "CONCAT('lock:', SHA2(CONCAT(COALESCE(DATABASE(), ''), '.', ?), 224))";
        [
            format!("SELECT GET_LOCK({key}, 0)"),
            format!("SELECT GET_LOCK({key}, 31536000)"),
            format!("SELECT COALESCE(IS_USED_LOCK({key}) = CONNECTION_ID(), 0)"),
            format!("SELECT COALESCE(RELEASE_LOCK({key}), 0)"),
        ]
    }
}
