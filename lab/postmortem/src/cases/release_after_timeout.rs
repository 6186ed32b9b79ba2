//! A time-out is treated as a refusal, and units are returned that were never taken.

use std::time::Duration;

use anyhow::Result;
use client::NewItem;
use redis::{AsyncCommands, RedisResult, Script, aio::MultiplexedConnection};
use testbed::{Proxy, Redis, Traffic};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    case::Case,
    engine::{ALL_ROLES, Engine, Instance, Outcome},
    measurements::Measurements,
    test_env::{TestEnv, connect},
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// Time that a service waits for Redis, in scenario time.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which the engine answers that the outcome is unknown.
const ENGINE_ORDER_TIMEOUT: Duration = ORDER_TIMEOUT;
/// Time from the time-outs to the recovery of the network, and from there to the next buyers.
const RECOVERY_DELAY: Duration = Duration::from_secs(4);
const LATER_BUYERS_DELAY: Duration = Duration::from_secs(3);
/// Time between two later buyers.
const BUYER_INTERVAL: Duration = Duration::from_millis(200);
const LEFT: &str = "bikes:left";

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new(
        "release-after-timeout",
        include_str!("release_after_timeout.toml"),
    )
    .knobs(&[Knob::Stock])
    .faulty("release on time-out", |env| {
        Box::pin(run(env, Reaction::Increment))
    })
    .does_not_help("no release on time-out", |env| {
        Box::pin(run(env, Reaction::Nothing))
    })
    .does_not_help("release by order id", |env| {
        Box::pin(run(env, Reaction::Release))
    })
    .holds("release with a tombstone", |env| {
        Box::pin(run(env, Reaction::ReleaseAndMark))
    })
    .holds("retry with the same order id", |env| {
        Box::pin(run(env, Reaction::Retry))
    })
    .holds("the engine", |env| Box::pin(run_engine(env)))
}

async fn run(env: &TestEnv, reaction: Reaction) -> Result<Measurements> {
    Sale::open(env).await?.run(reaction).await
}

async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    Sale::open(env).await?.run_engine().await
}

/// Reaction of a service to a time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Increment,
    Nothing,
    Release,
    ReleaseAndMark,
    Retry,
}

impl Reaction {
    /// Returns the script that takes a unit, with the result 1 if there was one. With order ids an
    /// order takes once, and gets the same decision each time.
    fn take(self) -> Script {
        Script::new(match self {
            Self::Increment | Self::Nothing => {
                "if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end
                 redis.call('DECR', KEYS[1])
                 return 1"
            }
            Self::Release | Self::ReleaseAndMark | Self::Retry => {
                "local answer = redis.call('GET', KEYS[2])
                 if answer then return answer == 'taken' and 1 or 0 end
                 if tonumber(redis.call('GET', KEYS[1])) < 1 then redis.call('SET', KEYS[2], 'declined') return 0 end
                 redis.call('DECR', KEYS[1])
                 redis.call('SET', KEYS[2], 'taken')
                 return 1"
            }
        })
    }

    fn release(self) -> Script {
        let mark = if self == Self::ReleaseAndMark {
            "redis.call('SET', KEYS[2], 'released')"
        } else {
            "redis.call('DEL', KEYS[2])"
        };
        Script::new(&format!(
            "if redis.call('GET', KEYS[2]) == 'taken' then redis.call('INCR', KEYS[1]) end
             {mark}"
        ))
    }
}

/// An order service with its connection to Redis, and a working connection for its reaction.
struct OrderService<'a> {
    env: &'a TestEnv,
    lane: Lane,
    redis: MultiplexedConnection,
    fresh: MultiplexedConnection,
    reaction: Reaction,
}

