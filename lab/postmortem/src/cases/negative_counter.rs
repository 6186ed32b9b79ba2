//! A refused buyer decrements the counter as well, so returned units do not bring it above zero.

pub(crate) mod order_service;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use client::NewItem;
use futures::{StreamExt, TryStreamExt, stream};
use redis::{AsyncCommands, aio::MultiplexedConnection};

use self::order_service::{BUYERS, LEFT, ORDERS, REFUSED, Taking, Task};
use crate::{
    actor::{Actor, Role, Stop},
    case::Case,
    engine::{Engine, EngineClient},
    measurements::Measurements,
    test_env::TestEnv,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// Number of orders that are cancelled when everything is sold.
const CANCELLED_ORDERS: u64 = 10;
/// Number of attempts of a later buyer, and the time between them in scenario time.
const ATTEMPTS_MAX: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time between the rush and the cancellations.
const CANCEL_DELAY: Duration = Duration::from_secs(2);
/// Number of concurrent requests to the engine.
const REQUEST_CONCURRENCY: usize = 32;
const KEY: &str = "a-pair";

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("negative-counter", include_str!("negative_counter.toml"))
        .knobs(&[Knob::Buyers, Knob::Stock])
        .faulty("DECR, refuse below zero", |env| {
            Box::pin(run(env, Taking::Decrement))
        })
        .does_not_help("INCR after a refusal", |env| {
            Box::pin(run(env, Taking::DecrementAndPutBack))
        })
        .holds("check in the script", |env| {
            Box::pin(run(env, Taking::Script))
        })
        .holds("the engine", |env| Box::pin(run_engine(env)))
}

async fn run(env: &TestEnv, taking: Taking) -> Result<Measurements> {
    Sale::new(env).run(taking).await
}

async fn run_engine(env: &TestEnv) -> Result<Measurements> {
    Sale::new(env).run_engine().await
}

/// Where the later buyers buy.
enum Seller {
    Counter(Taking, MultiplexedConnection),
    Engine(EngineClient, String),
}

impl Seller {
    async fn sell_to(&self, buyer: &str) -> Result<bool> {
        match self {
            Self::Counter(taking, redis) => {
                let mut redis = redis.clone();
                let sold = taking.take(&mut redis).await?;
                if !sold {
                    taking.undo_refusal(&mut redis).await?;
                }
                Ok(sold)
            }
            Self::Engine(client, item) => {
                Ok(client.order_until_known(item, buyer, KEY).await?.is_some())
            }
        }
    }
}

struct Sale<'a> {
    env: &'a TestEnv,
    stock: u64,
    buyers: usize,
}

impl<'a> Sale<'a> {
    fn new(env: &'a TestEnv) -> Self {
        Self {
            env,
            stock: env.what_if.stock.unwrap_or(100),
            buyers: env.what_if.buyers.unwrap_or(400),
        }
    }

    /// Returns the number of cancelled orders of the rush. As many buyers arrive later.
    fn cancelled(&self) -> u64 {
        CANCELLED_ORDERS.min(self.stock).min(self.buyers as u64)
    }

    /// Returns the number of buyers of the rush who arrive too late.
    fn late_buyers(&self) -> u64 {
        (self.buyers as u64).saturating_sub(self.stock)
    }

    async fn run(&self, taking: Taking) -> Result<Measurements> {
        let redis = self.env.redis().await?;
        let mut connection = self.env.connect(&redis).await?;
        let () = connection.set(LEFT, self.stock).await?;
        let buyers: Vec<_> = (0..self.buyers).map(|n| format!("buyer-{n}")).collect();
        let () = connection.rpush(BUYERS, buyers).await?;
        self.note_left(&mut connection).await?;
        self.run_rush(
            &mut connection,
            &Task {
                redis_url: redis.url(),
                taking,
            },
        )
        .await?;
        self.note_left(&mut connection).await?;

        let sold_first = connection.llen(ORDERS).await?;
        self.env.pace.sleep(CANCEL_DELAY).await;
        let () = connection.incr(LEFT, self.cancelled()).await?;
        self.note_cancelled();
        let left = self.note_left(&mut connection).await?;
        self.env
            .timeline
            .lane("order service 2")
            .notes(Event::Note, format!("the counter is at {left}"));
        let sold_later = self
            .sell_later(&Seller::Counter(taking, connection.clone()))
            .await?;
        self.note_left(&mut connection).await?;
        Ok(self.count(sold_first, sold_later))
    }

