//! One PostgreSQL server: a row with an expiry, an advisory lock, and a row under `FOR UPDATE`.

use std::{sync::Arc, time::Duration};

use lock::{Lock, SqlLockBuilder};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::{sync::OnceCell, time::sleep};

use super::{TestEnv, answer_timeout};
use crate::{
    store::env::shared_postgres,
    support::{HOUR, ms},
};

pub const ROW: u8 = 0;
pub const ADVISORY: u8 = 1;
pub const FOR_UPDATE: u8 = 2;

pub struct Postgres<const KIND: u8> {
    pub url: String,
    server: Option<testbed::Postgres>,
}

/// A lock of that kind.
pub fn lock(kind: u8, builder: SqlLockBuilder<sqlx::Postgres>) -> Arc<dyn Lock> {
    lock_of(kind, builder.retry(ms(50)))
}

fn lock_of(kind: u8, builder: SqlLockBuilder<sqlx::Postgres>) -> Arc<dyn Lock> {
    match kind {
        ROW => Arc::new(builder.build().unwrap()),
        ADVISORY => Arc::new(builder.build_advisory().unwrap()),
        _ => Arc::new(builder.build_for_update().unwrap()),
    }
}

pub async fn session(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// URL of a database with the tables, created once.
pub async fn shared_url() -> &'static str {
    static URL: OnceCell<String> = OnceCell::const_new();
    URL.get_or_init(async || with_tables(shared_postgres().await).await)
        .await
}

async fn with_tables(server: &testbed::Postgres) -> String {
    let url = server.create_database("locks").await.unwrap();
    SqlLockBuilder::<sqlx::Postgres>::connect(&url)
        .build_for_update()
        .unwrap()
        .create_table()
        .await
        .unwrap();
    url
}

/// The key of an advisory lock at the server.
pub fn key(name: &str) -> String {
    let bytes: String = format!("locks:{name}")
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("('x' || left(encode(sha256('\\x{bytes}'), 'hex'), 16))::bit(64)::bigint")
}

impl<const KIND: u8> Postgres<KIND> {
    fn builder(&self, lease: Duration) -> SqlLockBuilder<sqlx::Postgres> {
        SqlLockBuilder::connect(&self.url)
            .lease(lease)
            .timeout(answer_timeout(lease))
    }

    fn server(&mut self) -> &mut testbed::Postgres {
        self.server
            .as_mut()
            .expect("shared servers are never stopped")
    }
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
    async fn shared() -> &'static Self {
        // Leaks a few bytes for each test.
        Box::leak(Box::new(Self {
            url: shared_url().await.to_owned(),
            server: None,
        }))
    }

    async fn own() -> Self {
        let server = testbed::Postgres::start().await.unwrap();
        Self {
            url: with_tables(&server).await,
            server: Some(server),
        }
    }

    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
        lock(KIND, self.builder(lease))
    }

    async fn seldom_client(&self) -> Arc<dyn Lock> {
        lock_of(KIND, self.builder(Self::LEASE).retry(HOUR))
    }

    async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
        lock(KIND, self.builder(Self::LEASE).lock_delay(delay))
    }

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

    async fn make_unavailable(&mut self) {
        self.server().kill().await.unwrap();
    }

    async fn make_available(&mut self) {
        self.server().restart().await.unwrap();
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
