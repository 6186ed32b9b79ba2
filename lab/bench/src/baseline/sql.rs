//! The tables of the baselines: stock in one row, which cannot fall below 0, and orders with the same
//! primary key as Stockade's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::time::sleep;

use crate::sale::PLENTY;

const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the tables and one item with plenty of stock.
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

/// Opens a pool that does not test a connection before each use.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new()
        .min_connections(connections)
        .max_connections(connections)
        .test_before_acquire(false);
    pool.connect(url).await.context("--database-url")
}

/// Number of recorded orders, once it stops rising. It must equal the units missing from the stock.
pub async fn sold(url: &str, item: &str) -> Result<u64> {
    let mut connection = PgConnection::connect(url).await?;
    let until = Instant::now() + SETTLE_TIMEOUT;
    let mut last = counts(&mut connection, item).await?;
    loop {
        sleep(Duration::from_millis(200)).await;
        let now = counts(&mut connection, item).await?;
        if now == last {
            break;
        }
        ensure!(
            Instant::now() < until,
            "a baseline still records after {SETTLE_TIMEOUT:?}"
        );
        last = now;
    }
    let (orders, available) = (u64::try_from(last.0)?, u64::try_from(last.1)?);
    ensure!(
        orders == PLENTY - available,
        "a baseline recorded {orders} orders, and its stock is {available} of {PLENTY}"
    );
    Ok(orders)
}

async fn counts(connection: &mut PgConnection, item: &str) -> Result<(i64, i64)> {
    let query = "SELECT (SELECT count(*) FROM orders), available FROM items WHERE id = $1";
    Ok(sqlx::query_as(query)
        .bind(item)
        .fetch_one(connection)
        .await?)
}
