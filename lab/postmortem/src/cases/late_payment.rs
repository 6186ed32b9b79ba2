//! A payment arrives after its hold has ended and the unit is sold to another buyer.

mod sql_shop;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::NewItem;
use reqwest::Client;
use testbed::{Proxy, Redis, Traffic};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use self::sql_shop::{Paid, SqlShop};
use crate::{
    case::Case,
    engine::{Engine, EngineClient},
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// Time for which a unit is held for a buyer, in scenario time.
const HOLD: Duration = Duration::from_secs(20);
/// Interval at which the shop expires holds.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two events after the holds.
const STEP_INTERVAL: Duration = Duration::from_secs(3);
/// Real time in which the holds must end.
const HOLD_END_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("late-payment", include_str!("late_payment.toml"))
        .knobs(&[Knob::Stock])
        .faulty("paid if still held", |env| {
            Box::pin(run_sql(env, Paid::IfHeld))
        })
        .does_not_help("paid is paid", |env| Box::pin(run_sql(env, Paid::Anyway)))
        .holds("refund due", |env| Box::pin(run_sql(env, Paid::OrRefund)))
        .holds("reacquire, or refund due", |env| {
            Box::pin(run_sql(env, Paid::OrReacquireOrRefund))
        })
        .holds("the engine", |env| Box::pin(run_engine(env)))
}

fn stock(env: &TestEnv) -> u64 {
    env.what_if.stock.unwrap_or(2).max(2)
}

async fn run_sql(env: &TestEnv, paid: Paid) -> Result<Measurements> {
    let shop = Shop::open(env, stock(env), paid).await?;
    run(env, &shop, stock(env)).await
}

async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    let shop = Shop::open_engine(env, stock(env)).await?;
    run(env, &shop, stock(env)).await
}

/// Implementation of the shop.
enum Shop {
    Sql(SqlShop),
    Engine {
        engine: Box<Engine>,
        item: String,
        _redis: Box<Redis>,
    },
}

impl Shop {
    async fn open(env: &TestEnv, stock: u64, paid: Paid) -> Result<Self> {
        let (hold, expiry_interval) = (env.pace.real(HOLD), env.pace.real(EXPIRY_INTERVAL));
        Ok(Self::Sql(
            SqlShop::open(&env.database().await?, stock, hold, expiry_interval, paid).await?,
        ))
    }

    async fn open_engine(env: &TestEnv, stock: u64) -> Result<Self> {
        let redis = env.redis().await?;
        let engine = Engine::start(env, &redis).await?;
        // The engine counts whole seconds.
        let hold = env.pace.real(HOLD);
        let hold_seconds = hold.as_secs() + u64::from(hold.subsec_nanos() > 0);
        let item = engine
            .offer(&NewItem {
                hold_seconds: Some(u32::try_from(hold_seconds)?),
                ..NewItem::new("tables", stock)
            })
            .await?;
        Ok(Self::Engine {
            engine: Box::new(engine),
            item,
            _redis: Box::new(redis),
        })
    }

    fn port(&self) -> Result<u16> {
        match self {
            Self::Sql(shop) => Ok(shop.port),
            Self::Engine { engine, .. } => engine.client.port(),
        }
    }

    /// Holds a unit, and returns the order.
    async fn hold(&self, buyer: &str) -> Result<String> {
        match self {
            Self::Sql(shop) => {
                ensure!(shop.hold(buyer).await?, "no unit is free for {buyer}");
                Ok(buyer.to_owned())
            }
            Self::Engine { engine, item, .. } => {
                let order = engine
                    .client
                    .order_until_known(item, buyer, "a-table")
                    .await?;
                order.with_context(|| format!("no unit is free for {buyer}"))
            }
        }
    }

    /// Sends the provider's message to this port.
    fn report_payment(
        &self,
        port: u16,
        order: &str,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let (order, url) = (order.to_owned(), format!("http://127.0.0.1:{port}"));
        let is_signed = matches!(self, Self::Engine { .. });
        async move {
            if is_signed {
                EngineClient::at(url)?
                    .pay(&order, &format!("payment-of-{order}"))
                    .await?;
            } else {
                Client::new()
                    .post(format!("{url}/orders/{order}/payment"))
                    .send()
                    .await?
                    .error_for_status()?;
            }
            Ok(())
        }
    }

    async fn state(&self, order: &str) -> Result<String> {
        match self {
            Self::Sql(shop) => shop.state(order).await,
            Self::Engine { engine, .. } => Ok(engine.client.state(order).await?.to_owned()),
        }
    }

    async fn available(&self) -> Result<u64> {
        match self {
            Self::Sql(shop) => shop.available().await,
            Self::Engine { engine, item, .. } => Ok(engine.audit(item).await?.available),
        }
    }

