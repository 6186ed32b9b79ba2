//! Retry, double take: the stock is split into segments, an order is tried again, and it finds a unit where there was none.

pub(crate) mod order_service;

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use reqwest::Client;
use serde_json::json;
use testbed::Redis;

use self::order_service::{ORDERS, Passed, TAKEN, Task, answer, available};
use crate::{
    actor::{Actor, Role},
    case::{Case, Story, Way},
    engine::{Engine, Instance, Ordered},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event},
};

/// When Bob returns his unit, in the story, and how long after that the client asks again: it waits for 15 s.
const BOB_RETURNS_AFTER: Duration = Duration::from_secs(10);
const CLIENT_ASKS_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long after that the first service goes on.
const GOES_ON_AFTER: Duration = Duration::from_secs(3);
/// How long a segment remembers that it had nothing, where it does so for a while.
const KEPT_FOR: Duration = Duration::from_secs(8);
const SEGMENTS: usize = 2;
/// One unit in each segment.
const STOCK: u64 = 2;
const ORDER: &str = "anns-order";

/// The case.
pub struct RetryDoubleTake;

const STORY: &str = "empty? next segment";
const LOOK_FIRST: &str = "look for the order first";
const KEPT_FOR_A_WHILE: &str = "\"empty\" kept for a while";
const STICKY: &str = "sticky answers";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for RetryDoubleTake {
    fn name(&self) -> &'static str {
        "retry-double-take"
    }

    fn story(&self) -> Story {
        Story {
            title: "One order, two units: a retry finds stock where there was none",
            told: "A hot item's stock is split into segments, so that one key does not carry it all: a segment that is empty passes the order on \
                   to the next. A client that hears nothing in time asks again, as it should, with the same order id. Meanwhile somebody has \
                   returned a unit to the first segment, and the retry takes it there, while the first attempt has one from the second.",
            sources: &[
                (
                    "Alibaba Cloud Developer: inventory in Redis buckets, and what time-outs do to it",
                    "https://www.besthub.dev/articles/how-to-achieve-zero-over-sell-and-under-sell-with-redis-bucketed-inventory-deduction-a1dc29c6c0cc",
                ),
                (
                    "Amazon Builders' Library: Making retries safe with idempotent APIs",
                    "https://aws.amazon.com/builders-library/making-retries-safe-with-idempotent-APIs/",
                ),
            ],
            schedule: "Segment 1 is empty, segment 2 has a unit. Order service 1 asks both for Ann, takes in segment 2, and is stopped (SIGSTOP) \
                       before it writes the order. Bob returns his unit to segment 1. Ann's client has heard nothing for 15 s and asks again, \
                       at order service 2. Then order service 1 goes on.",
            instead: "Let every segment remember what it has answered to an order, \"nothing here\" too, and repeat it for good. Then a retry \
                      walks the same way and ends in the same place, and recovery is to walk again.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "a segment remembers the orders that took there, and passes all others on when it is empty",
                "segment 1 was empty when it was asked first, and is not when it is asked again",
            ),
            Way::does_not_help(
                LOOK_FIRST,
                "the same, and a look whether the order has been written already",
                "the first attempt has its unit, and has not written its order yet",
            ),
            Way::does_not_help(
                KEPT_FOR_A_WHILE,
                "a segment remembers for 8 s that it had nothing for an order",
                "a client that waits for longer comes when it is forgotten",
            ),
            Way::holds(
                STICKY,
                "a segment repeats what it has answered to an order, for good",
                "segment 1 passes the retry on again, and segment 2 says that it has its unit",
            ),
            Way::holds(
                ENGINE,
                "Stockade: two order services and a recorder; the recorder is down and the first service stopped when the unit is taken",
                "its segments' answers are sticky, and the ledger has an order once",
            ),
        ]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let (passed, looks_first) = match way {
            STORY => (Passed::Forgotten, false),
            LOOK_FIRST => (Passed::Forgotten, true),
            KEPT_FOR_A_WHILE => (Passed::KeptForMs(stage.pace.real_ms(KEPT_FOR)), false),
            STICKY => (Passed::KeptForGood, false),
            ENGINE => return play_engine(stage).await,
            _ => anyhow::bail!("no such way: {way}"),
        };
        let redis = stage.redis().await?;
        let task = Task {
            redis_url: redis.url(),
            order: ORDER.into(),
            segments: SEGMENTS,
            passed,
            looks_first,
        };
        play_services(stage, &redis, &task).await
    }
}

async fn play_services(stage: &Stage, redis: &Redis, task: &Task) -> Result<Evidence> {
    let mut connection = stage.connect(redis).await?;
    // Bob has the unit of segment 1.
    let () = connection
        .mset(&[(available(1), 0), (available(2), 1)])
        .await?;
    stage.timeline.stock(1);
    let ann = stage.timeline.lane("Ann");
    let waiting = ann.is(Doing::Waiting, "wants one");
    let mut first =
        Actor::start(stage, "order service 1", Role::SegmentedOrderService, task).await?;
    first.until(TAKEN).await?;
    let stopped = first.pause().await?;
    note_stock(stage, &mut connection).await?;
    stage.pace.sleep(BOB_RETURNS_AFTER).await;

    let () = connection.incr(available(1), 1).await?;
    stage
        .timeline
        .lane("Bob")
        .notes(Event::Note, "returns his unit to segment 1");
    note_stock(stage, &mut connection).await?;
    stage.pace.sleep(CLIENT_ASKS_AGAIN_AFTER).await;
    drop(waiting);
    ann.notes(Event::Note, "asks again");
    let mut second =
        Actor::start(stage, "order service 2", Role::SegmentedOrderService, task).await?;
    let answer: Option<usize> = second.finish().await?;
    answer.context("the retry gets a unit")?;
    note_stock(stage, &mut connection).await?;
    stage.pace.sleep(GOES_ON_AFTER).await;
    first.resume(stopped).await?;
    let _: Option<usize> = first.finish().await?;
    note_stock(stage, &mut connection).await?;
    count(stage, &mut connection).await
}

