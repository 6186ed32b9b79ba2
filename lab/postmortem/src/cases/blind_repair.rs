//! A reconciler sets the counter in Redis to the value in SQL while orders are in flight to SQL.

pub(crate) mod recorder;
mod shop;

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use client::NewItem;
use redis::AsyncCommands;
use sqlx::postgres::PgPoolOptions;

use self::{
    recorder::{BATCH_READ, IDLE, Task},
    shop::{LEFT, Repair, SCHEMA, Shop},
};
use crate::{
    actor::{Actor, Role},
    case::Case,
    engine::{Engine, Instance, Outcome},
    measurements::Measurements,
    point::Point,
    test_env::TestEnv,
    timeline::Event,
    what_if::Knob,
};

/// Percentage of the stock that is sold and recorded first; then the percentage that is sold and in
/// flight to SQL.
const RECORDED_PERCENT: u64 = 60;
const IN_FLIGHT_PERCENT: u64 = 10;
/// Number of orders that arrive between comparison and repair.
const CONCURRENT_ORDERS: u64 = 2;
/// Number of units that are really lost.
const LOST_UNITS: u64 = 3;
/// Time between two events of the schedule, in scenario time.
const STEP_INTERVAL: Duration = Duration::from_secs(2);
/// Delay before the reconciler compares again, in scenario time.
const SECOND_LOOK_DELAY: Duration = Duration::from_secs(5);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("blind-repair", include_str!("blind_repair.toml"))
        .knobs(&[Knob::Stock])
        .faulty("SET from SQL", |env| {
            Box::pin(run_shop(env, Repair::Overwrite))
        })
        .does_not_help("same difference twice", |env| {
            Box::pin(run_shop(
                env,
                Repair::OverwriteAfter(env.pace.real(SECOND_LOOK_DELAY)),
            ))
        })
        .does_not_help("only with an empty queue", |env| {
            Box::pin(run_shop(env, Repair::OverwriteWhenIdle))
        })
        .holds("checkpoint invariant", |env| {
            Box::pin(run_shop(env, Repair::Invariant))
        })
        .holds("the engine", |env| Box::pin(run_engine(env)))
}

/// Returns a stock from which recorded, lost and concurrent sales leave some units.
fn stock(env: &TestEnv) -> u64 {
    env.what_if.stock.unwrap_or(100).max(20)
}

async fn run_shop(env: &TestEnv, repair: Repair) -> Result<Measurements> {
    let (redis, database_url, stock) = (env.redis().await?, env.database().await?, stock(env));
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect(&database_url)
        .await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    sqlx::query("INSERT INTO items VALUES ($1, '0-0')")
        .bind(i64::try_from(stock)?)
        .execute(&pool)
        .await?;
    let outbox = repair == Repair::Invariant;
    let shop = Shop {
        redis: env.connect(&redis).await?,
        pool,
        outbox,
    };
    let () = shop.redis.clone().set(LEFT, stock).await?;
    let mut sale = Sale {
        env,
        shop,
        sold: 0,
        stock,
    };
    let task = Task {
        redis_url: redis.url(),
        database_url,
        outbox,
    };
    let mut recorder = Actor::start(env, "recorder", Role::Recorder, &task).await?;
    recorder.until(IDLE).await?;
    sale.note_left().await?;

    sale.sell(stock * RECORDED_PERCENT / 100).await?;
    recorder.go().await?;
    recorder.until(IDLE).await?;
    env.pace.sleep(STEP_INTERVAL).await;
    env.timeline.lane("operator").notes(
        Event::Fault,
        format!("subtracts {LOST_UNITS} from the counter"),
    );
    let () = sale.shop.redis.clone().decr(LEFT, LOST_UNITS).await?;
    sale.note_left().await?;
    env.pace.sleep(STEP_INTERVAL).await;
    sale.sell(stock * IN_FLIGHT_PERCENT / 100).await?;
    recorder.until(BATCH_READ).await?;
    let stopped = recorder.pause().await?;
    env.pace.sleep(STEP_INTERVAL).await;

    sale.reconcile(repair).await?;
    env.pace.sleep(STEP_INTERVAL).await;
    recorder.resume(stopped).await?;
    sale.sell(u64::MAX).await?;
    recorder.until(IDLE).await?;
    recorder.go().await?;
    recorder.until(IDLE).await?;
    sale.count().await
}

