//! Sticky sold-out: each service remembers that the item is sold out, and nobody tells it that it is not any more.

mod order_service;

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use async_trait::async_trait;
use redis::AsyncCommands;
use reqwest::Client;
use serde_json::json;
use testbed::{Proxy, Redis, Traffic};

use self::order_service::{Clearing, LEFT, OrderService};
use crate::{
    case::{Case, Story, Way},
    engine::{ALL_ROLES, Counter, Engine, Instance},
    evidence::Evidence,
    point::Point,
    stage::Stage,
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// Units that come back; two buyers come to each of three services for them.
const RETURNED: u64 = 6;
const SERVICES: usize = 3;
/// How often a buyer who comes later tries, and how long after each other, in the story.
const TRIES: usize = 10;
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How long a flag lasts that has a lifetime.
const LIFETIME: Duration = Duration::from_secs(2);

/// What lies between two events of the schedule.
const MOMENT: Duration = Duration::from_secs(2);
const KEY: &str = "a-ticket";

/// The case.
pub struct StickySoldOut;

const STORY: &str = "a flag for good";
const OWN: &str = "a return clears the flag";
const MESSAGE: &str = "a message clears the flag";
const EPOCH: &str = "a flag with an epoch";
const EPOCH_AND_LIFETIME: &str = "epoch and lifetime";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for StickySoldOut {
    fn name(&self) -> &'static str {
        "sticky-sold-out"
    }

    fn story(&self) -> Story {
        Story {
            title: "Sold out, says the memory of a service that asked an hour ago",
            told: "So that a sold-out item costs nothing, each order service remembers in a map that the stock was empty, and refuses at once. \
                   The lines are copied from one flash-sale project to the next, and nothing in them clears the flag when units come \
                   back. Orders are cancelled, their units wait in Redis, and every service goes on to say that the item is sold out.",
            sources: &[(
                "springboot-seckill, a flash sale to learn from: localOverMap in its SeckillController",
                "https://github.com/zaiyunduan123/springboot-seckill",
            )],
            schedule: "Everything is sold; services 1 and 3 have refused somebody. Service 2 has just read that the stock is empty, and stands \
                       before it remembers that. The connection on which service 3 hears messages is cut. Then six units come back, at service \
                       1; service 3 is connected again, service 2 goes on, and two buyers come to each service, who try ten times in 10 s.",
            instead: "A hint may be wrong for a moment, never for good: give it a lifetime, tie it to the epoch of the stock that was read, and \
                      let every return raise the epoch and tell everybody. The message is for speed, the lifetime for the lost message, the \
                      epoch for the slow refusal.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "a service that has read that the stock is empty refuses from then on",
                "nothing clears the flag when units come back",
            ),
            Way::does_not_help(
                OWN,
                "the service where the return comes in clears its flag",
                "the other services know nothing of it",
            ),
            Way::does_not_help(
                MESSAGE,
                "a return is published, and whoever hears it clears the flag",
                "a message that finds no subscriber is lost, and a refusal that was slow sets the flag again after the message",
            ),
            Way::does_not_help(
                EPOCH,
                "a return raises the epoch; a flag counts only as of the epoch in which the stock was read",
                "the slow refusal does no harm any more, the lost message does",
            ),
            Way::holds(
                EPOCH_AND_LIFETIME,
                "the same, and a flag is good for 2 s",
                "whoever has lost the message asks again soon; the others know at once",
            ),
            Way::holds(
                ENGINE,
                "Stockade, two instances; the second one's connections to Redis are cut while the units come back",
                "its sold-out hint has an epoch and a short lifetime, and is dropped by a message",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let none = Clearing::default();
        let clearing = match way {
            STORY => none,
            OWN => Clearing {
                by_own_return: true,
                ..none
            },
            MESSAGE => Clearing {
                by_message: true,
                ..none
            },
            EPOCH => Clearing {
                by_message: true,
                by_epoch: true,
                ..none
            },
            EPOCH_AND_LIFETIME => Clearing {
                by_message: true,
                by_epoch: true,
                after: Some(stage.pace.real(LIFETIME)),
                ..none
            },
            ENGINE => return play_engine(stage).await,
            _ => bail!("no such way: {way}"),
        };
        play_services(stage, clearing).await
    }
}

/// At least as many are sold as come back.
fn stock(stage: &Stage) -> u64 {
    stage.what_if.stock.unwrap_or(20).max(RETURNED)
}

async fn play_services(stage: &Stage, clearing: Clearing) -> Result<Evidence> {
    let (redis, stock) = (stage.redis().await?, stock(stage));
    let mut connection = stage.connect(&redis).await?;
    let () = connection.set(LEFT, stock).await?;
    let messages = Proxy::start(redis.port()).await?;
    let services = start_services(stage, &redis, &messages, clearing).await?;
    let (first, second, third) = (&services[0], &services[1], &services[2]);
    stage.timeline.stock(i64::try_from(stock)?);
    let mut sold = 0;
    while first.buy(None).await? {
        sold += 1;
    }
    third.buy(None).await?;
    stage.timeline.stock(0);
    let read_empty = Arc::new(Point::closed());
    let slow = {
        let (second, read_empty) = (Arc::clone(second), Arc::clone(&read_empty));
        tokio::spawn(async move { second.buy(Some(&read_empty)).await })
    };
    read_empty.reached_by(1).await;
    second.lane.notes(Event::Note, "has read: empty");
    stage.pace.sleep(MOMENT).await;

    third.lane.notes(Event::Fault, "hears no messages");
    messages.set(Traffic::Reset);
    stage.pace.sleep(MOMENT).await;
    first.take_back(RETURNED).await?;
    stage.timeline.stock(i64::try_from(RETURNED)?);
    first.has_heard(1).await;
    second.has_heard(1).await;
    stage.pace.sleep(MOMENT).await;
    messages.set(Traffic::Pass);
    third.is_subscribed(2).await;
    third.lane.notes(Event::Note, "is connected again");
    read_empty.open();
    slow.await??;
    stage.pace.sleep(MOMENT).await;

    let shops: Vec<_> = services
        .iter()
        .map(|service| (Shop::Service(Arc::clone(service)), service.lane.clone()))
        .collect();
    let sold_later = later(stage, &shops).await?;
    let left: u64 = connection.get(LEFT).await?;
    Ok(count(stage, stock, sold - RETURNED + sold_later, left))
}

async fn start_services(
    stage: &Stage,
    redis: &Redis,
    messages: &Proxy,
    clearing: Clearing,
) -> Result<Vec<Arc<OrderService>>> {
    let mut services = Vec::new();
    for n in 1..=SERVICES {
        let lane = stage.timeline.lane(format!("order service {n}"));
        let port = if n == SERVICES {
            messages.port()
        } else {
            redis.port()
        };
        let url = format!("redis://127.0.0.1:{port}");
        services.push(Arc::new(
            OrderService::start(lane, stage.connect(redis).await?, url, clearing).await?,
        ));
    }
    Ok(services)
}

/// Where the later buyers buy.
enum Shop {
    Service(Arc<OrderService>),
    Engine(Counter, Client, String),
}

impl Shop {
    async fn sells_to(&self, buyer: &str) -> Result<bool> {
        match self {
            Self::Service(service) => service.buy(None).await,
            Self::Engine(counter, client, item) => {
                Ok(counter.insist(client, item, buyer, KEY).await?.is_some())
            }
        }
    }
}

/// As many buyers come as units have come back, as many to each shop. Whoever is refused tries again. How many have got one.
async fn later(stage: &Stage, shops: &[(Shop, Lane)]) -> Result<u64> {
    let mut waiting: Vec<_> = (0..usize::try_from(RETURNED)?).collect();
    let mut trying = Vec::new();
    for attempt in 0..TRIES {
        let mut refused = Vec::new();
        for buyer in waiting {
            let (shop, lane) = &shops[buyer % shops.len()];
            if !shop.sells_to(&format!("later-{buyer}")).await? {
                if attempt == 0 {
                    lane.notes(Event::Refused, "sold out, it says");
                    trying.push(lane.is(Doing::Waiting, "a buyer tries again"));
                }
                refused.push(buyer);
            }
        }
        waiting = refused;
        if waiting.is_empty() {
            break;
        }
        stage.pace.sleep(TRY_EVERY).await;
    }
    drop(trying);
    for buyer in &waiting {
        shops[buyer % shops.len()]
            .1
            .notes(Event::Harm, "a unit is there, and its buyer is sent away");
    }
    Ok(RETURNED - waiting.len() as u64)
}

fn count(stage: &Stage, stock: u64, sold: u64, left: u64) -> Evidence {
    stage
        .timeline
        .stock(i64::try_from(left).unwrap_or(i64::MAX));
    // Whoever has none in the end has tried ten times.
    Evidence::new()
        .sold(stock, sold)
        .stranded(left)
        .judge_oversold()
        .judge_stranded()
}

async fn play_engine(stage: &Stage) -> Result<Evidence> {
    let (redis, database_url, stock) =
        (stage.redis().await?, stage.database().await?, stock(stage));
    let proxy = Proxy::start(redis.port()).await?;
    let settings = vec![(
        "STOCKADE_HINT_LIFETIME_MS",
        stage.pace.real_ms(LIFETIME).to_string(),
    )];
    let instance = |name, redis_url, roles| Instance {
        name,
        redis_url,
        database_url: database_url.clone(),
        roles,
        settings: settings.clone(),
    };
    let first =
        Engine::start_instance(stage, instance("order-service-1", redis.url(), ALL_ROLES)).await?;
    let second = format!("redis://127.0.0.1:{}", proxy.port());
    let second =
        Engine::start_instance(stage, instance("order-service-2", second, "order")).await?;
    let lanes = [
        stage.timeline.lane("order service 1"),
        stage.timeline.lane("order service 2"),
    ];
    let client = Client::new();
    let item = first
        .offer(json!({ "id": "concert", "stock": stock }))
        .await?;
    stage.timeline.stock(i64::try_from(stock)?);
    let mut orders = Vec::new();
    while let Some(order) = first
        .counter
        .insist(&client, &item, &format!("buyer-{}", orders.len()), KEY)
        .await?
    {
        orders.push(order);
    }
    let refused = second
        .counter
        .insist(&client, &item, "too-late", KEY)
        .await?;
    anyhow::ensure!(refused.is_none(), "it is sold out");
    lanes
        .iter()
        .for_each(|lane| lane.notes(Event::Refused, "remembers: sold out"));
    stage.timeline.stock(0);

    lanes[1].notes(Event::Fault, "cut off from Redis");
    proxy.set(Traffic::Reset);
    stage.pace.sleep(MOMENT).await;
    for order in orders.iter().take(usize::try_from(RETURNED)?) {
        first.counter.cancel(&client, order).await?;
    }
    first
        .audit_says(&item, |audit| audit.available == RETURNED)
        .await?;
    lanes[0].notes(Event::Write, format!("takes {RETURNED} units back"));
    stage.timeline.stock(i64::try_from(RETURNED)?);
    stage.pace.sleep(MOMENT).await;
    proxy.set(Traffic::Pass);
    lanes[1].notes(Event::Note, "is connected again");

    let shop = |engine: &Engine| Shop::Engine(engine.counter.clone(), client.clone(), item.clone());
    let [first_lane, second_lane] = lanes;
    later(
        stage,
        &[(shop(&first), first_lane), (shop(&second), second_lane)],
    )
    .await?;
    let audit = first
        .audit_says(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
        .await?;
    Ok(count(stage, stock, audit.promised(), audit.available))
}
