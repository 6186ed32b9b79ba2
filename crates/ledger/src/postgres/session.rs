//! The settings of a session, and whether its server can write.
//!
//! Statements set them and not the first message of the connection: a pooler in session mode
//! refuses a first message that has `options`. Both questions are sent as simple queries. Behind a
//! pooler in transaction mode, a prepared one would meet a statement of another client before the
//! pooler is recognised.

use std::time::Duration;

use sqlx::{PgConnection, Row};

use crate::error::ReadOnly;

/// Upper bound for a recorder that hangs inside a claim (a stopped process, a lost network), so
/// that it does not block its rows from all others.
const IDLE_IN_TRANSACTION: (&str, &str) = ("idle_in_transaction_session_timeout", "10000");

/// After waiting for a lock, a transaction must see what the previous holder has written.
const ISOLATION: (&str, &str) = ("default_transaction_isolation", "read committed");

/// Every statement that reads a growing table has an index. A sale fills and empties tables
/// quickly, and stale statistics would lead to full scans for each batch until the next ANALYZE,
/// and to plans that no test has covered.
///
/// With sequential scans disabled, a statement on a table without a fitting index gets an extreme
/// cost estimate. PostgreSQL would therefore compile it each time. That took half of the ledger's
/// processor time, for statements of a millisecond.
///
/// A walk over all orders of an item would get several processes, each on a processor that orders
/// need. It has time.
const INDEX_PLANS: [(&str, &str); 4] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
    ("max_parallel_workers_per_gather", "0"),
];

/// A page of a list begins at its key and ends after its rows. Statistics of a growing table, or of
/// none, suggest to sort the rest of the list for each page instead.
const PAGE_PLANS: [(&str, &str); 2] = [("enable_bitmapscan", "off"), ("enable_sort", "off")];

/// An acknowledged order must survive a crash of the server, so a commit waits for the disk. A role
/// or database may have a weaker setting. A stronger one (`remote_apply`) stays.
const WAIT_FOR_DISK: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// In recovery, transactions are read only as well. The first column tells why.
const READ_ONLY: &str =
    "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";

/// How the server plans the statements of a session.
#[derive(Clone, Copy)]
pub(super) enum Plans {
    ByIndex,
    /// For lists.
    ForPages,
}

/// How long the statements of a session may take, and wait for a lock. `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub statement: Option<Duration>,
    pub lock: Option<Duration>,
}

impl Limits {
    /// PostgreSQL takes zero for no limit.
    fn as_settings(self) -> [(&'static str, String); 2] {
        let ms = |limit: Option<Duration>| {
            let ms = limit.map_or(0, |limit| limit.as_millis().clamp(1, MS_MAX));
            ms.to_string()
        };
        [
            ("statement_timeout", ms(self.statement)),
            ("lock_timeout", ms(self.lock)),
        ]
    }
}

/// The most that PostgreSQL takes.
const MS_MAX: u128 = 2_147_483_647;

/// Gives a session new limits.
pub(super) async fn limit(
    connection: &mut PgConnection,
    limits: Limits,
) -> Result<(), sqlx::Error> {
    let settings = limits.as_settings();
    let settings = settings.map(|(name, value)| format!("SET {name} = {value}"));
    let sql = sqlx::AssertSqlSafe(settings.join("; "));
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// Gives a new session our settings.
pub(super) async fn set_up(
    connection: &mut PgConnection,
    plans: Plans,
    limits: Limits,
) -> Result<(), sqlx::Error> {
    let pages: &[_] = match plans {
        Plans::ByIndex => &[],
        Plans::ForPages => &PAGE_PLANS,
    };
    let mut sql = String::from(WAIT_FOR_DISK);
    for (name, value) in limits.as_settings() {
        sql.push_str(&format!("; SET {name} = {value}"));
    }
    for (name, value) in [IDLE_IN_TRANSACTION, ISOLATION]
        .iter()
        .chain(&INDEX_PLANS)
        .chain(pages)
    {
        sql.push_str(&format!("; SET {name} = '{value}'"));
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(connection)
        .await?;
    Ok(())
}

/// Why the server cannot write. `None`: it can.
pub(super) async fn read_only(
    connection: &mut PgConnection,
) -> Result<Option<ReadOnly>, sqlx::Error> {
    let row = sqlx::raw_sql(READ_ONLY).fetch_one(connection).await?;
    let (in_recovery, read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok(match (in_recovery, read_only) {
        (true, _) => Some(ReadOnly::Standby),
        (false, true) => Some(ReadOnly::Transactions),
        (false, false) => None,
    })
}
