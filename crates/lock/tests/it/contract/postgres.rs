//! One PostgreSQL server: a row with an expiry, an advisory lock, and a row under `FOR UPDATE`.

use std::{sync::Arc, time::Duration};

use lock::{Lock, SqlLockBuilder};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::{sync::OnceCell, time::sleep};

pub use super::sql::{ADVISORY, FOR_UPDATE, ROW};
use super::{
    TestEnv, answer_timeout,
    sql::{sql_env, sql_locks},
};
use crate::{
    store::env::shared_postgres,
    support::{HOUR, ms},
};

sql_locks!(Postgres, testbed::Postgres, shared_postgres, sqlx::Postgres);

pub async fn session(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// The key of an advisory lock at the server.
pub fn key(name: &str) -> String {
    let bytes: String = format!("locks:{name}")
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("('x' || left(encode(sha256('\\x{bytes}'), 'hex'), 16))::bit(64)::bigint")
}

/// Kills the sessions that hold the row or wait for it ahead of us.
async fn kill_the_holder_of_the_row(url: &str, name: &str) {
    let (mut ours, mut other) = (session(url).await, session(url).await);
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut ours)
        .await
        .unwrap();
    let name = name.as_bytes().to_vec();
    let waits = tokio::spawn(async move {
        sqlx::query("SELECT 1 FROM locks_rows WHERE name = $1 FOR UPDATE")
            .bind(name)
            .execute(&mut ours)
            .await
            .unwrap();
    });
    while !waits.is_finished() {
        let kill = "SELECT pg_terminate_backend(pid) FROM unnest(pg_blocking_pids($1)) AS pid";
        sqlx::query(kill)
            .bind(pid)
            .execute(&mut other)
            .await
            .unwrap();
        sleep(ms(10)).await;
    }
    waits.await.unwrap();
}

impl<const KIND: u8> TestEnv for Postgres<KIND> {
    sql_env!(testbed::Postgres);

    async fn queued(&self, name: &str) -> usize {
        let queued = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND ((classid::bigint << 32) | objid::bigint) = {}",
            key(name)
        );
        let queued: i64 = sqlx::query_scalar(AssertSqlSafe(queued))
            .fetch_one(&mut session(&self.url).await)
            .await
            .unwrap();
        queued.try_into().unwrap()
    }

    async fn revoke(&self, name: &str) {
        let revoke = match KIND {
            ROW => "UPDATE locks SET expires_at_us = 0 WHERE name = $1".to_owned(),
            ADVISORY => format!(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND $1 = $1 \
                 AND ((classid::bigint << 32) | objid::bigint) = {}",
                key(name)
            ),
            _ => return kill_the_holder_of_the_row(&self.url, name).await,
        };
        sqlx::query(AssertSqlSafe(revoke))
            .bind(name.as_bytes())
            .execute(&mut session(&self.url).await)
            .await
            .unwrap();
    }
}
