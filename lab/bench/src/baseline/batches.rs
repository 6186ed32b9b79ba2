//! One transaction for all orders that arrived during the previous commit, straight into PostgreSQL.
//! This is the strongest competitor, because most of Stockade's gain over common practice is batching.
//!
//! One statement means one round trip and one commit: it inserts the new orders and subtracts their
//! units from the stock. The stock's constraint refuses a batch that it does not cover; the writer then
//! tries the orders of that batch one by one.

use anyhow::Result;
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{
    http::{OrderRequest, OrderStore},
    sql,
};

/// Orders of a batch; more than there are connections, so never the limit.
const BATCH_MAX: usize = 2000;
/// Concurrent batches. The second one is inserted while the first is flushed, and only then waits
/// for the row.
const WRITERS: u32 = 2;

type Waiting = (OrderRequest, oneshot::Sender<Result<bool>>);

/// The queue of the writers.
pub struct Batches {
    inbox: mpsc::Sender<Waiting>,
}

impl Batches {
    /// Connects to the database and starts the writers.
    pub async fn open(url: &str) -> Result<Self> {
        let pool = sql::connect(url, WRITERS).await?;
        let (inbox, waiting) = mpsc::channel(16 * BATCH_MAX);
        let waiting = std::sync::Arc::new(tokio::sync::Mutex::new(waiting));
        for _ in 0..WRITERS {
            tokio::spawn(write(pool.clone(), std::sync::Arc::clone(&waiting)));
        }
        Ok(Self { inbox })
    }
}

impl OrderStore for Batches {
    async fn place(&self, request: OrderRequest) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send((request, answer)).await?;
        answered.await?
    }
}

/// Takes all queued orders, records them as one batch, and repeats.
async fn write(pool: PgPool, inbox: std::sync::Arc<tokio::sync::Mutex<mpsc::Receiver<Waiting>>>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while inbox.lock().await.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let (orders, answers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let recorded = record(&pool, &orders).await;
        for (order, answer) in orders.iter().zip(answers) {
            let alone = match &recorded {
                Ok(true) => Ok(true),
                Ok(false) => record(&pool, std::slice::from_ref(order)).await,
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            // The order exists even if the client has closed its connection.
            let _ = answer.send(alone);
        }
    }
}

/// Records all orders, or none. Returns whether the stock covers them.
async fn record(pool: &PgPool, orders: &[OrderRequest]) -> Result<bool> {
    let statement = "WITH new AS (
            INSERT INTO orders
            SELECT id, item, buyer, quantity, 'held', to_timestamp(expires_ms / 1000.0)
            FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS request (id, item, buyer, quantity, expires_ms)
            ON CONFLICT (id) DO NOTHING RETURNING item, quantity
        )
        UPDATE items SET available = available - sold.units
        FROM (SELECT item, sum(quantity)::bigint AS units FROM new GROUP BY item) AS sold WHERE items.id = sold.item";
    let column = |of: fn(&OrderRequest) -> i64| orders.iter().map(of).collect::<Vec<_>>();
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
