//! The recorder: it carries orders from Redis to SQL. A process of its own: it can be stopped with orders in its hand.

use anyhow::{Context, Result};
use redis::{AsyncCommands, aio::MultiplexedConnection, streams::StreamRangeReply};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::shop::{OUTBOX, QUEUE};
use crate::{
    actor::Host,
    stage,
    timeline::{Doing, Event},
};

/// Where it stands with orders in its hand.
pub(super) const IN_HAND: &str = "after orders were read, before they are in SQL";
/// Where it stands when there is nothing to do.
pub(super) const IDLE: &str = "nothing to record";
const BATCH: usize = 1000;

/// What the recorder is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub database_url: String,
    /// Orders are in a log, and SQL keeps up to where it is recorded; otherwise they are in a queue.
    pub outbox: bool,
}

/// Orders on their way to SQL, and the last one's place in the log.
struct Batch {
    orders: Vec<String>,
    last: Option<String>,
}

/// Records until it is killed.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = stage::connect(&task.redis_url).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&task.database_url)
        .await?;
    loop {
        let batch = match task.outbox {
            true => read(&mut redis, &pool).await?,
            false => Batch {
                orders: redis
                    .lpop(QUEUE, std::num::NonZeroUsize::new(BATCH))
                    .await?,
                last: None,
            },
        };
        if batch.orders.is_empty() {
            host.point(IDLE).await?;
            continue;
        }
        let at = host
            .begins(
                Doing::Working,
                &format!("records {} orders", batch.orders.len()),
            )
            .await?;
        host.point(IN_HAND).await?;
        record(&pool, &batch).await?;
        host.ends(at).await?;
        host.notes(
            Event::Write,
            &format!("{} orders are in SQL", batch.orders.len()),
        )
        .await?;
    }
}

/// What the log has after the checkpoint.
async fn read(redis: &mut MultiplexedConnection, pool: &PgPool) -> Result<Batch> {
    let checkpoint: String = sqlx::query_scalar("SELECT checkpoint FROM items")
        .fetch_one(pool)
        .await?;
    let log: StreamRangeReply = redis
        .xrange_count(OUTBOX, format!("({checkpoint}"), "+", BATCH)
        .await?;
    let last = log.ids.last().map(|entry| entry.id.clone());
    let orders = log
        .ids
        .iter()
        .map(|entry| entry.get("order").context("an entry names its order"));
    Ok(Batch {
        orders: orders.collect::<Result<_>>()?,
        last,
    })
}

async fn record(pool: &PgPool, batch: &Batch) -> Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO orders SELECT unnest($1::text[])")
        .bind(&batch.orders)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "UPDATE items SET available = available - $1, checkpoint = coalesce($2, checkpoint)",
    )
    .bind(i64::try_from(batch.orders.len())?)
    .bind(&batch.last)
    .execute(&mut *transaction)
    .await?;
    Ok(transaction.commit().await?)
}
