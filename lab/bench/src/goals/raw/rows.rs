//! Batches of orders into PostgreSQL without a ledger: one transaction inserts the rows and updates
//! their segment's counter.
//!
//! The tables are copies of the ledger's, with indexes and constraints. A duplicate would fail the
//! batch, no limit is checked, and no outbox position is recorded.

use anyhow::{Result, ensure};
use domain::TakenOrder;
use jiff::Timestamp;
use sqlx::{PgConnection, PgPool, postgres::PgPoolOptions};
use uuid::Uuid;

/// How the rows are inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Copy,
    Unnest,
}

/// The copied tables.
pub struct Rows {
    pool: PgPool,
    variant: Variant,
}

const TABLES: &str = "CREATE TABLE raw_orders (LIKE orders INCLUDING ALL); \
    CREATE TABLE raw_segments (LIKE segments INCLUDING ALL) WITH (fillfactor = 50)";

const UNNEST: &str = "INSERT INTO raw_orders (id, item, segment, buyer, quantity, state, expires_at) \
    SELECT id, $2, $3, buyer, quantity, 'held', $6::timestamptz FROM UNNEST($1::uuid[], $4::text[], $5::bigint[]) AS new (id, buyer, quantity)";

const MOVE: &str = "UPDATE raw_segments SET available = available - $4, held = held + $4, version = version + 1 \
    WHERE item = $1 AND segment = $2 AND version = $3 AND available >= $4";

impl Rows {
    /// Creates the tables in a database that has the ledger's tables.
    pub async fn open(url: &str, connections: u32, variant: Variant) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections)
            .connect(url)
            .await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self { pool, variant })
    }

    /// Puts units into a segment.
    pub async fn fill(&self, item: &str, segment: u16, units: i64) -> Result<()> {
        sqlx::query("INSERT INTO raw_segments (item, segment, allocated, available) VALUES ($1, $2, $3, $3)")
            .bind(item)
            .bind(i32::from(segment))
            .bind(units)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// One transaction: these orders, sorted by id, and the counter, if its version is the one that
    /// was read.
    pub async fn record(
        &self,
        item: &str,
        segment: u16,
        mut orders: Vec<TakenOrder>,
    ) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        let version: i64 =
            sqlx::query_scalar("SELECT version FROM raw_segments WHERE item = $1 AND segment = $2")
                .bind(item)
                .bind(i32::from(segment))
                .fetch_one(&mut *transaction)
                .await?;
        orders.sort_unstable_by_key(|order| order.id);
        match self.variant {
            Variant::Copy => copy(&mut transaction, item, segment, &orders).await?,
            Variant::Unnest => unnest(&mut transaction, item, segment, &orders).await?,
        }
        let units: i64 = orders
            .iter()
            .map(|order| i64::from(order.quantity.get()))
            .sum();
        let moved = sqlx::query(MOVE)
            .bind(item)
            .bind(i32::from(segment))
            .bind(version)
            .bind(units)
            .execute(&mut *transaction)
            .await?;
        ensure!(
            moved.rows_affected() == 1,
            "segment {segment} was changed concurrently"
        );
        Ok(transaction.commit().await?)
    }

    /// Returns the units on which counters and orders disagree, and the oversold units.
    pub async fn audit(&self, item: &str, accepted: u64) -> Result<(i64, u64)> {
        let (allocated, available, held): (i64, i64, i64) =
            sqlx::query_as("SELECT sum(allocated)::bigint, sum(available)::bigint, sum(held)::bigint FROM raw_segments WHERE item = $1")
                .bind(item)
                .fetch_one(&self.pool)
                .await?;
        let orders: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(quantity), 0)::bigint FROM raw_orders WHERE item = $1",
        )
        .bind(item)
        .fetch_one(&self.pool)
        .await?;
        let drift = (allocated - available - held).abs()
            + (held - orders).abs()
            + (orders - i64::try_from(accepted)?).abs();
        Ok((drift, u64::try_from(orders - allocated).unwrap_or(0)))
    }

    /// Closes its connections.
    pub async fn close(self) {
        self.pool.close().await;
    }
}

async fn copy(
    connection: &mut PgConnection,
    item: &str,
    segment: u16,
    orders: &[TakenOrder],
) -> Result<()> {
    let mut copy = connection
        .copy_in_raw(
            "COPY raw_orders (id, item, segment, buyer, quantity, state, expires_at) FROM STDIN",
        )
        .await?;
    let text = lines(item, segment, orders);
    copy.send(text.into_bytes()).await?;
    let copied = copy.finish().await?;
    ensure!(
        copied == orders.len() as u64,
        "{copied} of {} rows were copied",
        orders.len()
    );
    Ok(())
}

/// The format of COPY: tabs between, and nothing in an id or a buyer's name that would need a
/// backslash.
fn lines(item: &str, segment: u16, orders: &[TakenOrder]) -> String {
    use std::fmt::Write;
    let expires = Timestamp::now();
    let mut text = String::with_capacity(orders.len() * 96);
    for order in orders {
        // Writing to a string cannot fail.
        _ = writeln!(
            text,
            "{}\t{item}\t{segment}\t{}\t{}\theld\t{expires}",
            order.id,
            order.buyer.as_str(),
            order.quantity.get()
        );
    }
    text
}

async fn unnest(
    connection: &mut PgConnection,
    item: &str,
    segment: u16,
    orders: &[TakenOrder],
) -> Result<()> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.id.as_uuid()).collect();
    let buyers: Vec<&str> = orders.iter().map(|order| order.buyer.as_str()).collect();
    let quantities: Vec<i64> = orders
        .iter()
        .map(|order| order.quantity.get().into())
        .collect();
    let inserted = sqlx::query(UNNEST)
        .bind(ids)
        .bind(item)
        .bind(i32::from(segment))
        .bind(buyers)
        .bind(quantities)
        .bind(Timestamp::now().to_string())
        .execute(connection)
        .await?;
    ensure!(
        inserted.rows_affected() == orders.len() as u64,
        "not all rows were inserted"
    );
    Ok(())
}
