//! Maotai: a lock with a lease of ten seconds around an identity check that takes thirty.

pub(crate) mod identity;
pub(crate) mod order_service;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use async_trait::async_trait;
use redis::AsyncCommands;
use serde_json::{Value, json};
use testbed::Redis;
use tokio::{sync::Mutex, task::JoinSet};

use self::{
    identity::IdentityService,
    order_service::{BOTTLES, BUYERS, LAST_BOTTLE, ONE_IS_LEFT, Orders, Selling, Tally, Task},
};
use crate::{
    actor::{Actor, Role, Stop},
    case::{Case, Story, Way},
    engine::Engine,
    evidence::Evidence,
    point::Point,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// How often it is looked whether all who are inside stand together.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a service is stopped that is stopped with the lock in its hand.
const STOPPED: Duration = Duration::from_secs(25);

/// The case.
pub struct Maotai;

const STORY: &str = "the lock of the story";
const COMPARE_AND_DELETE: &str = "compare and delete";
const RENEWAL: &str = "renewal";
const RENEWAL_AND_PAUSE: &str = "renewal, and a pause";
const IDENTITY_FIRST: &str = "identity check first";
const ATOMIC_SCRIPT: &str = "atomic script";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for Maotai {
    fn name(&self) -> &'static str {
        "maotai"
    }

    fn story(&self) -> Story {
        Story {
            title: "A hundred bottles of Maotai, and more buyers than bottles",
            told: "A shop sold 100 bottles of Maotai under a Redis lock of ten seconds. When the crowd came, the identity service that was asked \
                   inside the lock took up to thirty seconds: the lock ran out, the next buyer entered, and the first one's `finally` deleted \
                   the lock of whoever had it by then. Everybody inside had read that a bottle was left, and everybody sold it.",
            sources: &[(
                "Redis distributed lock: how a flash sale of Maotai oversold (in Chinese)",
                "https://juejin.cn/post/6854573212831842311",
            )],
            schedule: "Six order services sell; each asks the identity service while it holds the lock. When one bottle is left, the rest of \
                       the site floods the identity service: its queue is now 30 s long. Each service that gets the lock waits in that queue. \
                       Whoever has then read that one bottle is left stands there until everybody else who is inside stands beside it.",
            instead: "Do what can fail or take long before anything is locked or taken. Let one atomic step check and decrement; then no lock \
                      is needed to sell, and a broken one does no harm. Where a lock is right, let the store check its token.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "SET key v EX 10 NX; identity check; GET and compare; DECR; finally DEL",
                "the lock runs out during the check, and DEL frees whatever lock is there",
            ),
            Way::does_not_help(
                COMPARE_AND_DELETE,
                "the same with a unique value, and a script that deletes the lock only if it is still ours",
                "nobody steals a lock any more, but it runs out all the same",
            ),
            Way::holds(
                RENEWAL,
                "a watchdog extends the lock every third of the lease",
                "the lock lasts as long as its holder lives",
            ),
            Way::does_not_help(
                RENEWAL_AND_PAUSE,
                "the same, and the holder is stopped for 25 s (SIGSTOP) after it has read the stock",
                "a stopped process extends nothing, and does not know that it was stopped",
            ),
            Way::holds(
                IDENTITY_FIRST,
                "the identity check comes before the lock",
                "nothing slow is inside the lock; it holds until something else is",
            ),
            Way::holds(
                ATOMIC_SCRIPT,
                "the lock of the story, and a script that checks and decrements in one step",
                "the lock is as broken as before, and it does not matter",
            ),
            Way::holds(
                ENGINE,
                "Stockade: the identity check first, then an order over HTTP, without a lock",
                "one atomic step, and the ledger",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[
            Knob::Buyers,
            Knob::Stock,
            Knob::Stall,
            Knob::Lease,
            Knob::Instances,
        ]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        Sale::open(stage, selling(way)?)
            .await?
            .play(way == RENEWAL_AND_PAUSE)
            .await
    }
}

fn selling(way: &str) -> Result<Selling> {
    let lock = |unique, renewed| order_service::StoryLock { unique, renewed };
    let selling = |lock, identity_first, orders| Selling {
        lock,
        identity_first,
        orders,
    };
    Ok(match way {
        STORY => selling(Some(lock(false, false)), false, Orders::GetAndCompare),
        COMPARE_AND_DELETE => selling(Some(lock(true, false)), false, Orders::GetAndCompare),
        RENEWAL | RENEWAL_AND_PAUSE => {
            selling(Some(lock(true, true)), false, Orders::GetAndCompare)
        }
        IDENTITY_FIRST => selling(Some(lock(true, false)), true, Orders::GetAndCompare),
        ATOMIC_SCRIPT => selling(Some(lock(false, false)), false, Orders::AtomicScript),
        ENGINE => selling(None, true, Orders::Engine),
        _ => anyhow::bail!("no such way: {way}"),
    })
}

/// A sale that has begun.
struct Sale<'a> {
    stage: &'a Stage,
    redis: Redis,
    identity: IdentityService,
    engine: Option<(Engine, String)>,
    task: Task,
    stock: u64,
    instances: usize,
}

