//! One MariaDB server: a row with an expiry, an advisory lock, and a row under `FOR UPDATE`.

use std::{sync::Arc, time::Duration};

use lock::{Lock, SqlLockBuilder};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use tokio::{sync::OnceCell, time::sleep};

pub use super::sql::{ADVISORY, FOR_UPDATE, ROW};
use super::{
    TestEnv, answer_timeout,
    sql::{sql_env, sql_locks},
};
use crate::{
    store::env::shared_mariadb,
    support::{HOUR, ms},
};

/// The key of an advisory lock at the server.
const KEY: &str = "CONCAT('lock:', SHA2(CONCAT(DATABASE(), '.locks:', ?), 224))";
/// InnoDB caches the tables of its transactions for 100 ms, for all sessions.
const POLL_INTERVAL: Duration = ms(120);

sql_locks!(MariaDb, testbed::MariaDb, shared_mariadb, sqlx::MySql);

pub async fn session(url: &str) -> MySqlConnection {
    MySqlConnection::connect(url).await.unwrap()
}

/// The session may have ended by itself.
async fn kill(session: &mut MySqlConnection, id: u64) {
    let _ = session
        .execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))))
        .await;
}

/// Kills the sessions that hold the row or wait for it ahead of us.
async fn kill_the_holder_of_the_row(url: &str, name: &str) {
    let (mut ours, mut other) = (session(url).await, session(url).await);
    let id: u64 = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS UNSIGNED)")
        .fetch_one(&mut ours)
        .await
        .unwrap();
    let name = name.as_bytes().to_vec();
    let waits = tokio::spawn(async move {
        sqlx::query("SELECT 1 FROM locks_rows WHERE name = ? FOR UPDATE")
            .bind(name)
            .execute(&mut ours)
            .await
            .unwrap();
    });
    while !waits.is_finished() {
        let blockers = "SELECT CAST(blocking.trx_mysql_thread_id AS UNSIGNED) FROM information_schema.INNODB_LOCK_WAITS AS wait \
                        JOIN information_schema.INNODB_TRX AS blocking ON blocking.trx_id = wait.blocking_trx_id \
                        JOIN information_schema.INNODB_TRX AS waiting ON waiting.trx_id = wait.requesting_trx_id \
                        WHERE waiting.trx_mysql_thread_id = ?";
        let blockers: Vec<u64> = sqlx::query_scalar(blockers)
            .bind(id)
            .fetch_all(&mut other)
            .await
            .unwrap();
        for blocker in blockers {
            kill(&mut other, blocker).await;
        }
        sleep(POLL_INTERVAL).await;
    }
    waits.await.unwrap();
}

impl<const KIND: u8> TestEnv for MariaDb<KIND> {
    /// The server counts the silence of a session in whole seconds.
    const LEASE: Duration = ms(if KIND == ROW { 1500 } else { 2000 });

    sql_env!(testbed::MariaDb);

    /// The server does not tell which lock a session waits for, so these waiters have a database of
    /// their own.
    async fn for_queues() -> &'static Self {
        let server = shared_mariadb().await;
        Box::leak(Box::new(Self {
            url: with_tables(server, "locks_queue").await,
            server: None,
        }))
    }

    async fn queued(&self, _name: &str) -> usize {
        let waiting = "SELECT count(*) FROM information_schema.PROCESSLIST \
                       WHERE DB = DATABASE() AND STATE = 'User lock'";
        // As for InnoDB, a look that follows another closely may be from a cache.
        sleep(POLL_INTERVAL).await;
        let queued: i64 = sqlx::query_scalar(waiting)
            .fetch_one(&mut session(&self.url).await)
            .await
            .unwrap();
        queued.try_into().unwrap()
    }

    async fn revoke(&self, name: &str) {
        let mut session = session(&self.url).await;
        match KIND {
            ROW => {
                let revoke = sqlx::query("UPDATE locks SET expires_at_us = 0 WHERE name = ?")
                    .bind(name.as_bytes());
                revoke.execute(&mut session).await.unwrap();
            }
            ADVISORY => {
                let holder = format!("SELECT CAST(IS_USED_LOCK({KEY}) AS UNSIGNED)");
                let holder = sqlx::query_scalar(AssertSqlSafe(holder)).bind(name.as_bytes());
                let holder: Option<u64> = holder.fetch_one(&mut session).await.unwrap();
                if let Some(holder) = holder {
                    kill(&mut session, holder).await;
                }
            }
            _ => kill_the_holder_of_the_row(&self.url, name).await,
        }
    }
}
