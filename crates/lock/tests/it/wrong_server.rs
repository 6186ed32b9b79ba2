//! The address of a lock's database names a server that takes no writes, and later the right one
//! again. No test cuts a connection at the end.

use testbed::timeout;

use crate::support::{HOUR, name, refused};

#[cfg(feature = "postgres")]
mod on_postgres {
    use lock::{LockError, SqlLockBuilder};
    use sqlx::{Connection, Executor, PgConnection};
    use testbed::{Postgres, Proxy, eventually_some};

    use super::*;
    use crate::contract::postgres::{ADVISORY, FOR_UPDATE, ROW, lock};

    /// A server, its standby, and an address that names one of them.
    struct Moving {
        primary: Postgres,
        standby: Postgres,
        address: Proxy,
    }

    impl Moving {
        async fn start() -> Self {
            let primary = Postgres::start().await.unwrap();
            let tables = SqlLockBuilder::<sqlx::Postgres>::connect(primary.url("postgres"));
            tables
                .build_for_update()
                .unwrap()
                .create_table()
                .await
                .unwrap();
            let standby = primary.standby().await.unwrap();
            let address = Proxy::start(primary.port()).await.unwrap();
            Self {
                primary,
                standby,
                address,
            }
        }

        fn builder(&self) -> SqlLockBuilder<sqlx::Postgres> {
            let port = self.address.port();
            let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
            SqlLockBuilder::connect(url).lease(HOUR).timeout(timeout())
        }
    }

    async fn execute(server: &Postgres, sql: &'static str) {
        let mut session = PgConnection::connect(&server.url("postgres"))
            .await
            .unwrap();
        session.execute(sqlx::raw_sql(sql)).await.unwrap();
        session.close().await.unwrap();
    }

    /// Of the sessions that the lock opened at the standby, none may be used when the address is
    /// right. A standby grants advisory locks, and the session of the attempt before may still be closing
    /// there.
    #[tokio::test(flavor = "multi_thread")]
    async fn locks_are_given_again_when_the_address_is_right() {
        let env = Moving::start().await;
        for kind in [ROW, ADVISORY, FOR_UPDATE] {
            let (lock, name) = (lock(kind, env.builder()), name("moved"));
            env.address.set_target(env.standby.port());
            for attempt in 0..3 {
                let error = refused(lock.try_acquire(&name).await);
                let may_be_closing = kind == ADVISORY && attempt > 0;
                let is_closing = may_be_closing && matches!(error, LockError::Held { .. });
                let is_refused = matches!(error, LockError::NoQuorum { .. });
                assert!(
                    (is_refused || is_closing) && error.is_retryable(),
                    "kind {kind}: {error:?}"
                );
            }
            env.address.set_target(env.primary.port());
            let guard = lock.try_acquire(&name).await.unwrap();
            guard.release().await.unwrap();
        }
    }

