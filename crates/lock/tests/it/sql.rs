//! Guarantees of locks in databases beyond the contract.

use std::{sync::Arc, time::Duration};

use lock::{Answer, InvalidArgument, Lock, LockError, SqlLockBuilder};
use sqlx::AssertSqlSafe;

use testbed::{eventually_some, timeout};
use testkit_macros::tested;

use crate::support::{HOUR, becomes, kept_out, ms, name, refused, token};

/// Above it, a 64-bit float cannot represent odd numbers.
const FLOAT_PRECISION_END: i64 = 1 << 53;

/// Makes a test of a function for each database, with its kinds of locks on the same tables and a
/// function that sets a column.
macro_rules! on_every_database {
    ($test:ident) => {
        mod $test {
            #[cfg(feature = "postgres")]
            on_every_database!(@ $test, postgres, sqlx::Postgres, {
                crate::contract::postgres::shared_url().await.to_owned()
            }, crate::contract::postgres::lock, 3, "$");
            #[cfg(feature = "mysql")]
            on_every_database!(@ $test, mariadb, sqlx::MySql, {
                crate::contract::mysql::shared_url().await.to_owned()
            }, crate::contract::mysql::lock, 3, "?");
            #[cfg(feature = "sqlite")]
            on_every_database!(@ $test, sqlite, sqlx::Sqlite, {
                let file = Box::leak(Box::new(crate::contract::sqlite::File::new().await));
                file.url.clone()
            }, |_, builder: lock::SqlLockBuilder<sqlx::Sqlite>| std::sync::Arc::new(builder.build().unwrap()), 1, "$");
        }
    };
    (@ $test:ident, $database:ident, $db:ty, $url:expr, $lock:expr, $kinds:literal, $mark:literal) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $database() {
            let url: String = $url;
            let lock = |kind: u8| -> std::sync::Arc<dyn lock::Lock> {
                $lock(kind, lock::SqlLockBuilder::<$db>::connect(&url).lease(super::HOUR).timeout(testbed::timeout()))
            };
            let pool = sqlx::Pool::<$db>::connect(&url).await.unwrap();
            let set = async |name: &str, column: &str, value: i64| {
                let [first, second] = if $mark == "$" { ["$1", "$2"] } else { ["?", "?"] };
                let sql = format!("UPDATE locks SET {column} = {first} WHERE name = {second}");
                let set = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(value).bind(name.as_bytes()).execute(&pool).await.unwrap();
                assert_eq!(set.rows_affected(), 1);
            };
            super::$test((0..$kinds).map(lock).collect(), set).await;
        }
    };
}

async fn acquire_and_release(lock: &Arc<dyn Lock>, name: &str) -> Result<i64, LockError> {
    let guard = lock.try_acquire(name).await?;
    let token = guard.token().get();
    guard.release().await.unwrap();
    Ok(token)
}

#[tested(on_every_database)]
async fn all_kinds_draw_from_the_same_tokens(
    locks: Vec<Arc<dyn Lock>>,
    _: impl AsyncFn(&str, &str, i64),
) {
    let name = name("kinds");
    for expected in 1..=2 * locks.len() {
        let lock = &locks[expected % locks.len()];
        assert_eq!(
            acquire_and_release(lock, &name).await.unwrap(),
            i64::try_from(expected).unwrap(),
            "tokens have no gaps without failures"
        );
    }
}

/// Repeats the attempt while a session that was refused a token is still closing: it has the lock
/// until the server has seen its end.
async fn unless_held<T, F: Future<Output = Result<T, LockError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, LockError> {
    eventually_some("the end of the session", async || match attempt().await {
        Err(LockError::Held { .. }) => None,
        result => Some(result),
    })
    .await
}

#[tested(on_every_database)]
async fn no_token_follows_the_last_one(
    locks: Vec<Arc<dyn Lock>>,
    set: impl AsyncFn(&str, &str, i64),
) {
    for lock in &locks {
        let name = name("last");
        acquire_and_release(lock, &name).await.unwrap();
        set(&name, "token", i64::MAX - 1).await;
        assert_eq!(acquire_and_release(lock, &name).await.unwrap(), i64::MAX);
        for _ in 0..2 {
            let error = refused(unless_held(|| lock.try_acquire(&name)).await);
            assert!(
                matches!(error, LockError::NoTokenLeft { .. }) && !error.is_retryable(),
                "{error}"
            );
        }
        set(&name, "token", 7).await;
        assert_eq!(
            unless_held(|| acquire_and_release(lock, &name))
                .await
                .unwrap(),
            8,
            "the earlier refusal changed nothing"
        );
    }
}

#[tested(on_every_database)]
async fn tokens_are_exact_above_the_precision_of_floats(
    locks: Vec<Arc<dyn Lock>>,
    set: impl AsyncFn(&str, &str, i64),
) {
    for lock in &locks {
        let name = name("floats");
        acquire_and_release(lock, &name).await.unwrap();
        set(&name, "token", FLOAT_PRECISION_END).await;
        for above in 1..=3 {
            assert_eq!(
                acquire_and_release(lock, &name).await.unwrap(),
                FLOAT_PRECISION_END + above
            );
        }
    }
}

fn remaining(error: &LockError) -> Duration {
    match error.votes()[0].answer {
        Answer::Held {
            remaining: Some(remaining),
            ..
        } => remaining,
        _ => panic!("{error}"),
    }
}