impl OrderService<'_> {
    /// Serves a buyer. Returns whether the buyer was told to have a unit, and the first request,
    /// which may still be in flight.
    async fn sell(&self, buyer: &str) -> Result<(bool, JoinHandle<RedisResult<u64>>)> {
        let mut first = self.take(self.redis.clone(), buyer);
        let waiting = self
            .lane
            .is(Doing::Waiting, format!("requests a unit for {buyer}"));
        if let Ok(answer) = timeout(self.env.pace.real(ORDER_TIMEOUT), &mut first).await {
            let sold = answer?? == 1;
            return Ok((sold, tokio::spawn(async move { Ok(u64::from(sold)) })));
        }
        drop(waiting);
        self.lane
            .notes(Event::Note, format!("times out for {buyer}"));
        let sold = self.react_to_timeout(buyer).await?;
        self.lane.notes(
            if sold { Event::Sale } else { Event::Refused },
            format!("{buyer}: {}", if sold { "has a unit" } else { "failed" }),
        );
        Ok((sold, first))
    }

    async fn react_to_timeout(&self, buyer: &str) -> Result<bool> {
        let mut redis = self.fresh.clone();
        match self.reaction {
            Reaction::Nothing => {}
            Reaction::Increment => {
                let () = redis.incr(LEFT, 1).await?;
                self.lane.notes(Event::Write, "returns a unit");
            }
            Reaction::Release | Reaction::ReleaseAndMark => {
                let () = self
                    .reaction
                    .release()
                    .key(LEFT)
                    .key(answer(buyer))
                    .invoke_async(&mut redis)
                    .await?;
            }
            Reaction::Retry => return Ok(self.take(redis, buyer).await?? == 1),
        }
        Ok(false)
    }

    /// Sends the request, which stays in flight even if the caller stops waiting.
    fn take(&self, mut redis: MultiplexedConnection, buyer: &str) -> JoinHandle<RedisResult<u64>> {
        let (script, answer) = (self.reaction.take(), answer(buyer));
        tokio::spawn(async move { script.key(LEFT).key(answer).invoke_async(&mut redis).await })
    }
}

fn answer(buyer: &str) -> String {
    format!("bikes:answer:{buyer}")
}

/// A sale on one Redis server, and two bad connections to it.
struct Sale<'a> {
    env: &'a TestEnv,
    redis: Redis,
    /// Proxy whose delayed requests are lost in the end.
    lossy: Proxy,
    /// Proxy whose delayed requests arrive late.
    slow: Proxy,
    stock: u64,
}

impl<'a> Sale<'a> {
    async fn open(env: &'a TestEnv) -> Result<Self> {
        let redis = env.redis().await?;
        let (lossy, slow) = (
            Proxy::start(redis.port()).await?,
            Proxy::start(redis.port()).await?,
        );
        // Ann and Bert each need a unit, and at least one later buyer must be refused.
        Ok(Self {
            env,
            redis,
            lossy,
            slow,
            stock: env.what_if.stock.unwrap_or(10).max(3),
        })
    }

    fn delay_requests(&self) {
        for (proxy, n) in [(&self.lossy, 1), (&self.slow, 2)] {
            self.service(n)
                .notes(Event::Fault, "requests to Redis are delayed");
            proxy.set(Traffic::HoldRequests);
        }
    }

    /// Breaks one connection, and lets the other one recover.
    async fn resolve(&self) {
        self.env.pace.sleep(RECOVERY_DELAY).await;
        self.service(1).notes(Event::Fault, "the connection breaks");
        self.lossy.set(Traffic::Reset);
        self.service(2)
            .notes(Event::Note, "the connection recovers");
        self.slow.set(Traffic::Pass);
    }

    fn service(&self, n: usize) -> Lane {
        self.env.timeline.lane(format!("order service {n}"))
    }

    async fn run(&self, reaction: Reaction) -> Result<Measurements> {
        let mut redis = self.env.connect(&self.redis).await?;
        let () = redis.set(LEFT, self.stock).await?;
        self.note_left(&mut redis).await?;
        let service = async |n, port: u16| {
            let connection = connect(&format!("redis://127.0.0.1:{port}")).await?;
            anyhow::Ok(OrderService {
                env: self.env,
                lane: self.service(n),
                redis: connection,
                fresh: redis.clone(),
                reaction,
            })
        };
        let (first, second) = (
            service(1, self.lossy.port()).await?,
            service(2, self.slow.port()).await?,
        );
        let third = service(3, self.redis.port()).await?;
        self.delay_requests();
        let (ann, bert) = tokio::join!(first.sell("Ann"), second.sell("Bert"));
        let ((ann, lost), (bert, late)) = (ann?, bert?);
        self.note_left(&mut redis).await?;
        self.resolve().await;
        anyhow::ensure!(lost.await?.is_err(), "expected Ann's request to be lost");
        let _ = late.await??;
        self.service(2)
            .notes(Event::Write, "Bert's request arrives");
        self.note_left(&mut redis).await?;
        self.env.pace.sleep(LATER_BUYERS_DELAY).await;

        let mut sold = u64::from(ann) + u64::from(bert);
        // The counter can be off by a few units, so a few more buyers arrive than there are units.
        for n in 0..self.stock + 5 {
            self.env.pace.sleep(BUYER_INTERVAL).await;
            if third.sell(&format!("buyer-{n}")).await?.0 {
                sold += 1;
                third.lane.notes(
                    if sold > self.stock {
                        Event::Harm
                    } else {
                        Event::Sale
                    },
                    format!("unit {sold} of {}", self.stock),
                );
            }
        }
        let left = self.note_left(&mut redis).await?;
        Ok(self.count(sold, u64::try_from(left).unwrap_or(0)))
    }

