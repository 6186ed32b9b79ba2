//! Natural batches straight into PostgreSQL: orders queue while a batch is written, and one
//! statement takes the units and inserts the orders. An order's id is derived from its buyer and
//! key, so a repeat is the same order. It has no Redis and no limit, and is the strongest baseline.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use domain::{BuyerId, IdempotencyKey, ItemId, ItemTag, OrderId};
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

/// The first new orders of a batch get the units that are left.
const WRITE: &str = "WITH before AS (SELECT stock FROM items WHERE id = 1 FOR UPDATE), \
    new AS (INSERT INTO orders (id, item, buyer, quantity) \
        SELECT request.id, 1, request.buyer, 1 FROM UNNEST($1::uuid[], $2::text[]) WITH ORDINALITY AS request (id, buyer, place), before \
        WHERE place <= before.stock ON CONFLICT (id) DO NOTHING RETURNING 1), \
    taken AS (UPDATE items SET stock = items.stock - (SELECT count(*) FROM new) WHERE id = 1) \
    SELECT count(*) FROM new";

const KNOWN: &str = "SELECT id FROM orders WHERE id = ANY($1)";

struct Waiting {
    id: Uuid,
    buyer: BuyerId,
    answer: oneshot::Sender<Reply>,
}

/// The queue of orders and its writers.
pub struct Batches {
    pool: PgPool,
    orders: mpsc::UnboundedSender<Waiting>,
    writers: Mutex<JoinSet<Result<()>>>,
    item: ItemId,
    tag: ItemTag,
    /// Each buyer orders once.
    key: IdempotencyKey,
}

impl Batches {
    pub async fn open(env: &TestEnv, writers: u64, stock: u64) -> Result<Self> {
        let pool = env.tables(writers, stock).await?;
        let (orders, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let writers = (0..writers)
            .map(|_| write_all(pool.clone(), Arc::clone(&receiver)))
            .collect();
        let item = ItemId::new("hot")?;
        Ok(Self {
            pool,
            orders,
            writers: Mutex::new(writers),
            tag: item.tag(),
            item,
            key: IdempotencyKey::new("k")?,
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
        let replies = write(&pool, &batch).await?;
        for (waiting, reply) in batch.into_iter().zip(replies) {
            // A buyer that has gone away is no error.
            _ = waiting.answer.send(reply);
        }
    }
}

/// The replies to the orders of a batch.
async fn write(pool: &PgPool, batch: &[Waiting]) -> Result<Vec<Reply>> {
    let mut open: Vec<_> = batch.iter().collect();
    let mut known = HashSet::<Uuid>::new();
    loop {
        let new = insert(pool, &open).await?;
        if new == open.len() {
            return Ok(vec![Reply::Sold; batch.len()]);
        }
        // Some were repeats, or the units did not suffice. A repeat may have had the place of a new
        // one.
        let ids: Vec<_> = open.iter().map(|waiting| waiting.id).collect();
        let found: Vec<Uuid> = sqlx::query_scalar(KNOWN).bind(ids).fetch_all(pool).await?;
        known.extend(found);
        let before = open.len();
        open.retain(|waiting| !known.contains(&waiting.id));
        if open.is_empty() || open.len() == before {
            break;
        }
    }
    let reply = |waiting: &Waiting| match known.contains(&waiting.id) {
        true => Reply::Sold,
        false => Reply::Refused,
    };
    Ok(batch.iter().map(reply).collect())
}

/// Number of the orders that are new, and got a unit.
async fn insert(pool: &PgPool, orders: &[&Waiting]) -> Result<usize> {
    let ids: Vec<_> = orders.iter().map(|waiting| waiting.id).collect();
    let buyers = orders.iter().map(|waiting| waiting.buyer.as_str());
    let new: i64 = sqlx::query_scalar(WRITE)
        .bind(ids)
        .bind(buyers.collect::<Vec<_>>())
        .fetch_one(pool)
        .await?;
    Ok(usize::try_from(new)?)
}

#[async_trait]
impl Variant for Batches {
    async fn buy(&self, buyer: u64) -> Result<Reply> {
        let (answer, reply) = oneshot::channel();
        let buyer = BuyerId::new(format!("buyer-{buyer}"))?;
        self.orders
            .send(Waiting {
                id: OrderId::derive(&self.item, self.tag, &buyer, &self.key).as_uuid(),
                buyer,
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

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::{Batches, Reply, TestEnv, Variant};

    #[tokio::test]
    async fn a_repeat_is_the_same_order_also_when_nothing_is_left() {
        let env = TestEnv::open().await.unwrap();
        let batches = Batches::open(&env, 1, 3).await.unwrap();
        let buy = async |buyers: &[u64]| {
            let replies = join_all(buyers.iter().map(|buyer| batches.buy(*buyer))).await;
            let sold = replies
                .into_iter()
                .map(|reply| reply.unwrap() == Reply::Sold);
            sold.collect::<Vec<_>>()
        };
        assert_eq!(buy(&[1, 2]).await, [true, true]);
        // The repeats stand before the one that gets the last unit.
        assert_eq!(buy(&[1, 2, 2, 3]).await, [true; 4]);
        assert_eq!(buy(&[4, 1, 3]).await, [false, true, true]);
        assert_eq!(batches.audit(3, 3).await.unwrap(), (0, 0));
        batches.end().await.unwrap();
    }
}