/// A running sale.
struct Sale<'a> {
    env: &'a TestEnv,
    shop: Shop,
    sold: u64,
    stock: u64,
}

impl Sale<'_> {
    /// Sells this number of units, or all that are left.
    async fn sell(&mut self, units: u64) -> Result<()> {
        let lane = self.env.timeline.lane("buyers");
        for _ in 0..units {
            if !self.shop.buy(&format!("order-{}", self.sold)).await? {
                lane.notes(Event::Refused, "sold out");
                break;
            }
            self.sold += 1;
            let event = if self.sold > self.stock {
                Event::Harm
            } else {
                Event::Sale
            };
            lane.notes(event, format!("unit {} of {}", self.sold, self.stock));
        }
        self.note_left().await
    }

    async fn reconcile(&mut self, repair: Repair) -> Result<()> {
        let (lane, compared) = (
            self.env.timeline.lane("reconciler"),
            Arc::new(Point::closed()),
        );
        let mut reconciling = {
            let (shop, lane, compared) = (self.shop.clone(), lane.clone(), Arc::clone(&compared));
            tokio::spawn(async move { shop.reconcile(repair, &lane, &compared).await })
        };
        tokio::select! {
            () = compared.reached_by(1) => {}
            // The reconciler has found nothing to repair.
            done = &mut reconciling => return done?,
        }
        self.sell(CONCURRENT_ORDERS).await?;
        compared.open();
        reconciling.await??;
        self.note_left().await
    }

    async fn note_left(&self) -> Result<()> {
        self.env.timeline.stock(self.shop.left().await?);
        Ok(())
    }

    /// Counts the orders. At this point the last buyer was refused.
    async fn count(&self) -> Result<Measurements> {
        let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders")
            .fetch_one(&self.shop.pool)
            .await?;
        ensure!(
            u64::try_from(orders)? == self.sold,
            "{} orders were sold, {orders} are in SQL",
            self.sold
        );
        Ok(measurements(self.stock, self.sold))
    }
}

fn measurements(stock: u64, sold: u64) -> Measurements {
    Measurements::new().judge_sale(stock, sold, stock.saturating_sub(sold))
}

async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    let (redis, database_url, stock) = (env.redis().await?, env.database().await?, stock(env));
    let instance = |name, roles| {
        let (redis_url, database_url) = (redis.url(), database_url.clone());
        Engine::start_instance(
            env,
            Instance {
                name,
                redis_url,
                database_url,
                roles,
                settings: Vec::new(),
            },
        )
    };
    let shop = instance("shop", "order").await?;
    let mut recorder = instance("recorder", "recorder").await?;
    let item = shop.offer(&NewItem::new("phones", stock)).await?;
    let (lane, mut sold) = (env.timeline.lane("buyers"), 0);
    env.timeline.stock(i64::try_from(stock)?);
    let mut sell = async |units: u64| {
        for n in 0..units {
            match shop
                .client
                .order_soon(&item, &format!("buyer-{sold}"), "a-phone")
                .await?
            {
                Outcome::Placed(_) => {
                    sold += 1;
                    lane.notes(Event::Sale, format!("unit {sold} of {stock}"));
                }
                Outcome::Refused => break,
                Outcome::Unknown => bail!("order {n} has an unknown outcome"),
            }
        }
        let left = shop.audit(&item).await?.available;
        env.timeline.stock(i64::try_from(left)?);
        Ok(sold)
    };
    sell(stock * RECORDED_PERCENT / 100).await?;
    shop.wait_for_audit(&item, |audit| audit.in_flight == 0)
        .await?;
    let down = recorder.kill(&env.timeline.lane("recorder")).await?;
    let in_flight = stock * IN_FLIGHT_PERCENT / 100;
    sell(in_flight).await?;
    ensure!(
        shop.audit(&item).await?.in_flight == in_flight,
        "expected {in_flight} orders in flight"
    );
    let output = shop.reconcile(&item).await?;
    env.timeline.lane("reconciler").notes(
        Event::Note,
        format!("stockade reconcile: {}", output.trim()),
    );
    recorder.restart().await?;
    drop(down);
    let sold = sell(stock).await?;
    let audit = shop
        .wait_for_audit(&item, |audit| audit.in_flight == 0)
        .await?;
    ensure!(
        audit.promised() == sold,
        "{sold} units were sold, the ledger has {}",
        audit.promised()
    );
    Ok(measurements(stock, sold))
}
