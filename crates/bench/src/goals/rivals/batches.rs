//! Natural batches straight into PostgreSQL: while one is away the next one gathers, and one statement takes from the row and writes the orders. No Redis, no
//! limit, nothing that a repeat would find again: the strongest rival.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use sqlx::PgPool;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
};
use uuid::Uuid;

use super::way::{Place, Way, audit_tables};
use crate::goals::crowd::Told;

const ORDERS_AT_MOST: usize = 1000;

/// The first ones get what there is.
const WRITE: &str = "WITH before AS (SELECT stock FROM items WHERE id = 1 FOR UPDATE), \
    taken AS (UPDATE items SET stock = items.stock - LEAST(items.stock, $3) WHERE id = 1) \
    INSERT INTO orders (id, item, buyer, quantity) \
    SELECT new.id, 1, new.buyer, 1 FROM UNNEST($1::uuid[], $2::text[]) WITH ORDINALITY AS new (id, buyer, place), before \
    WHERE place <= before.stock";

struct Waiting {
    buyer: String,
    answer: oneshot::Sender<Told>,
}

/// Where orders gather, and who writes them.
pub struct Batches {
    pool: PgPool,
    orders: mpsc::UnboundedSender<Waiting>,
    writers: Mutex<JoinSet<Result<()>>>,
}

impl Batches {
    pub async fn open(place: &Place, writers: u64, stock: u64) -> Result<Self> {
        let pool = place.tables(writers, stock).await?;
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
        let mut batch = Vec::with_capacity(ORDERS_AT_MOST);
        if orders
            .lock()
            .await
            .recv_many(&mut batch, ORDERS_AT_MOST)
            .await
            == 0
        {
            return Ok(());
        }
        let written = write(&pool, &batch).await?;
        for (place, waiting) in batch.into_iter().enumerate() {
            // Whoever has gone away is no error.
            _ = waiting.answer.send(if (place as u64) < written {
                Told::Sold
            } else {
                Told::Refused
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
impl Way for Batches {
    async fn buy(&self, buyer: u64) -> Result<Told> {
        let (answer, told) = oneshot::channel();
        self.orders
            .send(Waiting {
                buyer: format!("buyer-{buyer}"),
                answer,
            })
            .map_err(|_| anyhow!("nobody writes any more"))?;
        told.await.context("a batch was not written")
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