#[test]
fn invalid_settings_are_refused_by_name() {
    #[cfg(feature = "postgres")]
    {
        let nowhere =
            || SqlLockBuilder::<sqlx::Postgres>::connect("postgres://user:secret@127.0.0.1:1/db");
        for table in ["", "a b", "a;b", "a.b.c", "\"a\"", &"x".repeat(59)] {
            let error = nowhere().table(table).build().map(drop).unwrap_err();
            assert!(
                matches!(error, InvalidArgument::Table { .. }),
                "{table:?}: {error}"
            );
        }
        let error = SqlLockBuilder::<sqlx::Postgres>::connect("nonsense://user:secret@host:x")
            .build()
            .map(drop)
            .unwrap_err();
        assert!(
            matches!(error, InvalidArgument::Url { .. }) && !error.to_string().contains("secret"),
            "{error}"
        );
        let error = nowhere()
            .lock_delay(ms(1))
            .build_advisory()
            .map(drop)
            .unwrap_err();
        assert!(
            matches!(error, InvalidArgument::Unsupported { .. }),
            "{error}"
        );
        for (builder, expected) in [
            (nowhere().lease(ms(1)), "lease"),
            (nowhere().retry(ms(0)), "retry"),
            (nowhere().timeout(ms(0)), "timeout"),
        ] {
            let error = builder.build().map(drop).unwrap_err();
            assert!(
                matches!(error, InvalidArgument::Duration { setting, .. } if setting == expected),
                "{error}"
            );
        }
    }
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use sqlx::{Connection, Executor, postgres::PgPoolOptions};

    use super::*;
    use crate::contract::postgres::{ADVISORY, FOR_UPDATE, ROW, key, lock, session, shared_url};

    fn builder(url: &str) -> SqlLockBuilder<sqlx::Postgres> {
        SqlLockBuilder::connect(url).lease(HOUR).timeout(timeout())
    }

    /// A clock that is an hour ahead for sessions with this schema first in their search path.
    const AHEAD: &str = "CREATE SCHEMA IF NOT EXISTS ahead; \
         CREATE OR REPLACE FUNCTION ahead.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS \
         'SELECT pg_catalog.statement_timestamp() + interval ''1 hour''';";

    #[tokio::test(flavor = "multi_thread")]
    async fn leases_are_counted_by_the_clock_of_the_database() {
        let (url, name) = (shared_url().await, name("time"));
        session(url).await.execute(AHEAD).await.unwrap();
        let ahead = PgPoolOptions::new().after_connect(|connection, _| {
            Box::pin(async move {
                connection
                    .execute("SET search_path = ahead, pg_catalog, public")
                    .await
                    .map(drop)
            })
        });
        let ahead = lock(
            ROW,
            SqlLockBuilder::new(ahead.connect(url).await.unwrap())
                .lease(HOUR)
                .timeout(timeout()),
        );
        let plain = lock(ROW, builder(url));
        let guard = ahead.try_acquire(&name).await.unwrap();
        let left = remaining(&refused(plain.try_acquire(&name).await));
        assert!(left > HOUR && left <= 2 * HOUR, "{left:?}");
        let left = remaining(&refused(ahead.try_acquire(&name).await));
        assert!(left <= HOUR, "{left:?}");
        std::mem::forget(guard);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn names_with_the_same_hash_exclude_each_other_and_keep_their_tokens() {
        let (url, name) = (shared_url().await, name("hash"));
        let lock = lock(ADVISORY, builder(url));
        let first = super::acquire_and_release(&lock, &name).await.unwrap();
        // A lock with another name and the same hash.
        let mut other = session(url).await;
        let take = format!("SELECT pg_advisory_lock({})", key(&name));
        other.execute(AssertSqlSafe(take)).await.unwrap();
        kept_out(lock.try_acquire(&name)).await;
        other.close().await.unwrap();
        let guard = lock.acquire_within(&name, timeout()).await.unwrap();
        assert_eq!(guard.token(), token(first + 1), "the tokens are unaffected");
        guard.release().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn waiters_that_give_up_leave_no_session_behind() {
        let url = shared_url().await;
        for kind in [ADVISORY, FOR_UPDATE] {
            let (lock, name) = (lock(kind, builder(url)), name("sessions"));
            let guard = lock.acquire(&name).await.unwrap();
            for _ in 0..5 {
                kept_out(lock.acquire_within(&name, ms(300))).await;
            }
            // Waiters of other tests on the shared server wait only briefly.
            becomes("the queue is empty", async || {
                let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() \
                               AND state_change < now() - interval '1 second'";
                sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut session(url).await).await.unwrap() == 0
            })
            .await;
            guard.release().await.unwrap();
        }
    }
}

#[cfg(feature = "mysql")]
mod on_mariadb {
    use sqlx::{Executor, mysql::MySqlPoolOptions};

    use super::*;
    use crate::contract::mysql::{ROW, lock, shared_url};

    /// A MySQL session can have its own clock.
    #[tokio::test(flavor = "multi_thread")]
    async fn leases_are_counted_by_the_clock_of_the_database() {
        let (url, name) = (shared_url().await, name("time"));
        let ahead = MySqlPoolOptions::new().after_connect(|connection, _| {
            let ahead = "SET SESSION time_zone = '+05:30', timestamp = UNIX_TIMESTAMP() + 3600";
            Box::pin(async move { connection.execute(ahead).await.map(drop) })
        });
        let ahead = lock(
            ROW,
            SqlLockBuilder::new(ahead.connect(url).await.unwrap())
                .lease(HOUR)
                .timeout(timeout()),
        );
        let plain = SqlLockBuilder::connect(url).lease(HOUR);
        let plain = lock(ROW, plain.timeout(timeout()));
        let guard = ahead.try_acquire(&name).await.unwrap();
        let left = remaining(&refused(plain.try_acquire(&name).await));
        assert!(left > HOUR && left <= 2 * HOUR, "{left:?}");
        std::mem::forget(guard);
    }
}