impl<'a> Sale<'a> {
    async fn open(stage: &'a Stage, selling: Selling) -> Result<Self> {
        let what_if = stage.what_if;
        let (stock, stall) = (
            what_if.stock.unwrap_or(100),
            what_if.stall.unwrap_or(Duration::from_secs(30)),
        );
        let redis = stage.redis().await?;
        let identity = IdentityService::start(stage, stall).await?;
        let mut connection = stage.connect(&redis).await?;
        let () = connection.set(BOTTLES, stock).await?;
        let buyers: Vec<_> = (0..what_if.buyers.unwrap_or(130))
            .map(|n| format!("buyer-{n}"))
            .collect();
        let () = connection.rpush(BUYERS, buyers).await?;
        let engine = match selling.orders {
            Orders::Engine => Some(Self::offer(stage, &redis, stock).await?),
            _ => None,
        };
        let lease = what_if.lease.unwrap_or(Duration::from_secs(10));
        let task = Task::new(
            stage.pace,
            &redis,
            &identity,
            selling,
            lease,
            stock,
            engine.as_ref(),
        );
        Ok(Self {
            stage,
            redis,
            identity,
            engine,
            task,
            stock,
            instances: what_if.instances.unwrap_or(6),
        })
    }

    async fn offer(stage: &Stage, redis: &Redis, stock: u64) -> Result<(Engine, String)> {
        let engine = Engine::start(stage, redis).await?;
        let item = engine
            .offer(
                json!({ "id": "maotai", "title": "Maotai", "stock": stock, "limit_per_buyer": 1 }),
            )
            .await?;
        Ok((engine, item))
    }

    async fn play(self, pause: bool) -> Result<Evidence> {
        let schedule = Arc::new(Schedule::new(
            pause.then_some(self.stage.pace.real(STOPPED)),
        ));
        let mut services = JoinSet::new();
        for n in 1..=self.instances {
            let actor = Actor::start(
                self.stage,
                &format!("order service {n}"),
                Role::OrderService,
                &self.task,
            )
            .await?;
            let schedule = Arc::clone(&schedule);
            services.spawn(async move { schedule.drive(actor).await });
        }
        let crowd = self.crowd(&schedule);
        let together = self.let_them_meet(&schedule);
        let ended = async {
            let mut tallies = Vec::new();
            while let Some(tally) = services.join_next().await {
                tallies.push(tally??);
            }
            Ok::<_, anyhow::Error>(tallies)
        };
        let tallies = tokio::select! {
            tallies = ended => tallies?,
            Err(error) = crowd => return Err(error),
            () = together => unreachable!("it waits for the end"),
        };
        self.count(&tallies).await
    }