    /// Serves the rush, and kills the order service after it has refused the last buyer.
    async fn run_rush(&self, redis: &mut MultiplexedConnection, task: &Task) -> Result<()> {
        let mut service = Actor::start(
            self.env,
            "order service 1",
            Role::CountingOrderService,
            task,
        )
        .await?;
        let mut refused = 0;
        while refused < self.late_buyers() {
            let Stop::At(point) = service.next().await? else {
                bail!("the order service ended before it had refused all late buyers")
            };
            ensure!(
                point == REFUSED,
                "expected the point `{REFUSED}`, the order service is at `{point}`"
            );
            refused += 1;
            if refused == 1 {
                service.lane().notes(Event::Refused, "sold out");
                self.note_left(redis).await?;
            }
        }
        service
            .lane()
            .notes(Event::Refused, format!("{refused} buyers refused"));
        if refused == 0 {
            let _: u64 = service.finish().await?;
        }
        service.kill().await
    }

    fn note_cancelled(&self) {
        self.env.timeline.lane("customers").notes(
            Event::Note,
            format!("{} orders cancelled", self.cancelled()),
        );
    }

    async fn note_left(&self, redis: &mut MultiplexedConnection) -> Result<i64> {
        let left = redis.get(LEFT).await?;
        self.env.timeline.stock(left);
        Ok(left)
    }

    /// Serves as many later buyers as orders were cancelled. A refused buyer retries. Returns how
    /// many got a unit.
    async fn sell_later(&self, seller: &Seller) -> Result<u64> {
        let lane = self.env.timeline.lane("order service 2");
        let mut retrying = None;
        let mut waiting: Vec<_> = (0..self.cancelled())
            .map(|n| format!("later-{n}"))
            .collect();
        for _ in 0..ATTEMPTS_MAX {
            let mut refused = Vec::new();
            for buyer in waiting {
                match seller.sell_to(&buyer).await? {
                    true => lane.notes(Event::Sale, buyer),
                    false => refused.push(buyer),
                }
            }
            waiting = refused;
            if waiting.is_empty() {
                break;
            }
            retrying.get_or_insert_with(|| {
                lane.notes(Event::Refused, format!("{} buyers refused", waiting.len()));
                lane.is(Doing::Waiting, "buyers retry")
            });
            self.env.pace.sleep(RETRY_INTERVAL).await;
        }
        Ok(self.cancelled() - waiting.len() as u64)
    }

    /// Counts the units. A later buyer without a unit was refused although one had been returned.
    fn count(&self, sold_first: u64, sold_later: u64) -> Measurements {
        let stranded = self.cancelled() - sold_later;
        if stranded > 0 {
            self.env.timeline.lane("order service 2").notes(
                Event::Harm,
                format!("{stranded} units in stock cannot be sold"),
            );
        }
        let sold = sold_first - self.cancelled() + sold_later;
        Measurements::new().judge_sale(self.stock, sold, stranded)
    }

    async fn run_engine(&self) -> Result<Measurements> {
        let redis = self.env.redis().await?;
        let mut engine = Engine::start(self.env, &redis).await?;
        let item = engine.offer(&NewItem::new("sneakers", self.stock)).await?;
        self.env.timeline.stock(i64::try_from(self.stock)?);
        let client = engine.client.clone();
        let lane = self.env.timeline.lane("order service 1");
        let crowd = (0..self.buyers).map(|n| {
            let (client, item, lane) = (client.clone(), item.clone(), lane.clone());
            async move {
                let buyer = format!("buyer-{n}");
                let order = client.order_until_known(&item, &buyer, KEY).await?;
                if order.is_some() {
                    lane.notes(Event::Sale, buyer);
                }
                anyhow::Ok(order)
            }
        });
        let answers: Vec<Option<String>> = stream::iter(crowd)
            .buffer_unordered(REQUEST_CONCURRENCY)
            .try_collect()
            .await?;
        let orders: Vec<_> = answers.iter().flatten().collect();
        lane.notes(
            Event::Refused,
            format!("{} buyers refused", answers.len() - orders.len()),
        );
        let sold_first = orders.len() as u64;
        self.env.timeline.stock(0);
        let down = engine.kill(&lane).await?;
        engine.restart().await?;
        drop(down);

        self.env.pace.sleep(CANCEL_DELAY).await;
        let free = engine.audit(&item).await?.available;
        for order in orders.into_iter().take(usize::try_from(self.cancelled())?) {
            client.cancel(order).await?;
        }
        self.note_cancelled();
        let audit = engine
            .wait_for_audit(&item, |audit| audit.available == free + self.cancelled())
            .await?;
        self.env.timeline.stock(i64::try_from(audit.available)?);
        let sold_later = self
            .sell_later(&Seller::Engine(client, item.clone()))
            .await?;
        let audit = engine.audit(&item).await?;
        self.env.timeline.stock(i64::try_from(audit.available)?);
        let measurements = self.count(sold_first, sold_later);
        ensure!(
            measurements.units_sold == audit.promised(),
            "buyers have {} units, the ledger has {}",
            measurements.units_sold,
            audit.promised()
        );
        Ok(measurements)
    }
}
