//! A row lock that is held across a slow call. It occupies a connection, each waiter for the row
//! occupies another, and soon the pool is exhausted.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use axum::{Router, routing::post};
use reqwest::Client;
use sqlx::{PgPool, postgres::PgPoolOptions};
use testbed::{Proxy, Traffic};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

const CONNECTIONS: u32 = 5;
/// Pool size that is commonly tried first as a remedy.
const MORE_CONNECTIONS: u32 = 20;
/// Time that a request waits for a connection, in scenario time.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which the visitors arrive if the pool is not exhausted earlier.
const VISITOR_DELAY: Duration = Duration::from_secs(4);
const VISITORS: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

const SCHEMA: &str = "CREATE TABLE items (id int PRIMARY KEY, title text NOT NULL, stock bigint NOT NULL CHECK (stock >= 0));
    CREATE TABLE orders (buyer text PRIMARY KEY);
    INSERT INTO items VALUES (2, 'something else', 1)";

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("db-lock-pool", include_str!("db_lock_pool.toml"))
        .knobs(&[Knob::Buyers, Knob::Stock, Knob::Stall])
        .faulty("FOR UPDATE across the call", |env| {
            Box::pin(run(env, Selling::LockAndCharge, CONNECTIONS))
        })
        .does_not_help("larger pool", |env| {
            Box::pin(run(env, Selling::LockAndCharge, MORE_CONNECTIONS))
        })
        .does_not_help("FOR UPDATE NOWAIT", |env| {
            Box::pin(run(env, Selling::LockOrGiveUp, CONNECTIONS))
        })
        .holds("short transaction", |env| {
            Box::pin(run(env, Selling::ChargeAndDecrement, CONNECTIONS))
        })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selling {
    LockAndCharge,
    LockOrGiveUp,
    ChargeAndDecrement,
}

/// The shop's side of a request.
#[derive(Clone)]
struct Shop {
    pool: PgPool,
    client: Client,
    charge_url: String,
}

impl Shop {
    /// Sells a unit, and returns whether there was one.
    async fn sell(&self, selling: Selling, buyer: &str) -> Result<bool> {
        match selling {
            Selling::LockAndCharge => {
                self.lock_and_charge("SELECT stock FROM items WHERE id = 1 FOR UPDATE", buyer)
                    .await
            }
            Selling::LockOrGiveUp => {
                self.lock_and_charge(
                    "SELECT stock FROM items WHERE id = 1 FOR UPDATE NOWAIT",
                    buyer,
                )
                .await
            }
            Selling::ChargeAndDecrement => self.charge_and_decrement(buyer).await,
        }
    }

