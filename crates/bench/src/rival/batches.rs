//! One transaction for all orders that came while the last one was committed, straight into PostgreSQL: the strongest competitor, since most of what Stockade gains
//! over today's practice is batching.
//!
//! It is one statement, and so one round trip and one commit: what is new is inserted, and the stock falls by that much. The stock's constraint refuses a batch that
//! it does not cover, whose orders are then tried one by one.

use anyhow::Result;
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{
    http::{Asked, Shop},
    sql,
};

/// Orders in a batch at most; more than there are connections, so never the limit.
const MOST: usize = 2000;
/// Batches at once. A second one is inserted while the first is flushed, and waits for the row only then.
const WRITERS: u32 = 2;

type Waiting = (Asked, oneshot::Sender<Result<bool>>);

/// The way.
pub struct Batches {
    inbox: mpsc::Sender<Waiting>,
}

impl Batches {
    /// In this database.
    pub async fn open(url: &str) -> Result<Self> {
        let pool = sql::connect(url, WRITERS).await?;
        let (inbox, waiting) = mpsc::channel(16 * MOST);
        let waiting = std::sync::Arc::new(tokio::sync::Mutex::new(waiting));
        for _ in 0..WRITERS {
            tokio::spawn(write(pool.clone(), std::sync::Arc::clone(&waiting)));
        }
        Ok(Self { inbox })
    }
}

impl Shop for Batches {
    async fn place(&self, asked: Asked) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send((asked, answer)).await?;
        answered.await?
    }
}

/// Takes whatever waits, again and again.
async fn write(pool: PgPool, inbox: std::sync::Arc<tokio::sync::Mutex<mpsc::Receiver<Waiting>>>) {
    let mut batch = Vec::with_capacity(MOST);
    while inbox.lock().await.recv_many(&mut batch, MOST).await > 0 {
        let (orders, answers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let recorded = record(&pool, &orders).await;
        for (order, answer) in orders.iter().zip(answers) {
            let alone = match &recorded {
                Ok(true) => Ok(true),
                Ok(false) => record(&pool, std::slice::from_ref(order)).await,
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            // Who has hung up has an order all the same.
            let _ = answer.send(alone);
        }
    }
}

/// Whether the stock covers all of them. If not, none is recorded.
async fn record(pool: &PgPool, orders: &[Asked]) -> Result<bool> {
    let statement = "WITH new AS (
            INSERT INTO orders
            SELECT id, item, buyer, quantity, 'held', to_timestamp(expires_ms / 1000.0)
            FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS asked (id, item, buyer, quantity, expires_ms)
            ON CONFLICT (id) DO NOTHING RETURNING item, quantity
        )
        UPDATE items SET available = available - sold.units
        FROM (SELECT item, sum(quantity)::bigint AS units FROM new GROUP BY item) AS sold WHERE items.id = sold.item";
    let column = |of: fn(&Asked) -> i64| orders.iter().map(of).collect::<Vec<_>>();
    let query = sqlx::query(statement)
        .bind(orders.iter().map(|order| order.id).collect::<Vec<Uuid>>())
        .bind(
            orders
                .iter()
                .map(|order| order.item.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(
            orders
                .iter()
                .map(|order| order.buyer.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(column(|order| order.quantity))
        .bind(column(|order| order.expires_ms));
    match query.execute(pool).await {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .as_database_error()
                .is_some_and(|error| error.is_check_violation()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
