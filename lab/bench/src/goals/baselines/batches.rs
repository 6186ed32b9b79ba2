//! Natural batches straight into PostgreSQL: orders queue while a batch is written, and one statement
//! takes the units and inserts the orders. It has no Redis, no limit and no idempotency, and is the
//! strongest baseline.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use sqlx::PgPool;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
};
use uuid::Uuid;

use super::{
    test_env::{TestEnv, audit_tables},
    variant::Variant,
};
use crate::goals::crowd::Reply;

const ORDERS_PER_BATCH_MAX: usize = 1000;

/// The first orders of a batch get the units that are left.
const WRITE: &str = "WITH before AS (SELECT stock FROM items WHERE id = 1 FOR UPDATE), \
    taken AS (UPDATE items SET stock = items.stock - LEAST(items.stock, $3) WHERE id = 1) \
    INSERT INTO orders (id, item, buyer, quantity) \
    SELECT new.id, 1, new.buyer, 1 FROM UNNEST($1::uuid[], $2::text[]) WITH ORDINALITY AS new (id, buyer, place), before \
    WHERE place <= before.stock";

struct Waiting {
    buyer: String,
    answer: oneshot::Sender<Reply>,
}

/// The queue of orders and its writers.
pub struct Batches {
    pool: PgPool,
    orders: mpsc::UnboundedSender<Waiting>,
    writers: Mutex<JoinSet<Result<()>>>,
}

impl Batches {
    pub async fn open(env: &TestEnv, writers: u64, stock: u64) -> Result<Self> {
        let pool = env.tables(writers, stock).await?;
        let (orders, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let writers = (0..writers)
            .map(|_| write_all(pool.clone(), Arc::clone(&receiver)))
            .collect();
        Ok(Self {
            pool,
            orders,
            writers: Mutex::new(writers),
        })
    }
}

async fn write_all(
    pool: PgPool,
    orders: Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>,
) -> Result<()> {
    loop {
        let mut batch = Vec::with_capacity(ORDERS_PER_BATCH_MAX);
        if orders
            .lock()
            .await
            .recv_many(&mut batch, ORDERS_PER_BATCH_MAX)
            .await
            == 0
        {
            return Ok(());
        }
        let written = write(&pool, &batch).await?;
        for (index, waiting) in batch.into_iter().enumerate() {
            // A buyer that has gone away is no error.
            _ = waiting.answer.send(if (index as u64) < written {
                Reply::Sold
            } else {
                Reply::Refused
            });
        }
    }
}

async fn write(pool: &PgPool, batch: &[Waiting]) -> Result<u64> {
    let ids: Vec<_> = batch.iter().map(|_| Uuid::new_v4()).collect();
    let buyers: Vec<_> = batch.iter().map(|waiting| waiting.buyer.as_str()).collect();
    let written = sqlx::query(WRITE)
        .bind(ids)
        .bind(buyers)
        .bind(i64::try_from(batch.len())?)
        .execute(pool)
        .await?;
    Ok(written.rows_affected())
}

#[async_trait]
impl Variant for Batches {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let (answer, reply) = oneshot::channel();
        self.orders
            .send(Waiting {
                buyer: format!("buyer-{buyer}"),
                answer,
            })
            .map_err(|_| anyhow!("the writers have ended"))?;
        reply.await.context("a batch was not written")
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        audit_tables(&self.pool, stock, accepted).await
    }

    async fn end(&self) -> Result<()> {
        self.writers.lock().await.shutdown().await;
        self.pool.close().await;
        Ok(())
    }
}
