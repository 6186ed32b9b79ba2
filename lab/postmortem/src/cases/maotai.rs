//! A lock with a lease of ten seconds around an identity check that takes thirty.

pub(crate) mod identity;
pub(crate) mod order_service;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use client::NewItem;
use redis::AsyncCommands;
use serde_json::Value;
use testbed::Redis;
use tokio::{sync::Mutex, task::JoinSet};

use self::{
    identity::IdentityService,
    order_service::{
        BOTTLES, BUYERS, LAST_BOTTLE, LeaseLock, ONE_IS_LEFT, Orders, Selling, Task, Totals,
    },
};
use crate::{
    actor::{Actor, Role, Stop},
    case::Case,
    engine::Engine,
    measurements::Measurements,
    point::Point,
    test_env::TestEnv,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// Interval at which the schedule checks whether all holders have reached the same point.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time for which a service is stopped while it holds the lock.
const PAUSE_DURATION: Duration = Duration::from_secs(25);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("maotai", include_str!("maotai.toml"))
        .knobs(&[
            Knob::Buyers,
            Knob::Stock,
            Knob::Stall,
            Knob::Lease,
            Knob::Instances,
        ])
        .faulty("lock with a lease", |env| {
            Box::pin(sale(env, under_lock(false, false)))
        })
        .does_not_help("compare and delete", |env| {
            Box::pin(sale(env, under_lock(true, false)))
        })
        .holds("renewal", |env| Box::pin(sale(env, under_lock(true, true))))
        .does_not_help("renewal and a pause", |env| {
            Box::pin(sale_with_pause(env, under_lock(true, true)))
        })
        .holds("identity check first", |env| {
            Box::pin(sale(
                env,
                Selling {
                    identity_first: true,
                    ..under_lock(true, false)
                },
            ))
        })
        .holds("atomic script", |env| {
            Box::pin(sale(
                env,
                Selling {
                    orders: Orders::AtomicScript,
                    ..under_lock(false, false)
                },
            ))
        })
        .holds("the engine", |env| Box::pin(sale(env, FROM_THE_ENGINE)))
}

const FROM_THE_ENGINE: Selling = Selling {
    lock: None,
    identity_first: true,
    orders: Orders::Engine,
};

/// Returns the settings of the incident: identity check, GET and compare under a lock.
const fn under_lock(unique: bool, renewed: bool) -> Selling {
    Selling {
        lock: Some(LeaseLock { unique, renewed }),
        identity_first: false,
        orders: Orders::GetAndCompare,
    }
}

async fn sale(env: &TestEnv, selling: Selling) -> Result<Measurements> {
    Sale::open(env, selling).await?.run(None).await
}

async fn sale_with_pause(env: &TestEnv, selling: Selling) -> Result<Measurements> {
    let pause = env.pace.real(PAUSE_DURATION);
    Sale::open(env, selling).await?.run(Some(pause)).await
}

/// A running sale.
struct Sale<'a> {
    env: &'a TestEnv,
    redis: Redis,
    identity: IdentityService,
    engine: Option<(Engine, String)>,
    task: Task,
    stock: u64,
    instances: usize,
}

impl<'a> Sale<'a> {
    async fn open(env: &'a TestEnv, selling: Selling) -> Result<Self> {
        let what_if = env.what_if;
        let (stock, stall) = (
            what_if.stock.unwrap_or(100),
            what_if.stall.unwrap_or(Duration::from_secs(30)),
        );
        let redis = env.redis().await?;
        let identity = IdentityService::start(env, stall).await?;
        let mut connection = env.connect(&redis).await?;
        let () = connection.set(BOTTLES, stock).await?;
        let buyers: Vec<_> = (0..what_if.buyers.unwrap_or(130))
            .map(|n| format!("buyer-{n}"))
            .collect();
        let () = connection.rpush(BUYERS, buyers).await?;
        let engine = match selling.orders {
            Orders::Engine => Some(Self::offer(env, &redis, stock).await?),
            _ => None,
        };
        let lease = what_if.lease.unwrap_or(Duration::from_secs(10));
        let task = Task::new(
            env.pace,
            &redis,
            &identity,
            selling,
            lease,
            stock,
            engine.as_ref(),
        );
        Ok(Self {
            env,
            redis,
            identity,
            engine,
            task,
            stock,
            instances: what_if.instances.unwrap_or(6),
        })
    }

