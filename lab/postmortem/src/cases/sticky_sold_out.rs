//! Each service caches that the item is sold out, and nothing invalidates the cache when units
//! return.

mod order_service;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use client::NewItem;
use redis::AsyncCommands;
use testbed::{Proxy, Redis, Traffic};

use self::order_service::{Clearing, LEFT, OrderService};
use crate::{
    case::Case,
    engine::{ALL_ROLES, Engine, EngineClient, Instance},
    measurements::Measurements,
    point::Point,
    test_env::TestEnv,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// Number of returned units; two buyers arrive at each of three services for them.
const RETURNED: u64 = 6;
const SERVICES: usize = 3;
/// Number of attempts of a later buyer, and the time between them in scenario time.
const ATTEMPTS_MAX: usize = 10;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Lifetime of a flag that expires.
const FLAG_LIFETIME: Duration = Duration::from_secs(2);

/// Time between two events of the schedule.
const STEP_INTERVAL: Duration = Duration::from_secs(2);
const KEY: &str = "a-ticket";

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("sticky-sold-out", include_str!("sticky_sold_out.toml"))
        .knobs(&[Knob::Stock])
        .faulty("permanent flag", |env| {
            Box::pin(run_services(env, Clearing::default()))
        })
        .does_not_help("own return clears the flag", |env| {
            Box::pin(run_services(
                env,
                Clearing {
                    by_own_return: true,
                    ..Clearing::default()
                },
            ))
        })
        .does_not_help("message clears the flag", |env| {
            Box::pin(run_services(
                env,
                Clearing {
                    by_message: true,
                    ..Clearing::default()
                },
            ))
        })
        .does_not_help("flag with an epoch", |env| {
            Box::pin(run_services(env, BY_EPOCH))
        })
        .holds("epoch and lifetime", |env| {
            Box::pin(run_services(
                env,
                Clearing {
                    after: Some(env.pace.real(FLAG_LIFETIME)),
                    ..BY_EPOCH
                },
            ))
        })
        .holds("the engine", |env| Box::pin(run_engine(env)))
}

const BY_EPOCH: Clearing = Clearing {
    by_own_return: false,
    by_message: true,
    by_epoch: true,
    after: None,
};

/// Returns a stock of at least the number of returned units.
fn stock(env: &TestEnv) -> u64 {
    env.what_if.stock.unwrap_or(20).max(RETURNED)
}

async fn run_services(env: &TestEnv, clearing: Clearing) -> Result<Measurements> {
    let (redis, stock) = (env.redis().await?, stock(env));
    let mut connection = env.connect(&redis).await?;
    let () = connection.set(LEFT, stock).await?;
    let messages = Proxy::start(redis.port()).await?;
    let services = start_services(env, &redis, &messages, clearing).await?;
    let (first, second, third) = (&services[0], &services[1], &services[2]);
    env.timeline.stock(i64::try_from(stock)?);
    let mut sold = 0;
    while first.buy(None).await? {
        sold += 1;
    }
    third.buy(None).await?;
    env.timeline.stock(0);
    let read_empty = Arc::new(Point::closed());
    let slow = {
        let (second, read_empty) = (Arc::clone(second), Arc::clone(&read_empty));
        tokio::spawn(async move { second.buy(Some(&read_empty)).await })
    };
    read_empty.reached_by(1).await;
    second.lane.notes(Event::Note, "has read an empty stock");
    env.pace.sleep(STEP_INTERVAL).await;

    third.lane.notes(Event::Fault, "receives no messages");
    messages.set(Traffic::Reset);
    env.pace.sleep(STEP_INTERVAL).await;
    first.return_units(RETURNED).await?;
    env.timeline.stock(i64::try_from(RETURNED)?);
    first.wait_for_message(1).await;
    second.wait_for_message(1).await;
    env.pace.sleep(STEP_INTERVAL).await;
    messages.set(Traffic::Pass);
    third.wait_for_subscription(2).await;
    third.lane.notes(Event::Note, "reconnected");
    read_empty.open();
    slow.await??;
    env.pace.sleep(STEP_INTERVAL).await;

    let sellers: Vec<_> = services
        .iter()
        .map(|service| (Seller::Service(Arc::clone(service)), service.lane.clone()))
        .collect();
    let sold_later = sell_later(env, &sellers).await?;
    let left: u64 = connection.get(LEFT).await?;
    Ok(count(env, stock, sold - RETURNED + sold_later, left))
}

async fn start_services(
    env: &TestEnv,
    redis: &Redis,
    messages: &Proxy,
    clearing: Clearing,
) -> Result<Vec<Arc<OrderService>>> {
    let mut services = Vec::new();
    for n in 1..=SERVICES {
        let lane = env.timeline.lane(format!("order service {n}"));
        let port = if n == SERVICES {
            messages.port()
        } else {
            redis.port()
        };
        let url = format!("redis://127.0.0.1:{port}");
        services.push(Arc::new(
            OrderService::start(lane, env.connect(redis).await?, url, clearing).await?,
        ));
    }
    Ok(services)
}

