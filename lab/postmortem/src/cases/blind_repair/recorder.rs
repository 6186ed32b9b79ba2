//! The recorder carries orders from Redis to SQL. It is a separate process, so it can be stopped
//! while it holds a batch of orders.

use anyhow::{Context, Result};
use redis::{AsyncCommands, aio::MultiplexedConnection, streams::StreamRangeReply};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::shop::{OUTBOX, QUEUE};
use crate::{
    actor::Host,
    test_env,
    timeline::{Doing, Event},
};

/// Point at which it holds a batch of orders.
pub(super) const BATCH_READ: &str = "after orders were read, before they are in SQL";
/// Point at which it has nothing to do.
pub(super) const IDLE: &str = "nothing to record";
const BATCH_MAX: usize = 1000;

/// Arguments of the recorder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub redis_url: String,
    pub database_url: String,
    /// Whether orders are in a log, with SQL storing the recorded position; otherwise they are in a
    /// queue.
    pub outbox: bool,
}

/// Orders in flight to SQL, and the log position of the last one.
struct Batch {
    orders: Vec<String>,
    last: Option<String>,
}

/// Records orders until it is killed.
pub(crate) async fn serve(host: &Host, task: Task) -> Result<Value> {
    let mut redis = test_env::connect(&task.redis_url).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&task.database_url)
        .await?;
    loop {
        let batch = match task.outbox {
            true => read(&mut redis, &pool).await?,
            false => Batch {
                orders: redis
                    .lpop(QUEUE, std::num::NonZeroUsize::new(BATCH_MAX))
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
        host.point(BATCH_READ).await?;
        record(&pool, &batch).await?;
        host.ends(at).await?;
        host.notes(
            Event::Write,
            &format!("{} orders are in SQL", batch.orders.len()),
        )
        .await?;
    }
}

/// Reads the log after the checkpoint.
async fn read(redis: &mut MultiplexedConnection, pool: &PgPool) -> Result<Batch> {
    let checkpoint: String = sqlx::query_scalar("SELECT checkpoint FROM items")
        .fetch_one(pool)
        .await?;
    let log: StreamRangeReply = redis
        .xrange_count(OUTBOX, format!("({checkpoint}"), "+", BATCH_MAX)
        .await?;
    let last = log.ids.last().map(|entry| entry.id.clone());
    let orders = log.ids.iter().map(|entry| {
        entry
            .get("order")
            .context("the outbox entry has no field `order`")
    });
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
