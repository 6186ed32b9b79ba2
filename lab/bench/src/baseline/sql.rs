//! The tables of the baselines: stock in one row, which cannot fall below 0, and orders with the
//! same primary key as Stockade's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::time::sleep;

use crate::{sale::PLENTY, test_env};

const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Most units of one buyer, as of the items that Stockade sells: it is counted, and never reached.
pub const LIMIT: i64 = test_env::LIMIT as i64;

/// What a baseline does for an order besides recording it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duties {
    /// Nothing.
    None,
    /// What Stockade does: a limit for a buyer, an index of the holds, and the first answer for a
    /// repeat.
    Same,
}

/// Creates the tables and one item with plenty of stock.
pub async fn create(url: &str, item: &str, duties: Duties) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let tables = "CREATE TABLE items (id text PRIMARY KEY, available bigint NOT NULL CHECK (available >= 0)) WITH (fillfactor = 50);
        CREATE TABLE orders (id uuid PRIMARY KEY, item text NOT NULL, buyer text NOT NULL, quantity bigint NOT NULL CHECK (quantity > 0),
            state text NOT NULL, expires_at timestamptz NOT NULL)";
    sqlx::raw_sql(tables).execute(&mut connection).await?;
    if duties == Duties::Same {
        let tables = format!(
            "CREATE INDEX orders_due ON orders (expires_at) WHERE state = 'held';
            CREATE TABLE buyers (item text NOT NULL, buyer text NOT NULL, units bigint NOT NULL, PRIMARY KEY (item, buyer),
                CONSTRAINT buyers_limit CHECK (units <= {LIMIT})) WITH (fillfactor = 50)"
        );
        sqlx::raw_sql(AssertSqlSafe(tables))
            .execute(&mut connection)
            .await?;
    }
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

/// Number of recorded orders, once it stops rising. Their units must be those that are missing from
/// the stock, and with [`Duties::Same`] those that the buyers have.
pub async fn sold(url: &str, item: &str, duties: Duties) -> Result<u64> {
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
    let Counts {
        orders,
        units,
        available,
    } = last;
    ensure!(
        units == i64::try_from(PLENTY)? - available,
        "a baseline recorded {units} units, and its stock is {available} of {PLENTY}"
    );
    if duties == Duties::Same {
        let query = "SELECT coalesce(sum(units), 0)::bigint FROM buyers";
        let counted: i64 = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
        ensure!(
            counted == units,
            "a baseline recorded {units} units, and its buyers have {counted}"
        );
    }
    Ok(u64::try_from(orders)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    orders: i64,
    units: i64,
    available: i64,
}

async fn counts(connection: &mut PgConnection, item: &str) -> Result<Counts> {
    let query = "SELECT count(orders.id) AS orders, coalesce(sum(quantity), 0)::bigint AS units, available
        FROM items LEFT JOIN orders ON orders.item = items.id WHERE items.id = $1 GROUP BY items.id";
    let (orders, units, available) = sqlx::query_as::<_, (i64, i64, i64)>(query)
        .bind(item)
        .fetch_one(connection)
        .await?;
    Ok(Counts {
        orders,
        units,
        available,
    })
}