    async fn lock_and_charge(&self, lock: &'static str, buyer: &str) -> Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let stock: i64 = sqlx::query_scalar(lock)
            .fetch_one(&mut *transaction)
            .await?;
        if stock <= 0 {
            return Ok(false);
        }
        self.charge().await?;
        sqlx::query("UPDATE items SET stock = $1 WHERE id = 1")
            .bind(stock - 1)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO orders VALUES ($1)")
            .bind(buyer)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Charges first. A buyer who is charged and finds nothing left would have to be refunded; the
    /// case `late-payment` covers that.
    async fn charge_and_decrement(&self, buyer: &str) -> Result<bool> {
        self.charge().await?;
        let mut transaction = self.pool.begin().await?;
        let taken = sqlx::query("UPDATE items SET stock = stock - 1 WHERE id = 1 AND stock > 0")
            .execute(&mut *transaction)
            .await?;
        if taken.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query("INSERT INTO orders VALUES ($1)")
            .bind(buyer)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn charge(&self) -> Result<()> {
        self.client
            .post(&self.charge_url)
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

    /// Shows a page that uses neither the hot item nor the payment service.
    async fn show(&self) -> Result<String> {
        Ok(sqlx::query_scalar("SELECT title FROM items WHERE id = 2")
            .fetch_one(&self.pool)
            .await?)
    }

    fn is_exhausted(&self) -> bool {
        self.pool.size() == self.pool.options().get_max_connections() && self.pool.num_idle() == 0
    }

    async fn wait_until_exhausted(&self) {
        while !self.is_exhausted() {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Draws the periods in which all connections are in use.
    async fn watch(self, lane: Lane) {
        loop {
            self.wait_until_exhausted().await;
            let _in_use = lane.is(Doing::Stalled, "all in use");
            while self.is_exhausted() {
                sleep(POLL_INTERVAL).await;
            }
        }
    }
}

async fn run(env: &TestEnv, selling: Selling, connections: u32) -> Result<Measurements> {
    let (stock, buyers) = (
        env.what_if.stock.unwrap_or(50),
        env.what_if.buyers.unwrap_or(25),
    );
    let stall = env
        .pace
        .real(env.what_if.stall.unwrap_or(Duration::from_secs(40)));
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(env.pace.real(ACQUIRE_TIMEOUT));
    let pool = pool.connect(&env.database().await?).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    sqlx::query("INSERT INTO items VALUES (1, 'the hot item', $1)")
        .bind(i64::try_from(stock)?)
        .execute(&pool)
        .await?;
    let payment = PaymentService::start().await?;
    let shop = Shop {
        pool,
        client: Client::new(),
        charge_url: payment.url(),
    };
    env.timeline.stock(i64::try_from(stock)?);

    let service = env.timeline.lane("payment service");
    service.notes(Event::Fault, "does not answer");
    let silent = service.is(Doing::Stalled, "does not answer");
    payment.proxy.set(Traffic::Hold);
    let answers_at = Instant::now() + stall;
    let buying = requests(buyers, env.timeline.lane("buyers"), Event::Sale, |n| {
        let shop = shop.clone();
        async move { shop.sell(selling, &format!("buyer-{n}")).await.map(drop) }
    });
    let mut watching = JoinSet::new();
    watching.spawn(shop.clone().watch(env.timeline.lane("connections")));
    // Variants that hold no connection for long never exhaust the pool.
    let _ = timeout(env.pace.real(VISITOR_DELAY), shop.wait_until_exhausted()).await;
    let visiting = requests(
        VISITORS,
        env.timeline.lane("visitors of another page"),
        Event::Write,
        |_| {
            let shop = shop.clone();
            async move { shop.show().await.map(drop) }
        },
    );
    sleep_until(answers_at).await;
    payment.proxy.set(Traffic::Pass);
    drop(silent);
    service.notes(Event::Note, "answers again");
    let failed = failed(visiting).await? + failed(buying).await?;

    let (left, orders): (i64, i64) =
        sqlx::query_as("SELECT stock, (SELECT count(*) FROM orders) FROM items WHERE id = 1")
            .fetch_one(&shop.pool)
            .await?;
    env.timeline.stock(left);
    let measurements = Measurements::new()
        .sold(stock, u64::try_from(orders)?)
        .stuck(env.timeline.longest(Doing::Waiting));
    Ok(measurements
        .judge(Measure::FailedRequests, failed, 0)
        .judge_oversold())
}

/// Sends `count` concurrent requests. Each task returns whether its request was served.
fn requests<F>(
    count: usize,
    lane: Lane,
    served: Event,
    request: impl Fn(usize) -> F,
) -> JoinSet<bool>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut requests = JoinSet::new();
    // One bar for all requests, which ends with the last.
    let waiting = Arc::new(lane.is(Doing::Waiting, "wait for an answer"));
    for n in 0..count {
        let (request, lane, waiting) = (request(n), lane.clone(), Arc::clone(&waiting));
        requests.spawn(async move {
            let answer = request.await;
            drop(waiting);
            match &answer {
                Ok(()) => lane.notes(served, "served"),
                Err(error) if is_without_connection(error) => {
                    lane.notes(Event::Harm, "500: no connection")
                }
                Err(error) => lane.notes(Event::Harm, format!("500: {error}")),
            }
            answer.is_ok()
        });
    }
    requests
}

fn is_without_connection(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(sqlx::Error::PoolTimedOut))
}

async fn failed(mut requests: JoinSet<bool>) -> Result<u64> {
    let mut failed = 0;
    while let Some(served) = requests.join_next().await {
        failed += u64::from(!served?);
    }
    Ok(failed)
}

/// Payment service over HTTP, behind a proxy that can stall it.
struct PaymentService {
    proxy: Proxy,
    _serving: JoinSet<()>,
}

impl PaymentService {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let proxy = Proxy::start(listener.local_addr()?.port()).await?;
        let router = Router::new().route("/charges", post(async || "charged"));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
        Ok(Self {
            proxy,
            _serving: serving,
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/charges", self.proxy.port())
    }
}
