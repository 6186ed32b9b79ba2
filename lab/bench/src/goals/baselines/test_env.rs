//! The servers and tables that the variants of P9 sell from.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use sqlx::{PgPool, postgres::PgPoolOptions};
use testbed::{Postgres, Redis};

use super::variant::judge;
use crate::goals::{lock::Nodes, servers};

/// The servers of the baselines. Stockade gets new servers for each run.
pub struct TestEnv {
    redis: Redis,
    pub nodes: Nodes,
    pub postgres: Postgres,
    databases: AtomicU64,
}

const TABLES: &str = "\
    CREATE TABLE items (id bigint PRIMARY KEY, stock bigint NOT NULL, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50); \
    CREATE TABLE orders (id uuid PRIMARY KEY, item bigint NOT NULL, buyer text NOT NULL, quantity bigint NOT NULL)";

impl TestEnv {
    pub async fn open() -> Result<Self> {
        let (redis, nodes, postgres) = tokio::try_join!(
            async { Ok(Redis::start().await?) },
            Nodes::start(),
            servers::postgres()
        )?;
        let env = Self {
            redis,
            nodes,
            postgres,
            databases: AtomicU64::default(),
        };
        let pool = PgPool::connect(&env.postgres.create_database("baselines").await?).await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        pool.close().await;
        Ok(env)
    }

    /// URL of the baselines' Redis, after FLUSHALL.
    pub async fn emptied(&self) -> Result<String> {
        let mut connection = servers::connect(&self.redis.url()).await?;
        redis::cmd("FLUSHALL")
            .query_async::<()>(&mut connection)
            .await?;
        Ok(self.redis.url())
    }

    /// Empties the baselines' tables, inserts one item, and opens all connections of the pool.
    pub async fn tables(&self, connections: u64, stock: u64) -> Result<PgPool> {
        let connections = u32::try_from(connections)?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections);
        let pool = pool
            .test_before_acquire(false)
            .connect(&self.postgres.url("baselines"))
            .await?;
        sqlx::raw_sql("TRUNCATE items, orders")
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO items (id, stock) VALUES (1, $1)")
            .bind(i64::try_from(stock)?)
            .execute(&pool)
            .await?;
        Ok(pool)
    }

    /// An unused name for a database.
    pub fn database(&self) -> String {
        format!(
            "stockade_{}",
            self.databases.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// Audits the tables.
pub async fn audit_tables(pool: &PgPool, stock: u64, accepted: u64) -> Result<(i64, u64)> {
    let left: i64 = sqlx::query_scalar("SELECT stock FROM items WHERE id = 1")
        .fetch_one(pool)
        .await?;
    let sold: i64 = sqlx::query_scalar("SELECT coalesce(sum(quantity), 0)::bigint FROM orders")
        .fetch_one(pool)
        .await?;
    judge(stock, left, sold, accepted)
}
