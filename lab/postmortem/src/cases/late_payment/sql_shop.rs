//! The shop as it was written: orders and units in SQL, a worker that expires holds, and an
//! endpoint for the payment provider.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{net::TcpListener, task::JoinSet, time::interval};

const SCHEMA: &str = "CREATE TABLE items (id int PRIMARY KEY, available bigint NOT NULL CHECK (available >= 0));
    CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL, expires_at timestamptz NOT NULL)";

/// Reaction of the shop to the message that an order was paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paid {
    /// Held orders become paid.
    IfHeld,
    /// The order becomes paid in any state, because the money has arrived.
    Anyway,
    /// An order whose hold has expired becomes due for a refund.
    OrRefund,
    /// An order whose hold has expired gets a unit if one is free, or becomes due for a refund.
    OrReacquireOrRefund,
}

/// A running shop. Dropping it stops it.
pub(super) struct SqlShop {
    pub port: u16,
    pool: PgPool,
    hold: Duration,
    _running: JoinSet<()>,
}

impl SqlShop {
    pub async fn open(
        database_url: &str,
        stock: u64,
        hold: Duration,
        expiry_interval: Duration,
        paid: Paid,
    ) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect(database_url)
            .await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        sqlx::query("INSERT INTO items VALUES (1, $1)")
            .bind(i64::try_from(stock)?)
            .execute(&pool)
            .await?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let router = Router::new()
            .route("/orders/{order}/payment", post(payment))
            .with_state((pool.clone(), paid));
        let mut running = JoinSet::new();
        running.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
        running.spawn(end_holds(pool.clone(), expiry_interval));
        Ok(Self {
            port,
            pool,
            hold,
            _running: running,
        })
    }

    /// Holds a unit, and returns whether there was one.
    pub async fn hold(&self, order: &str) -> Result<bool> {
        let mut transaction = self.pool.begin().await?;
        if !take(&mut transaction).await? {
            return Ok(false);
        }
        sqlx::query("INSERT INTO orders VALUES ($1, 'held', now() + make_interval(secs => $2))")
            .bind(order)
            .bind(self.hold.as_secs_f64())
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    pub async fn state(&self, order: &str) -> Result<String> {
        Ok(sqlx::query_scalar("SELECT state FROM orders WHERE id = $1")
            .bind(order)
            .fetch_one(&self.pool)
            .await?)
    }

    pub async fn available(&self) -> Result<u64> {
        let available: i64 = sqlx::query_scalar("SELECT available FROM items")
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(available)?)
    }
}

async fn end_holds(pool: PgPool, every: Duration) {
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        let expired = sqlx::query(
            "WITH expired AS (UPDATE orders SET state = 'expired' WHERE state = 'held' AND expires_at <= now() RETURNING id)
             UPDATE items SET available = available + (SELECT count(*) FROM expired)",
        );
        // The next tick retries a failed update.
        let _ = expired.execute(&pool).await;
    }
}

async fn payment(
    State((pool, paid)): State<(PgPool, Paid)>,
    Path(order): Path<String>,
) -> StatusCode {
    match record_payment(&pool, paid, &order).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Records that the order was paid.
async fn record_payment(pool: &PgPool, paid: Paid, order: &str) -> Result<()> {
    let mut transaction = pool.begin().await?;
    let to_paid = match paid {
        Paid::Anyway => "UPDATE orders SET state = 'paid' WHERE id = $1",
        _ => "UPDATE orders SET state = 'paid' WHERE id = $1 AND state = 'held'",
    };
    let was_held = sqlx::query(to_paid)
        .bind(order)
        .execute(&mut *transaction)
        .await?
        .rows_affected()
        == 1;
    if !was_held && matches!(paid, Paid::OrRefund | Paid::OrReacquireOrRefund) {
        let reacquired = paid == Paid::OrReacquireOrRefund && take(&mut transaction).await?;
        let state = if reacquired { "paid" } else { "refund_due" };
        let late = sqlx::query("UPDATE orders SET state = $2 WHERE id = $1 AND state = 'expired'")
            .bind(order)
            .bind(state);
        ensure!(
            late.execute(&mut *transaction).await?.rows_affected() == 1,
            "expected the paid order to be held or expired"
        );
    }
    Ok(transaction.commit().await?)
}

async fn take(transaction: &mut sqlx::PgConnection) -> Result<bool> {
    let taken = sqlx::query("UPDATE items SET available = available - 1 WHERE available > 0")
        .execute(transaction)
        .await?;
    Ok(taken.rows_affected() == 1)
}