    async fn offer(env: &TestEnv, redis: &Redis, stock: u64) -> Result<(Engine, String)> {
        let engine = Engine::start(env, redis).await?;
        let item = engine
            .offer(&NewItem {
                title: Some("Maotai".into()),
                limit_per_buyer: Some(1),
                ..NewItem::new("maotai", stock)
            })
            .await?;
        Ok((engine, item))
    }

    async fn run(self, pause: Option<Duration>) -> Result<Measurements> {
        let schedule = Arc::new(Schedule::new(pause));
        let mut services = JoinSet::new();
        for n in 1..=self.instances {
            let actor = Actor::start(
                self.env,
                &format!("order service {n}"),
                Role::OrderService,
                &self.task,
            )
            .await?;
            let schedule = Arc::clone(&schedule);
            services.spawn(async move { schedule.drive(actor).await });
        }
        let flooding = self.flood(&schedule);
        let holding = self.hold_last_readers(&schedule);
        let ended = async {
            let mut totals = Vec::new();
            while let Some(total) = services.join_next().await {
                totals.push(total??);
            }
            Ok::<_, anyhow::Error>(totals)
        };
        let totals = tokio::select! {
            totals = ended => totals?,
            Err(error) = flooding => return Err(error),
            () = holding => unreachable!("it waits until the services have ended"),
        };
        self.count(&totals).await
    }

    /// Floods the identity service with other traffic when one bottle is left.
    async fn flood(&self, schedule: &Schedule) -> Result<std::convert::Infallible> {
        schedule.one_is_left.reached_by(1).await;
        let lane = self.env.timeline.lane("identity service");
        lane.notes(Event::Fault, "flooded by other traffic");
        let flood = self.identity.flood().await?;
        schedule.one_is_left.open();
        let overloaded = lane.is(Doing::Stalled, "overloaded");
        let calm = flood.await.context("cannot join the flood")?;
        drop(overloaded);
        calm?;
        std::future::pending().await
    }

    /// Holds each service that has read that one bottle is left until all other services inside
    /// have read it too. Where the lock excludes, there is only one.
    async fn hold_last_readers(&self, schedule: &Schedule) {
        schedule.read_the_last.reached_by(1).await;
        while (schedule.read_the_last.arrived() as u64) < self.env.timeline.inside() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        schedule.read_the_last.open();
        std::future::pending().await
    }

    async fn count(&self, totals: &[Totals]) -> Result<Measurements> {
        let (sold, left) = match &self.engine {
            Some((engine, item)) => engine.units(item).await?,
            None => self.count_in_redis().await?,
        };
        let reported: u64 = totals.iter().map(|total| total.sold).sum();
        anyhow::ensure!(
            reported == sold,
            "the services reported {reported} sales, {sold} orders were written"
        );
        let refused = totals.iter().any(|total| total.refused > 0);
        let stranded = if refused { left } else { 0 };
        Ok(Measurements::of(&self.env.timeline).judge_sale(self.stock, sold, stranded))
    }

    async fn count_in_redis(&self) -> Result<(u64, u64)> {
        let mut connection = self.env.connect(&self.redis).await?;
        let sold: u64 = connection.llen(order_service::ORDERS).await?;
        let left: i64 = connection.get(BOTTLES).await?;
        Ok((sold, u64::try_from(left).unwrap_or(0)))
    }
}

/// Points at which the services are held.
struct Schedule {
    one_is_left: Point,
    read_the_last: Point,
    /// Time for which the first service that has read that one bottle is left is stopped. That
    /// service takes the value.
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
            // The stopped service would block the others.
            schedule.read_the_last.open();
        }
        schedule
    }

    /// Runs a service from point to point until it ends.
    async fn drive(&self, mut actor: Actor) -> Result<Totals> {
        loop {
            match actor.next().await? {
                Stop::Done(total) => return read(total),
                Stop::At(point) if point == ONE_IS_LEFT => self.one_is_left.pass().await,
                Stop::At(point) if point == LAST_BOTTLE => {
                    let stop = self.stop.lock().await.take();
                    match stop {
                        Some(stop) => stop_for(&actor, stop).await?,
                        None => self.read_the_last.pass().await,
                    }
                }
                Stop::At(point) => anyhow::bail!("unknown point `{point}`"),
            }
        }
    }
}

async fn stop_for(actor: &Actor, stop: Duration) -> Result<()> {
    let during = actor.pause().await?;
    tokio::time::sleep(stop).await;
    actor.resume(during).await
}

fn read(total: Value) -> Result<Totals> {
    Ok(serde_json::from_value(total)?)
}
