//! One transaction for all orders that arrived during the previous commit, straight into
//! PostgreSQL. This is the strongest competitor, because most of Stockade's gain over common
//! practice is batching.
//!
//! One statement means one round trip and one commit: it inserts the new orders and subtracts their
//! units from the stock. A constraint refuses a batch with an order that it does not cover; the
//! writer then tries the orders of that batch one by one.
//!
//! It comes in two versions. `Plain` does no more than that. `Duties` also does what Stockade
//! promises of an order: it counts each buyer's units and bounds them, keeps an index of the holds
//! that will expire, and answers a repeat with the first answer, or refuses a key with another
//! quantity.

use std::{collections::HashMap, sync::Arc};

use anyhow::Result;
use sqlx::PgPool;
use tokio::sync::{Mutex, mpsc, oneshot};
use uuid::Uuid;

use super::{
    http::{OrderRequest, OrderStore, Verdict},
    sql::{self, Duties},
};

/// Orders of a batch; more than there are connections, so never the limit.
const BATCH_MAX: usize = 2000;
/// Concurrent batches. The second one is inserted while the first is flushed, and only then waits
/// for the row.
const WRITERS: u32 = 2;

type Waiting = (OrderRequest, oneshot::Sender<Result<Verdict>>);

/// The queue of the writers.
pub struct Batches {
    inbox: mpsc::Sender<Waiting>,
}

impl Batches {
    /// Connects to the database and starts the writers.
    pub async fn open(url: &str, duties: Duties) -> Result<Self> {
        let writer = Writer {
            pool: sql::connect(url, WRITERS).await?,
            duties,
        };
        let (inbox, waiting) = mpsc::channel(16 * BATCH_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..WRITERS {
            tokio::spawn(writer.clone().write(Arc::clone(&waiting)));
        }
        Ok(Self { inbox })
    }
}

impl OrderStore for Batches {
    async fn place(&self, request: OrderRequest) -> Result<Verdict> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send((request, answer)).await?;
        answered.await?
    }
}

/// The constraints that an order can violate.
const STOCK: &str = "items_available_check";
const LIMIT: &str = "buyers_limit";

const PLAIN: &str = "WITH new AS (
        INSERT INTO orders
        SELECT id, item, buyer, quantity, 'held', to_timestamp(expires_ms / 1000.0)
        FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS request (id, item, buyer, quantity, expires_ms)
        ON CONFLICT (id) DO NOTHING RETURNING item, quantity
    ), taken AS (
        UPDATE items SET available = available - sold.units
        FROM (SELECT item, sum(quantity)::bigint AS units FROM new GROUP BY item) AS sold WHERE items.id = sold.item
    )
    SELECT count(*) FROM new";

/// Buyers in order: two writers that count the same ones must not wait for each other in turn.
const WITH_DUTIES: &str = "WITH new AS (
        INSERT INTO orders
        SELECT id, item, buyer, quantity, 'held', to_timestamp(expires_ms / 1000.0)
        FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS request (id, item, buyer, quantity, expires_ms)
        ON CONFLICT (id) DO NOTHING RETURNING item, buyer, quantity
    ), counted AS (
        INSERT INTO buyers AS known
        SELECT item, buyer, sum(quantity)::bigint FROM new GROUP BY item, buyer ORDER BY item, buyer
        ON CONFLICT (item, buyer) DO UPDATE SET units = known.units + excluded.units
    ), taken AS (
        UPDATE items SET available = available - sold.units
        FROM (SELECT item, sum(quantity)::bigint AS units FROM new GROUP BY item) AS sold WHERE items.id = sold.item
    )
    SELECT count(*) FROM new";

#[derive(Clone)]
struct Writer {
    pool: PgPool,
    duties: Duties,
}

impl Writer {
    /// Takes all queued orders, records them as one batch, and repeats.
    async fn write(self, inbox: Arc<Mutex<mpsc::Receiver<Waiting>>>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while inbox.lock().await.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let (orders, answers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
            for (verdict, answer) in self.record(&orders).await.into_iter().zip(answers) {
                // The order exists even if the client has closed its connection.
                let _ = answer.send(verdict);
            }
        }
    }

    /// Records the orders together, or else one by one.
    async fn record(&self, orders: &[OrderRequest]) -> Vec<Result<Verdict>> {
        match self.together(orders).await {
            Ok(Recorded::All(verdicts)) => verdicts.into_iter().map(Ok).collect(),
            Ok(Recorded::None(verdict)) if orders.len() == 1 => vec![Ok(verdict)],
            Ok(Recorded::None(_)) => {
                let mut verdicts = Vec::with_capacity(orders.len());
                for order in orders {
                    let alone = self.together(std::slice::from_ref(order)).await;
                    verdicts.push(alone.map(|recorded| match recorded {
                        Recorded::All(verdicts) => verdicts[0],
                        Recorded::None(verdict) => verdict,
                    }));
                }
                verdicts
            }
            Err(error) => {
                let failed = |_| Err(anyhow::anyhow!("{error:#}"));
                orders.iter().map(failed).collect()
            }
        }
    }