    /// When one bottle is left, the rest of the site asks the identity service, too.
    async fn crowd(&self, schedule: &Schedule) -> Result<std::convert::Infallible> {
        schedule.one_is_left.reached_by(1).await;
        let lane = self.stage.timeline.lane("identity service");
        lane.notes(Event::Fault, "the crowd floods it");
        let flood = self.identity.flood().await?;
        schedule.one_is_left.open();
        let overloaded = lane.is(Doing::Stalled, "overloaded");
        let calm = flood.await.context("the flood")?;
        drop(overloaded);
        calm?;
        std::future::pending().await
    }

    /// Whoever has read that one bottle is left stands there until everybody else who is inside stands beside it. Where the lock keeps its promise
    /// there is nobody else.
    async fn let_them_meet(&self, schedule: &Schedule) {
        schedule.read_the_last.reached_by(1).await;
        while (schedule.read_the_last.arrived() as u64) < self.stage.timeline.inside() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        schedule.read_the_last.open();
        std::future::pending().await
    }

    async fn count(&self, tallies: &[Tally]) -> Result<Evidence> {
        let (sold, left) = match &self.engine {
            Some((engine, item)) => engine.units(item).await?,
            None => self.count_in_redis().await?,
        };
        let told: u64 = tallies.iter().map(|tally| tally.sold).sum();
        anyhow::ensure!(
            told == sold,
            "{told} buyers were told that they have a bottle, {sold} orders were written"
        );
        let timeline = &self.stage.timeline;
        let refused = tallies.iter().any(|tally| tally.refused > 0);
        let evidence =
            Evidence::new()
                .sold(self.stock, sold)
                .stranded(if refused { left } else { 0 });
        Ok(evidence
            .holders(timeline.holders_at_once())
            .stuck(timeline.longest(Doing::Waiting))
            .judge_oversold()
            .judge_stranded())
    }

    async fn count_in_redis(&self) -> Result<(u64, u64)> {
        let mut connection = self.stage.connect(&self.redis).await?;
        let sold: u64 = connection.llen(order_service::ORDERS).await?;
        let left: i64 = connection.get(BOTTLES).await?;
        Ok((sold, u64::try_from(left).unwrap_or(0)))
    }
}

/// Where the services are held.
struct Schedule {
    one_is_left: Point,
    read_the_last: Point,
    /// For how long one of them is stopped: the first that has read that one bottle is left. It is taken by that one.
    stop: Mutex<Option<Duration>>,
}

impl Schedule {
    fn new(stop: Option<Duration>) -> Self {
        let schedule = Self {
            one_is_left: Point::closed(),
            read_the_last: Point::closed(),
            stop: Mutex::new(stop),
        };
        if stop.is_some() {
            // The one that is stopped would keep the others waiting.
            schedule.read_the_last.open();
        }
        schedule
    }

    /// Takes a service from point to point until it is done.
    async fn drive(&self, mut actor: Actor) -> Result<Tally> {
        loop {
            match actor.next().await? {
                Stop::Done(tally) => return read(tally),
                Stop::At(point) if point == ONE_IS_LEFT => self.one_is_left.pass().await,
                Stop::At(point) if point == LAST_BOTTLE => {
                    let stop = self.stop.lock().await.take();
                    match stop {
                        Some(stop) => stop_for(&actor, stop).await?,
                        None => self.read_the_last.pass().await,
                    }
                }
                Stop::At(point) => anyhow::bail!("nobody knows the point `{point}`"),
            }
        }
    }
}

async fn stop_for(actor: &Actor, stop: Duration) -> Result<()> {
    let during = actor.pause().await?;
    tokio::time::sleep(stop).await;
    actor.resume(during).await
}

fn read(tally: Value) -> Result<Tally> {
    Ok(serde_json::from_value(tally)?)
}
