//! A row lock that is held over a slow call: it keeps a connection, whoever wants the row keeps another, and soon nobody has one.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use async_trait::async_trait;
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
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

const CONNECTIONS: u32 = 5;
/// What people try first.
const MORE_CONNECTIONS: u32 = 20;
/// How long a request waits for a connection, in the story.
const WAITS_FOR_A_CONNECTION: Duration = Duration::from_secs(20);
/// When the visitors come, if the pool is not full earlier.
const VISITORS_AFTER: Duration = Duration::from_secs(4);
const VISITORS: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(5);

const SCHEMA: &str = "CREATE TABLE items (id int PRIMARY KEY, title text NOT NULL, stock bigint NOT NULL CHECK (stock >= 0));
    CREATE TABLE orders (buyer text PRIMARY KEY);
    INSERT INTO items VALUES (2, 'something else', 1)";

/// The case.
pub struct DbLockPool;

const STORY: &str = "FOR UPDATE over the call";
const LARGER: &str = "a larger pool";
const NOWAIT: &str = "FOR UPDATE NOWAIT";
const SHORT: &str = "short transaction";

#[async_trait]
impl Case for DbLockPool {
    fn name(&self) -> &'static str {
        "db-lock-pool"
    }

    fn story(&self) -> Story {
        Story {
            title: "One slow call, and the whole site is down",
            told: "The row of the hot item is locked with SELECT ... FOR UPDATE, the card is charged, and then the stock is decremented: nothing \
                   is oversold. One day the payment service is slow. The first buyer waits for it with the row, the next ones wait for the row, \
                   each with a connection of the pool, and when all are taken no page that needs the database can be shown, whatever it shows.",
            sources: &[
                (
                    "Spring @Transactional causing database connections to remain open from HTTP calls",
                    "http://blog.adelhelal.net/2025",
                ),
                (
                    "HikariCP: About pool sizing",
                    "https://github.com/brettwooldridge/HikariCP/wiki/About-Pool-Sizing",
                ),
                (
                    "PostgreSQL: Explicit locking",
                    "https://www.postgresql.org/docs/current/explicit-locking.html",
                ),
            ],
            schedule: "The payment service does not answer for 40 s. Twenty-five buyers want the hot item. When all connections are in use (or \
                       after 4 s) five visitors open the page of another item. A request waits 20 s for a connection. Then the payment \
                       service answers.",
            instead: "Never wait for anybody else inside a transaction. Do the slow part before, and let one statement check and decrement: \
                      UPDATE ... SET stock = stock - 1 WHERE id = ? AND stock > 0.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "BEGIN; SELECT ... FOR UPDATE; charge the card; UPDATE; COMMIT; a pool of 5 connections",
                "everybody who waits has a connection, those who wait for the row included",
            ),
            Way::does_not_help(
                LARGER,
                "the same with a pool of 20 connections",
                "it takes a little longer until all of them wait",
            ),
            Way::does_not_help(
                NOWAIT,
                "whoever finds the row locked gives up at once",
                "the site is up again, and buyers are sent away from an item that is there",
            ),
            Way::holds(
                SHORT,
                "the card is charged first, without a connection; then one statement checks and decrements",
                "nobody has a connection while waiting for somebody else",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Buyers, Knob::Stock, Knob::Stall]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let (selling, connections) = match way {
            STORY => (Selling::LockAndCharge, CONNECTIONS),
            LARGER => (Selling::LockAndCharge, MORE_CONNECTIONS),
            NOWAIT => (Selling::LockOrGiveUp, CONNECTIONS),
            SHORT => (Selling::ChargeAndDecrement, CONNECTIONS),
            _ => bail!("no such way: {way}"),
        };
        play(stage, selling, connections).await
    }
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
    /// Whether there was one.
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

    /// Whoever is charged and finds nothing left would get the money back: `late-payment` tells of that.
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

    /// A page that has nothing to do with all that.
    async fn show(&self) -> Result<String> {
        Ok(sqlx::query_scalar("SELECT title FROM items WHERE id = 2")
            .fetch_one(&self.pool)
            .await?)
    }

    fn is_exhausted(&self) -> bool {
        self.pool.size() == self.pool.options().get_max_connections() && self.pool.num_idle() == 0
    }

    async fn becomes_exhausted(&self) {
        while !self.is_exhausted() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Draws when all connections are in use.
    async fn watch(self, lane: Lane) {
        loop {
            self.becomes_exhausted().await;
            let _in_use = lane.is(Doing::Stalled, "all in use");
            while self.is_exhausted() {
                sleep(LOOK_EVERY).await;
            }
        }
    }
}

async fn play(stage: &Stage, selling: Selling, connections: u32) -> Result<Evidence> {
    let (stock, buyers) = (
        stage.what_if.stock.unwrap_or(50),
        stage.what_if.buyers.unwrap_or(25),
    );
    let stall = stage
        .pace
        .real(stage.what_if.stall.unwrap_or(Duration::from_secs(40)));
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(stage.pace.real(WAITS_FOR_A_CONNECTION));
    let pool = pool.connect(&stage.database().await?).await?;
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
    stage.timeline.stock(i64::try_from(stock)?);

    let service = stage.timeline.lane("payment service");
    service.notes(Event::Fault, "does not answer");
    let silent = service.is(Doing::Stalled, "does not answer");
    payment.proxy.set(Traffic::Hold);
    let answers_at = Instant::now() + stall;
    let buying = requests(buyers, stage.timeline.lane("buyers"), Event::Sale, |n| {
        let shop = shop.clone();
        async move { shop.sell(selling, &format!("buyer-{n}")).await.map(drop) }
    });
    let mut watching = JoinSet::new();
    watching.spawn(shop.clone().watch(stage.timeline.lane("connections")));
    // Where nobody holds a connection for long, they never are.
    let _ = timeout(stage.pace.real(VISITORS_AFTER), shop.becomes_exhausted()).await;
    let visiting = requests(
        VISITORS,
        stage.timeline.lane("visitors of another page"),
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
    stage.timeline.stock(left);
    let evidence = Evidence::new()
        .sold(stock, u64::try_from(orders)?)
        .stuck(stage.timeline.longest(Doing::Waiting));
    Ok(evidence
        .judge(Measure::FailedRequests, failed, 0)
        .judge_oversold())
}

/// So many requests at once. Each says whether it was served.
fn requests<F>(
    many: usize,
    lane: Lane,
    served: Event,
    request: impl Fn(usize) -> F,
) -> JoinSet<bool>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut requests = JoinSet::new();
    // One line for all of them, which ends with the last.
    let waiting = Arc::new(lane.is(Doing::Waiting, "they want an answer"));
    for n in 0..many {
        let (request, lane, waiting) = (request(n), lane.clone(), Arc::clone(&waiting));
        requests.spawn(async move {
            let answer = request.await;
            drop(waiting);
            match &answer {
                Ok(()) => lane.notes(served, "is served"),
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

/// Charges cards over HTTP. The way to it can be slow.
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