/// Where the later buyers buy.
enum Seller {
    Service(Arc<OrderService>),
    Engine(EngineClient, String),
}

impl Seller {
    async fn sell_to(&self, buyer: &str) -> Result<bool> {
        match self {
            Self::Service(service) => service.buy(None).await,
            Self::Engine(client, item) => {
                Ok(client.order_until_known(item, buyer, KEY).await?.is_some())
            }
        }
    }
}

/// Serves as many later buyers as units were returned, distributed over the sellers. A refused
/// buyer retries. Returns how many got a unit.
async fn sell_later(env: &TestEnv, sellers: &[(Seller, Lane)]) -> Result<u64> {
    let mut waiting: Vec<_> = (0..usize::try_from(RETURNED)?).collect();
    let mut retrying = Vec::new();
    for attempt in 0..ATTEMPTS_MAX {
        let mut refused = Vec::new();
        for buyer in waiting {
            let (seller, lane) = &sellers[buyer % sellers.len()];
            if !seller.sell_to(&format!("later-{buyer}")).await? {
                if attempt == 0 {
                    lane.notes(Event::Refused, "refuses as sold out");
                    retrying.push(lane.is(Doing::Waiting, "a buyer retries"));
                }
                refused.push(buyer);
            }
        }
        waiting = refused;
        if waiting.is_empty() {
            break;
        }
        env.pace.sleep(RETRY_INTERVAL).await;
    }
    drop(retrying);
    for buyer in &waiting {
        sellers[buyer % sellers.len()]
            .1
            .notes(Event::Harm, "a unit is free, and a buyer is refused");
    }
    Ok(RETURNED - waiting.len() as u64)
}

fn count(env: &TestEnv, stock: u64, sold: u64, left: u64) -> Measurements {
    env.timeline.stock(i64::try_from(left).unwrap_or(i64::MAX));
    // A buyer without a unit has tried ten times.
    Measurements::new().judge_sale(stock, sold, left)
}

/// Starts an instance with all roles, and one whose connections to Redis go through the proxy.
async fn start_engines(env: &TestEnv, redis: &Redis, proxy: &Proxy) -> Result<[Engine; 2]> {
    let database_url = env.database().await?;
    let lifetime_ms = env.pace.real_ms(FLAG_LIFETIME).to_string();
    let instance = |name, redis_url, roles| {
        let instance = Instance {
            name,
            redis_url,
            database_url: database_url.clone(),
            roles,
            settings: vec![("STOCKADE_SOLD_OUT_CACHE_MS", lifetime_ms.clone())],
        };
        Engine::start_instance(env, instance)
    };
    let through_proxy = format!("redis://127.0.0.1:{}", proxy.port());
    Ok([
        instance("order-service-1", redis.url(), ALL_ROLES).await?,
        instance("order-service-2", through_proxy, "order").await?,
    ])
}

async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    let (redis, stock) = (env.redis().await?, stock(env));
    let proxy = Proxy::start(redis.port()).await?;
    let [first, second] = start_engines(env, &redis, &proxy).await?;
    let lanes = [
        env.timeline.lane("order service 1"),
        env.timeline.lane("order service 2"),
    ];
    let item = first.offer(&NewItem::new("concert", stock)).await?;
    env.timeline.stock(i64::try_from(stock)?);
    let mut orders = Vec::new();
    while let Some(order) = first
        .client
        .order_until_known(&item, &format!("buyer-{}", orders.len()), KEY)
        .await?
    {
        orders.push(order);
    }
    let refused = second
        .client
        .order_until_known(&item, "too-late", KEY)
        .await?;
    anyhow::ensure!(
        refused.is_none(),
        "expected the second instance to refuse: the item is sold out"
    );
    lanes
        .iter()
        .for_each(|lane| lane.notes(Event::Refused, "caches: sold out"));
    env.timeline.stock(0);

    lanes[1].notes(Event::Fault, "disconnected from Redis");
    proxy.set(Traffic::Reset);
    env.pace.sleep(STEP_INTERVAL).await;
    for order in orders.iter().take(usize::try_from(RETURNED)?) {
        first.client.cancel(order).await?;
    }
    first
        .wait_for_audit(&item, |audit| audit.available == RETURNED)
        .await?;
    lanes[0].notes(Event::Write, format!("returns {RETURNED} units"));
    env.timeline.stock(i64::try_from(RETURNED)?);
    env.pace.sleep(STEP_INTERVAL).await;
    proxy.set(Traffic::Pass);
    lanes[1].notes(Event::Note, "reconnected");

    let seller = |engine: &Engine| Seller::Engine(engine.client.clone(), item.clone());
    let [first_lane, second_lane] = lanes;
    sell_later(
        env,
        &[(seller(&first), first_lane), (seller(&second), second_lane)],
    )
    .await?;
    let audit = first
        .wait_for_audit(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
        .await?;
    Ok(count(env, stock, audit.promised(), audit.available))
}
