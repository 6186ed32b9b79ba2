//! The stock is split into segments. An order is retried, and finds a unit in a segment that was
//! empty before.

pub(crate) mod order_service;

use std::time::Duration;

use anyhow::{Context, Result};
use client::NewItem;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use testbed::Redis;

use self::order_service::{ORDERS, Refusals, TAKEN, Task, answer, available};
use crate::{
    actor::{Actor, Role},
    case::Case,
    engine::{Engine, Instance, Outcome},
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::{Doing, Event},
};

/// Time until Bob returns his unit, and from there until the client retries; its time-out of 15 s
/// is the sum.
const RETURN_DELAY: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Time from the retry until the first service continues.
const RESUME_DELAY: Duration = Duration::from_secs(3);
/// Time for which a segment records a refusal, in the variant that expires it.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(8);
const SEGMENTS: usize = 2;
/// Number of units: one in each segment.
const STOCK: u64 = 2;
const ORDER: &str = "anns-order";

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("retry-double-take", include_str!("retry_double_take.toml"))
        .faulty("refusals not recorded", |env| {
            Box::pin(run(env, Refusals::NotRecorded, false))
        })
        .does_not_help("order lookup first", |env| {
            Box::pin(run(env, Refusals::NotRecorded, true))
        })
        .does_not_help("refusals recorded for 8 s", |env| {
            Box::pin(run(
                env,
                Refusals::RecordedForMs(env.pace.real_ms(REFUSAL_LIFETIME)),
                false,
            ))
        })
        .holds("recorded decisions", |env| {
            Box::pin(run(env, Refusals::Recorded, false))
        })
        .holds("the engine", |env| Box::pin(run_engine(env)))
}

async fn run(env: &TestEnv, refusals: Refusals, lookup_first: bool) -> Result<Measurements> {
    let redis = env.redis().await?;
    let task = Task {
        redis_url: redis.url(),
        order: ORDER.into(),
        segments: SEGMENTS,
        refusals,
        lookup_first,
    };
    run_services(env, &redis, &task).await
}

async fn run_services(env: &TestEnv, redis: &Redis, task: &Task) -> Result<Measurements> {
    let mut connection = env.connect(redis).await?;
    // Bob has the unit of segment 1.
    let () = connection
        .mset(&[(available(1), 0), (available(2), 1)])
        .await?;
    env.timeline.stock(1);
    let ann = env.timeline.lane("Ann");
    let waiting = ann.is(Doing::Waiting, "waits for an answer");
    let mut first = Actor::start(env, "order service 1", Role::SegmentedOrderService, task).await?;
    first.until(TAKEN).await?;
    let stopped = first.pause().await?;
    note_stock(env, &mut connection).await?;
    env.pace.sleep(RETURN_DELAY).await;

    let () = connection.incr(available(1), 1).await?;
    env.timeline
        .lane("Bob")
        .notes(Event::Note, "returns his unit to segment 1");
    note_stock(env, &mut connection).await?;
    env.pace.sleep(RETRY_DELAY).await;
    drop(waiting);
    ann.notes(Event::Note, "retries");
    let mut second =
        Actor::start(env, "order service 2", Role::SegmentedOrderService, task).await?;
    let answer: Option<usize> = second.finish().await?;
    answer.context("expected the retry to get a unit")?;
    note_stock(env, &mut connection).await?;
    env.pace.sleep(RESUME_DELAY).await;
    first.resume(stopped).await?;
    let _: Option<usize> = first.finish().await?;
    note_stock(env, &mut connection).await?;
    count(env, &mut connection).await
}

async fn left(redis: &mut MultiplexedConnection) -> Result<u64> {
    let left: Vec<u64> = redis.mget(&[available(1), available(2)]).await?;
    Ok(left.iter().sum())
}

async fn note_stock(env: &TestEnv, redis: &mut MultiplexedConnection) -> Result<()> {
    env.timeline.stock(i64::try_from(left(redis).await?)?);
    Ok(())
}