async fn left(redis: &mut MultiplexedConnection) -> Result<u64> {
    let left: Vec<u64> = redis.mget(&[available(1), available(2)]).await?;
    Ok(left.iter().sum())
}

async fn note_stock(stage: &Stage, redis: &mut MultiplexedConnection) -> Result<()> {
    stage.timeline.stock(i64::try_from(left(redis).await?)?);
    Ok(())
}

async fn count(stage: &Stage, redis: &mut MultiplexedConnection) -> Result<Evidence> {
    let answers: Vec<Option<String>> = redis.mget(&[answer(1, ORDER), answer(2, ORDER)]).await?;
    let taken = answers
        .iter()
        .filter(|answer| answer.as_deref() == Some("taken"))
        .count() as u64;
    let orders: u64 = redis.hlen(ORDERS).await?;
    Ok(evidence(stage, orders, taken, left(redis).await?))
}

/// What the orders are for, what was taken for them, and what is left for others.
fn evidence(stage: &Stage, ordered: u64, taken: u64, left: u64) -> Evidence {
    if taken > ordered {
        stage
            .timeline
            .lane("Ann")
            .notes(Event::Harm, "has two units for one order");
    }
    let stranded = STOCK.saturating_sub(ordered + left);
    let evidence = Evidence::new()
        .sold(STOCK, ordered)
        .stranded(stranded)
        .stuck(stage.timeline.longest(Doing::Waiting));
    evidence
        .judge(Measure::DoubleTaken, taken.saturating_sub(ordered), 0)
        .judge_oversold()
        .judge_stranded()
}

/// The same with the real engine. The recorder is killed so that the first attempt stands where it does in the story: it has its unit, and
/// the order is not written.
async fn play_engine(stage: &Stage) -> Result<Evidence> {
    let (redis, database_url) = (stage.redis().await?, stage.database().await?);
    let settings = Vec::new;
    let instance = |name, roles| Instance {
        name,
        redis_url: redis.url(),
        database_url: database_url.clone(),
        roles,
        settings: settings(),
    };
    let first = Engine::start_instance(stage, instance("order-service-1", "order")).await?;
    let second = Engine::start_instance(stage, instance("order-service-2", "order")).await?;
    let mut recorder = Engine::start_instance(stage, instance("recorder", "recorder")).await?;
    let (client, timeline) = (Client::new(), &stage.timeline);
    let item = first
        .offer(json!({ "id": "tickets", "stock": STOCK, "segments": SEGMENTS }))
        .await?;

    // Ann's first order empties her home segment, where her second one begins its walk.
    let Ordered::Placed(returned) = first
        .counter
        .order(&client, &item, "ann", "one-for-bob")
        .await?
    else {
        anyhow::bail!("the first order is placed")
    };
    second
        .audit_says(&item, |audit| audit.held == 1 && audit.in_flight == 0)
        .await?;
    timeline.stock(1);
    let (ann, service) = (timeline.lane("Ann"), timeline.lane("order service 1"));
    let down = recorder.kill(&timeline.lane("recorder")).await?;
    let waiting = ann.is(Doing::Waiting, "wants one");
    let attempt = {
        let (counter, client, item) = (first.counter.clone(), client.clone(), item.clone());
        tokio::spawn(async move { counter.order(&client, &item, "ann", ORDER).await })
    };
    second
        .audit_says(&item, |audit| audit.in_flight == 1)
        .await?;
    service.notes(Event::Write, "has a unit, not in the ledger yet");
    let stopped = first.pause(&service).await?;
    timeline.stock(0);
    stage.pace.sleep(BOB_RETURNS_AFTER).await;

    second.counter.cancel(&client, &returned).await?;
    second
        .audit_says(&item, |audit| audit.available == 1)
        .await?;
    timeline
        .lane("Bob")
        .notes(Event::Note, "returns his unit to Ann's home segment");
    timeline.stock(1);
    stage.pace.sleep(CLIENT_ASKS_AGAIN_AFTER).await;
    attempt.abort();
    drop(waiting);
    ann.notes(Event::Note, "asks again");
    recorder.restart().await?;
    drop(down);
    while second.counter.order(&client, &item, "ann", ORDER).await? == Ordered::Unknown {}
    timeline
        .lane("order service 2")
        .notes(Event::Sale, "the order that the first attempt made");
    first.resume(&service, stopped).await?;
    let audit = second
        .audit_says(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
        .await?;
    timeline.stock(i64::try_from(audit.available)?);
    // One order was placed that was not cancelled. A unit that was taken for it twice would be one that the ledger cannot explain.
    Ok(evidence(
        stage,
        1,
        audit.promised() + audit.drift,
        audit.available,
    ))
}