    /// The holder's server becomes read only and stays up. A row is extended at the new server; a
    /// session cannot move, and must not believe that it still holds its lock.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_holder_is_not_stuck_at_a_server_that_became_read_only() {
        let env = Moving::start().await;
        let mut guards = Vec::new();
        for kind in [ROW, ADVISORY, FOR_UPDATE] {
            let lock = lock(kind, env.builder());
            guards.push((kind, lock.try_acquire(&name("kept")).await.unwrap()));
        }
        // The standby must have the row before it becomes the primary.
        let primary = env.primary.url("postgres");
        let mut session = PgConnection::connect(&primary).await.unwrap();
        let written: String = sqlx::query_scalar("SELECT pg_current_wal_lsn()::text")
            .fetch_one(&mut session)
            .await
            .unwrap();
        let standby = env.standby.url("postgres");
        eventually_some("the replay of the row", async || {
            let mut session = PgConnection::connect(&standby).await.unwrap();
            let replayed = sqlx::query_scalar("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn");
            let replayed = replayed.bind(&written).fetch_one(&mut session).await;
            replayed.unwrap_or(false).then_some(())
        })
        .await;
        env.standby.promote().await.unwrap();
        env.address.set_target(env.standby.port());
        execute(
            &env.primary,
            "ALTER SYSTEM SET default_transaction_read_only = on",
        )
        .await;
        execute(&env.primary, "SELECT pg_reload_conf()").await;
        eventually_some("the new setting", async || {
            let setting = "SELECT current_setting('default_transaction_read_only')";
            let mut session = PgConnection::connect(&primary).await.unwrap();
            let setting = sqlx::query_scalar::<_, String>(setting);
            (setting.fetch_one(&mut session).await.unwrap() == "on").then_some(())
        })
        .await;
        for (kind, mut guard) in guards {
            if kind == ROW {
                eventually_some("an extension", async || guard.extend().await.ok()).await;
                guard.release().await.unwrap();
            } else {
                let error = guard.extend().await.unwrap_err();
                assert!(
                    matches!(error, LockError::Lost { .. }),
                    "kind {kind}: {error:?}"
                );
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_pooler_in_transaction_mode_gives_no_lock() {
        use testbed::{LocalError, PgBouncer, TestbedError, skipped};

        let server = Postgres::start().await.unwrap();
        let pooler = match PgBouncer::before(&server, "transaction").start().await {
            Err(TestbedError::Local(LocalError::NotInstalled { .. })) => {
                return skipped("pgbouncer is not installed");
            }
            pooler => pooler.unwrap(),
        };
        let tables = SqlLockBuilder::<sqlx::Postgres>::connect(server.url("postgres"));
        let tables = tables.build_for_update().unwrap();
        tables.create_table().await.unwrap();
        for kind in [ADVISORY, FOR_UPDATE] {
            let url = pooler.url("postgres");
            let builder = SqlLockBuilder::connect(url).lease(HOUR).timeout(timeout());
            let error = refused(lock(kind, builder).try_acquire(&name("pooled")).await);
            assert!(error.to_string().contains("pool_mode = session"), "{error}");
        }
    }
}

#[cfg(feature = "mysql")]
mod on_mariadb {
    use lock::{LockError, SqlLockBuilder};
    use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
    use testbed::MariaDb;

    use super::*;
    use crate::contract::mysql::{ADVISORY, FOR_UPDATE, ROW, lock};

    async fn execute(url: &str, sql: &str) {
        let mut session = MySqlConnection::connect(url).await.unwrap();
        session
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await
            .unwrap();
        session.close().await.unwrap();
    }

    /// The user of the locks must not be an administrator, who may write in any mode.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_became_read_only_keeps_no_holder_and_gives_no_lock() {
        let server = MariaDb::start().await.unwrap();
        let admin = server.create_database("locks").await.unwrap();
        let tables = SqlLockBuilder::<sqlx::MySql>::connect(&admin);
        let tables = tables.build_for_update().unwrap();
        tables.create_table().await.unwrap();
        execute(
            &admin,
            "CREATE USER app@localhost IDENTIFIED BY 'app', app@'127.0.0.1' IDENTIFIED BY 'app'; \
             GRANT ALL ON locks.* TO app@localhost, app@'127.0.0.1'",
        )
        .await;
        let url = format!("mysql://app:app@127.0.0.1:{}/locks", server.port());
        let builder = || SqlLockBuilder::connect(&url).lease(HOUR).timeout(timeout());
        for kind in [ROW, ADVISORY, FOR_UPDATE] {
            let lock = lock(kind, builder());
            let mut guard = lock.try_acquire(&name("mode")).await.unwrap();
            execute(&admin, "SET GLOBAL read_only = 1").await;
            let error = guard.extend().await.unwrap_err();
            let is_kept = matches!(error, LockError::NoQuorum { .. });
            let is_lost = matches!(error, LockError::Lost { .. });
            assert!(
                if kind == ROW { is_kept } else { is_lost },
                "kind {kind}: {error:?}"
            );
            drop(guard);
            let error = refused(lock.try_acquire(&name("other")).await);
            assert!(error.is_retryable(), "kind {kind}: {error:?}");
            execute(&admin, "SET GLOBAL read_only = 0").await;
            let guard = lock.try_acquire(&name("later")).await.unwrap();
            guard.release().await.unwrap();
        }
    }
}