    /// Waits until all units are free again.
    async fn wait_for_expiry(&self, stock: u64) -> Result<()> {
        let deadline = Instant::now() + HOLD_END_TIMEOUT;
        while self.available().await? < stock {
            ensure!(
                Instant::now() < deadline,
                "the holds did not end within {HOLD_END_TIMEOUT:?}"
            );
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// As many buyers as there are units pay in time. The shop receives the messages after the holds
/// have ended and all units but one are sold again.
async fn run(env: &TestEnv, shop: &Shop, stock: u64) -> Result<Measurements> {
    let provider = Proxy::start(shop.port()?).await?;
    let (late, others) = (
        names(&["Ann", "Bert"], "early", stock),
        names(&["Cleo"], "later", stock - 1),
    );
    let (shop_lane, provider_lane) = (
        env.timeline.lane("shop"),
        env.timeline.lane("payment provider"),
    );
    env.timeline.stock(i64::try_from(stock)?);
    let mut late_orders = Vec::new();
    for buyer in &late {
        late_orders.push(shop.hold(buyer).await?);
    }
    let held = shop_lane.is(Doing::Working, "holds the units");
    env.timeline.stock(0);
    provider_lane.notes(Event::Fault, "its messages are delayed");
    let stalled = provider_lane.is(Doing::Stalled, "messages in flight");
    provider.set(Traffic::Hold);
    let mut messages = JoinSet::new();
    for (buyer, order) in late.iter().zip(&late_orders) {
        lane(env, buyer).notes(Event::Note, "pays, and is charged");
        messages.spawn(shop.report_payment(provider.port(), order));
    }

    shop.wait_for_expiry(stock).await?;
    drop(held);
    shop_lane.notes(Event::Expired, "the holds end");
    env.timeline.stock(i64::try_from(stock)?);
    env.pace.sleep(STEP_INTERVAL).await;
    let mut orders = Vec::new();
    for buyer in &others {
        let order = shop.hold(buyer).await?;
        shop.report_payment(shop.port()?, &order).await?;
        lane(env, buyer).notes(Event::Note, "buys a unit, and pays");
        orders.push(order);
    }
    env.timeline.stock(i64::try_from(shop.available().await?)?);

    env.pace.sleep(STEP_INTERVAL).await;
    drop(stalled);
    provider_lane.notes(Event::Note, "the messages arrive");
    provider.set(Traffic::Pass);
    while let Some(message) = messages.join_next().await {
        message?.context("cannot deliver the provider's message")?;
    }
    env.pace.sleep(STEP_INTERVAL).await;
    orders.extend(late_orders);
    let buyers: Vec<_> = others.into_iter().chain(late).collect();
    count(env, shop, stock, &buyers, &orders).await
}

/// Returns the buyers of the scenario, and further ones if the stock was changed.
fn names(known: &[&str], others: &str, n: u64) -> Vec<String> {
    let known = known.iter().map(|name| (*name).to_owned());
    known
        .chain((1..).map(|n| format!("{others}-{n}")))
        .take(usize::try_from(n).unwrap_or(usize::MAX))
        .collect()
}

/// Returns the buyer's lane. Buyers beyond those of the scenario share one, because hundreds of
/// lanes would be unreadable.
fn lane(env: &TestEnv, buyer: &str) -> Lane {
    env.timeline.lane(if buyer.contains('-') {
        "other buyers"
    } else {
        buyer
    })
}

/// Counts the orders. Every buyer was charged, so each must have a unit or a refund due.
async fn count(
    env: &TestEnv,
    shop: &Shop,
    stock: u64,
    buyers: &[String],
    orders: &[String],
) -> Result<Measurements> {
    let (mut sold, mut charged_without_goods) = (0, 0);
    for (buyer, order) in buyers.iter().zip(orders) {
        let lane = self::lane(env, buyer);
        match shop.state(order).await?.as_str() {
            "paid" | "confirmed" => {
                sold += 1;
                let event = if sold > stock {
                    Event::Harm
                } else {
                    Event::Sale
                };
                lane.notes(
                    event,
                    if sold > stock {
                        "has a unit that does not exist"
                    } else {
                        "has a unit"
                    },
                );
            }
            "refund_due" => lane.notes(Event::Refused, "is refunded"),
            state => {
                charged_without_goods += 1;
                lane.notes(Event::Harm, format!("charged, and the order is {state}"));
            }
        }
    }
    env.timeline.stock(i64::try_from(shop.available().await?)?);
    Ok(Measurements::new()
        .sold(stock, sold)
        .judge(Measure::ChargedInVain, charged_without_goods, 0)
        .judge_oversold())
}
