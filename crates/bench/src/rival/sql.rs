//! The tables of the rivals: stock in one row, which cannot fall below 0, and orders with the same primary key as Stockade's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::time::sleep;

use crate::sale::PLENTY;

const AT_REST_WITHIN: Duration = Duration::from_secs(60);

/// Makes the tables and puts plenty of one item in stock.
pub async fn create(url: &str, item: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let tables = "CREATE TABLE items (id text PRIMARY KEY, available bigint NOT NULL CHECK (available >= 0)) WITH (fillfactor = 50);
        CREATE TABLE orders (id uuid PRIMARY KEY, item text NOT NULL, buyer text NOT NULL, quantity bigint NOT NULL CHECK (quantity > 0),
            state text NOT NULL, expires_at timestamptz NOT NULL)";
    sqlx::raw_sql(tables).execute(&mut connection).await?;
    sqlx::query("INSERT INTO items VALUES ($1, $2)")
        .bind(item)
        .bind(i64::try_from(PLENTY)?)
        .execute(&mut connection)
        .await?;
    Ok(connection.close().await?)
}

/// Connections that are not asked how they are each time.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .test_before_acquire(false);
    pool.connect(url).await.context("--database-url")
}

/// Orders in the table as soon as no more come, which must be what the stock is short of.
pub async fn sold(url: &str, item: &str) -> Result<u64> {
    let mut connection = PgConnection::connect(url).await?;
    let until = Instant::now() + AT_REST_WITHIN;
    let mut last = look(&mut connection, item).await?;
    loop {
        sleep(Duration::from_millis(200)).await;
        let now = look(&mut connection, item).await?;
        if now == last {
            break;
        }
        ensure!(
            Instant::now() < until,
            "a rival still records after {AT_REST_WITHIN:?}"
        );
        last = now;
    }
    let (orders, available) = (u64::try_from(last.0)?, u64::try_from(last.1)?);
    ensure!(
        orders == PLENTY - available,
        "a rival recorded {orders} orders, and its stock is {available} of {PLENTY}"
    );
    Ok(orders)
}

async fn look(connection: &mut PgConnection, item: &str) -> Result<(i64, i64)> {
    let look = "SELECT (SELECT count(*) FROM orders), available FROM items WHERE id = $1";
    Ok(sqlx::query_as(look)
        .bind(item)
        .fetch_one(connection)
        .await?)
}