    async fn note_left(&self, redis: &mut MultiplexedConnection) -> Result<i64> {
        let left = redis.get(LEFT).await?;
        self.env.timeline.stock(left);
        Ok(left)
    }

    /// Counts the units. All later buyers were answered correctly, so a unit that is neither sold
    /// nor left is stranded.
    fn count(&self, sold: u64, left: u64) -> Measurements {
        let stranded = self.stock.saturating_sub(sold);
        if stranded > left {
            self.service(3)
                .notes(Event::Harm, format!("{stranded} units belong to no order"));
        }
        let waited = self.env.timeline.longest(Doing::Waiting);
        Measurements::new()
            .stuck(waited)
            .judge_sale(self.stock, sold, stranded)
    }

    async fn run_engine(&self) -> Result<Measurements> {
        let [first, second, third] = self.start_engines().await?;
        let item = third.offer(&NewItem::new("bikes", self.stock)).await?;
        // The services load the item before the fault.
        for engine in [&first, &second] {
            engine.audit(&item).await?;
        }
        self.env.timeline.stock(i64::try_from(self.stock)?);

        self.delay_requests();
        let waiting = [1, 2].map(|n| self.service(n).is(Doing::Waiting, "requests a unit"));
        let (ann, bert) = tokio::join!(
            first.client.order(&item, "Ann", "a-bike"),
            second.client.order(&item, "Bert", "a-bike")
        );
        anyhow::ensure!(
            (ann?, bert?) == (Outcome::Unknown, Outcome::Unknown),
            "expected no answer to the delayed requests"
        );
        drop(waiting);
        (1..=2).for_each(|n| self.service(n).notes(Event::Note, "503: unknown outcome"));
        let mut sold = 0;
        for buyer in ["Ann", "Bert"] {
            sold += u64::from(self.insist(&third, &item, buyer).await?);
        }
        self.resolve().await;
        self.env.pace.sleep(LATER_BUYERS_DELAY).await;
        for n in 0..self.stock + 5 {
            sold += u64::from(self.insist(&third, &item, &format!("buyer-{n}")).await?);
        }
        let audit = third
            .wait_for_audit(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
            .await?;
        self.env.timeline.stock(i64::try_from(audit.available)?);
        anyhow::ensure!(
            sold == audit.promised(),
            "buyers have {sold} units, the ledger has {}",
            audit.promised()
        );
        Ok(self.count(sold, audit.available))
    }

    /// Starts two instances behind the bad connections, and one with a good connection.
    async fn start_engines(&self) -> Result<[Engine; 3]> {
        let database_url = self.env.database().await?;
        let order_timeout = (
            "STOCKADE_ORDER_TIMEOUT_MS",
            self.env.pace.real_ms(ENGINE_ORDER_TIMEOUT).to_string(),
        );
        let instance = |name, port: u16, roles, settings| {
            let instance = Instance {
                name,
                redis_url: format!("redis://127.0.0.1:{port}"),
                database_url: database_url.clone(),
                roles,
                settings,
            };
            Engine::start_instance(self.env, instance)
        };
        let (lossy, slow) = (self.lossy.port(), self.slow.port());
        let settings = vec![order_timeout];
        let third = instance("order-service-3", self.redis.port(), ALL_ROLES, Vec::new()).await?;
        let first = instance("order-service-1", lossy, "order", settings.clone()).await?;
        let second = instance("order-service-2", slow, "order", settings).await?;
        Ok([first, second, third])
    }

    /// Retries until there is an answer.
    async fn insist(&self, engine: &Engine, item: &str, buyer: &str) -> Result<bool> {
        if engine
            .client
            .order_until_known(item, buyer, "a-bike")
            .await?
            .is_none()
        {
            return Ok(false);
        }
        self.service(3).notes(Event::Sale, buyer);
        Ok(true)
    }
}