async fn count(env: &TestEnv, redis: &mut MultiplexedConnection) -> Result<Measurements> {
    let answers: Vec<Option<String>> = redis.mget(&[answer(1, ORDER), answer(2, ORDER)]).await?;
    let taken = answers
        .iter()
        .filter(|answer| answer.as_deref() == Some("taken"))
        .count() as u64;
    let orders: u64 = redis.hlen(ORDERS).await?;
    Ok(measurements(env, orders, taken, left(redis).await?))
}

/// Compares the units that were ordered with those that were taken and those that are left.
fn measurements(env: &TestEnv, ordered: u64, taken: u64, left: u64) -> Measurements {
    if taken > ordered {
        env.timeline
            .lane("Ann")
            .notes(Event::Harm, "has two units for one order");
    }
    let stranded = STOCK.saturating_sub(ordered + left);
    Measurements::new()
        .stuck(env.timeline.longest(Doing::Waiting))
        .judge(Measure::DoubleTaken, taken.saturating_sub(ordered), 0)
        .judge_sale(STOCK, ordered, stranded)
}

/// Starts two order services and a recorder on the same servers.
async fn start_engines(env: &TestEnv, redis: &Redis) -> Result<[Engine; 3]> {
    let database_url = env.database().await?;
    let instance = |name, roles| {
        let instance = Instance {
            name,
            redis_url: redis.url(),
            database_url: database_url.clone(),
            roles,
            settings: Vec::new(),
        };
        Engine::start_instance(env, instance)
    };
    Ok([
        instance("order-service-1", "order").await?,
        instance("order-service-2", "order").await?,
        instance("recorder", "recorder").await?,
    ])
}

/// Runs the scenario with the engine. The recorder is killed so that the first attempt stops as in
/// the scenario: it has its unit, and the order is not recorded.
async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    let redis = env.redis().await?;
    let [first, second, mut recorder] = start_engines(env, &redis).await?;
    let timeline = &env.timeline;
    let item = first
        .offer(&NewItem {
            segments: Some(u16::try_from(SEGMENTS)?),
            ..NewItem::new("tickets", STOCK)
        })
        .await?;

    // Ann's first order empties her home segment, where her second one starts as well.
    let Outcome::Placed(returned) = first.client.order(&item, "ann", "one-for-bob").await? else {
        anyhow::bail!("expected Ann's first order to be placed")
    };
    second
        .wait_for_audit(&item, |audit| audit.held == 1 && audit.in_flight == 0)
        .await?;
    timeline.stock(1);
    let (ann, service) = (timeline.lane("Ann"), timeline.lane("order service 1"));
    let down = recorder.kill(&timeline.lane("recorder")).await?;
    let waiting = ann.is(Doing::Waiting, "waits for an answer");
    let attempt = {
        let (client, item) = (first.client.clone(), item.clone());
        tokio::spawn(async move { client.order(&item, "ann", ORDER).await })
    };
    second
        .wait_for_audit(&item, |audit| audit.in_flight == 1)
        .await?;
    service.notes(Event::Write, "has a unit that is not in the ledger yet");
    let stopped = first.pause(&service).await?;
    timeline.stock(0);
    env.pace.sleep(RETURN_DELAY).await;

    second.client.cancel(&returned).await?;
    second
        .wait_for_audit(&item, |audit| audit.available == 1)
        .await?;
    timeline
        .lane("Bob")
        .notes(Event::Note, "returns his unit to Ann's home segment");
    timeline.stock(1);
    env.pace.sleep(RETRY_DELAY).await;
    attempt.abort();
    drop(waiting);
    ann.notes(Event::Note, "retries");
    recorder.restart().await?;
    drop(down);
    while second.client.order(&item, "ann", ORDER).await? == Outcome::Unknown {}
    timeline
        .lane("order service 2")
        .notes(Event::Sale, "returns the order of the first attempt");
    first.resume(&service, stopped).await?;
    let audit = second
        .wait_for_audit(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
        .await?;
    timeline.stock(i64::try_from(audit.available)?);
    // One order was placed and not cancelled. A second unit taken for it would be drift that the
    // ledger cannot explain.
    Ok(measurements(
        env,
        1,
        audit.promised() + audit.drift,
        audit.available,
    ))
}