    async fn together(&self, orders: &[OrderRequest]) -> Result<Recorded> {
        let statement = match self.duties {
            Duties::None => PLAIN,
            Duties::Same => WITH_DUTIES,
        };
        let text = |of: fn(&OrderRequest) -> &str| orders.iter().map(of).collect::<Vec<_>>();
        let column = |of: fn(&OrderRequest) -> i64| orders.iter().map(of).collect::<Vec<_>>();
        let ids: Vec<Uuid> = orders.iter().map(|order| order.id).collect();
        let query = sqlx::query_scalar::<_, i64>(statement)
            .bind(&ids)
            .bind(text(|order| &order.item))
            .bind(text(|order| order.buyer.as_str()))
            .bind(column(|order| order.quantity))
            .bind(column(|order| order.expires_ms));
        let new = match query.fetch_one(&self.pool).await {
            Ok(new) => usize::try_from(new)?,
            Err(error) => return Recorded::refused(error),
        };
        let held = |order: &OrderRequest| Verdict::Held {
            expires_ms: order.expires_ms,
        };
        if new == orders.len() || self.duties == Duties::None {
            return Ok(Recorded::All(orders.iter().map(held).collect()));
        }
        let known = self.known(&ids).await?;
        let first = |order: &OrderRequest| match known.get(&order.id) {
            Some((quantity, _)) if *quantity != order.quantity => Verdict::KeyReused,
            Some((_, expires_ms)) => Verdict::Held {
                expires_ms: *expires_ms,
            },
            None => held(order),
        };
        Ok(Recorded::All(orders.iter().map(first).collect()))
    }

    /// Quantity and end of the hold of recorded orders.
    async fn known(&self, ids: &[Uuid]) -> Result<HashMap<Uuid, (i64, i64)>> {
        let query = "SELECT id, quantity, (extract(epoch FROM expires_at) * 1000)::bigint FROM orders WHERE id = ANY($1)";
        let rows: Vec<(Uuid, i64, i64)> = sqlx::query_as(query)
            .bind(ids)
            .fetch_all(&self.pool)
            .await?;
        let keyed = rows
            .into_iter()
            .map(|(id, quantity, expires_ms)| (id, (quantity, expires_ms)));
        Ok(keyed.collect())
    }
}

/// What became of a batch.
enum Recorded {
    All(Vec<Verdict>),
    /// One of its orders would break a constraint.
    None(Verdict),
}

impl Recorded {
    fn refused(error: sqlx::Error) -> Result<Self> {
        let constraint = error
            .as_database_error()
            .filter(|error| error.is_check_violation())
            .and_then(|error| error.constraint());
        match constraint {
            Some(STOCK) => Ok(Self::None(Verdict::SoldOut)),
            Some(LIMIT) => Ok(Self::None(Verdict::LimitReached)),
            _ => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::BuyerId;
    use sqlx::{Connection, PgConnection};
    use testbed::Postgres;
    use uuid::Uuid;

    use super::{Batches, Duties, OrderRequest, OrderStore, Verdict};
    use crate::baseline::sql;

    const ITEM: &str = "vase";

    fn order(id: u128, buyer: &str, quantity: i64) -> OrderRequest {
        OrderRequest {
            id: Uuid::from_u128(id),
            item: ITEM.into(),
            buyer: BuyerId::new(buyer).unwrap(),
            quantity,
            expires_ms: 1_000_000 + i64::try_from(id).unwrap(),
        }
    }

    async fn store(postgres: &Postgres, duties: Duties) -> (Batches, String) {
        let name = format!("duties_{duties:?}").to_lowercase();
        let url = postgres.create_database(&name).await.unwrap();
        sql::create(&url, ITEM, duties).await.unwrap();
        (Batches::open(&url, duties).await.unwrap(), url)
    }

    fn held(expires_ms: i64) -> Verdict {
        Verdict::Held { expires_ms }
    }

    #[tokio::test]
    async fn with_the_same_duties_a_repeat_has_the_first_answer_and_a_limit_holds() {
        let postgres = Postgres::start().await.unwrap();
        let (store, url) = store(&postgres, Duties::Same).await;
        let place = async |order| store.place(order).await.unwrap();
        assert_eq!(place(order(1, "ann", 2)).await, held(1_000_001));
        let later = OrderRequest {
            expires_ms: 2_000_000,
            ..order(1, "ann", 2)
        };
        assert_eq!(place(later).await, held(1_000_001), "the first answer");
        assert_eq!(place(order(1, "ann", 3)).await, Verdict::KeyReused);
        let too_many = sql::LIMIT - 1;
        assert_eq!(
            place(order(2, "ann", too_many)).await,
            Verdict::LimitReached
        );
        // In one batch, only the one that breaks the limit is refused.
        let (ann, ben) = tokio::join!(place(order(3, "ann", too_many)), place(order(4, "ben", 1)));
        assert_eq!((ann, ben), (Verdict::LimitReached, held(1_000_004)));
        assert_eq!(sql::sold(&url, ITEM, Duties::Same).await.unwrap(), 2);
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let units = "SELECT units FROM buyers ORDER BY buyer";
        let units: Vec<i64> = sqlx::query_scalar(units)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(units, [2, 1]);
    }

    #[tokio::test]
    async fn stock_that_does_not_cover_an_order_refuses_it() {
        let postgres = Postgres::start().await.unwrap();
        for duties in [Duties::None, Duties::Same] {
            let (store, url) = store(&postgres, duties).await;
            let mut connection = PgConnection::connect(&url).await.unwrap();
            sqlx::query("UPDATE items SET available = 2")
                .execute(&mut connection)
                .await
                .unwrap();
            let orders = (1..=5).map(|id| store.place(order(id, "ann", 1)));
            let verdicts = futures::future::join_all(orders).await;
            let sold = verdicts
                .iter()
                .filter(|verdict| matches!(verdict.as_ref().unwrap(), Verdict::Held { .. }));
            assert_eq!(sold.count(), 2, "{duties:?}");
            assert!(
                verdicts
                    .iter()
                    .all(|verdict| *verdict.as_ref().unwrap() != Verdict::LimitReached)
            );
        }
    }
}
