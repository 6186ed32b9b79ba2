//! Negative counter: whoever is refused takes one from the counter all the same, and what comes back does not show.

pub(crate) mod order_service;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use reqwest::Client;
use serde_json::json;

use self::order_service::{BUYERS, LEFT, ORDERS, REFUSED, Taking, Task};
use crate::{
    actor::{Actor, Role, Stop},
    case::{Case, Story, Way},
    engine::{Counter, Engine},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// Orders that are cancelled when everything is sold.
const CANCELLED: u64 = 10;
/// How often a buyer who comes later tries, and how long after each other, in the story.
const TRIES: usize = 5;
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How long after the crowd orders are cancelled.
const CANCELLED_AFTER: Duration = Duration::from_secs(2);
/// Requests to the engine at once.
const AT_ONCE: usize = 32;
const KEY: &str = "a-pair";

/// The case.
pub struct NegativeCounter;

const STORY: &str = "DECR, and below zero is no";
const PUT_BACK: &str = "INCR after a no";
const SCRIPT: &str = "check in the script";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for NegativeCounter {
    fn name(&self) -> &'static str {
        "negative-counter"
    }

    fn story(&self) -> Story {
        Story {
            title: "A counter far below zero, and units that nobody can buy",
            told: "A shop counts a flash sale down with DECR, and refuses whoever gets a number below zero. That oversells nothing. But every \
                   refused buyer has taken one from the counter, too: after the crowd it stands hundreds below zero, and units that are \
                   returned only bring it a little nearer. The shop says sold out and has units on the shelf.",
            sources: &[
                (
                    "The great trap of deducting flash-sale stock with Redis' atomic counters (in Chinese)",
                    "https://jishuzhan.net/article/1991418648704122881",
                ),
                ("Redis: DECR", "https://redis.io/docs/latest/commands/decr/"),
            ],
            schedule: "Far more buyers come than there are units. The order service is killed right after the counter has refused the last of \
                       them. Then ten orders are cancelled, and ten others come, who try a few times.",
            instead: "Check and decrement in one step, so that a refusal writes nothing. Putting back what a refusal took is a second step, \
                      and somebody will die before it.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "DECR; a result below zero is refused",
                "the counter owes one unit to every buyer whom it has refused",
            ),
            Way::does_not_help(
                PUT_BACK,
                "the same, and INCR when the result was below zero",
                "who is killed between the two puts nothing back, and the next unit that comes home is swallowed",
            ),
            Way::holds(
                SCRIPT,
                "a script decrements only what is above zero",
                "a refusal leaves nothing behind that could be forgotten",
            ),
            Way::holds(
                ENGINE,
                "Stockade, killed and started again after the crowd",
                "a refused order takes nothing, and what comes back is sold",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Buyers, Knob::Stock]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let sale = Sale {
            stage,
            stock: stage.what_if.stock.unwrap_or(100),
            buyers: stage.what_if.buyers.unwrap_or(400),
        };
        match way {
            STORY => sale.play(Taking::Decrement).await,
            PUT_BACK => sale.play(Taking::DecrementAndPutBack).await,
            SCRIPT => sale.play(Taking::Script).await,
            ENGINE => sale.play_engine().await,
            _ => bail!("no such way: {way}"),
        }
    }
}

/// Where the later buyers buy.
enum Shop {
    Counter(Taking, MultiplexedConnection),
    Engine(Counter, Client, String),
}

impl Shop {
    async fn sells_to(&self, buyer: &str) -> Result<bool> {
        match self {
            Self::Counter(taking, redis) => {
                let mut redis = redis.clone();
                let sold = taking.take(&mut redis).await?;
                if !sold {
                    taking.was_refused(&mut redis).await?;
                }
                Ok(sold)
            }
            Self::Engine(counter, client, item) => {
                Ok(counter.insist(client, item, buyer, KEY).await?.is_some())
            }
        }
    }
}

struct Sale<'a> {
    stage: &'a Stage,
    stock: u64,
    buyers: usize,
}

impl Sale<'_> {
    /// Orders of the crowd that are cancelled; as many buyers come later.
    fn cancelled(&self) -> u64 {
        CANCELLED.min(self.stock).min(self.buyers as u64)
    }

    /// Buyers of the crowd who come too late.
    fn too_late(&self) -> u64 {
        (self.buyers as u64).saturating_sub(self.stock)
    }

    async fn play(&self, taking: Taking) -> Result<Evidence> {
        let redis = self.stage.redis().await?;
        let mut connection = self.stage.connect(&redis).await?;
        let () = connection.set(LEFT, self.stock).await?;
        let buyers: Vec<_> = (0..self.buyers).map(|n| format!("buyer-{n}")).collect();
        let () = connection.rpush(BUYERS, buyers).await?;
        self.note_left(&mut connection).await?;
        self.crowd(
            &mut connection,
            &Task {
                redis_url: redis.url(),
                taking,
            },
        )
        .await?;
        self.note_left(&mut connection).await?;

        let sold_first = connection.llen(ORDERS).await?;
        self.stage.pace.sleep(CANCELLED_AFTER).await;
        let () = connection.incr(LEFT, self.cancelled()).await?;
        self.note_cancelled();
        let left = self.note_left(&mut connection).await?;
        self.stage
            .timeline
            .lane("order service 2")
            .notes(Event::Note, format!("the counter says {left}"));
        let sold_later = self
            .later(&Shop::Counter(taking, connection.clone()))
            .await?;
        self.note_left(&mut connection).await?;
        Ok(self.count(sold_first, sold_later))
    }

    /// Everybody comes; who has seen the last one off is killed.
    async fn crowd(&self, redis: &mut MultiplexedConnection, task: &Task) -> Result<()> {
        let mut service = Actor::start(
            self.stage,
            "order service 1",
            Role::CountingOrderService,
            task,
        )
        .await?;
        let mut refused = 0;
        while refused < self.too_late() {
            let Stop::At(point) = service.next().await? else {
                bail!("the service ended before it had refused all who come too late")
            };
            ensure!(point == REFUSED, "nobody knows the point `{point}`");
            refused += 1;
            if refused == 1 {
                service.lane().notes(Event::Refused, "sold out");
                self.note_left(redis).await?;
            }
        }
        service
            .lane()
            .notes(Event::Refused, format!("{refused} buyers were refused"));
        if refused == 0 {
            let _: u64 = service.finish().await?;
        }
        service.kill().await
    }

    fn note_cancelled(&self) {
        self.stage.timeline.lane("customers").notes(
            Event::Note,
            format!("{} orders are cancelled", self.cancelled()),
        );
    }

    async fn note_left(&self, redis: &mut MultiplexedConnection) -> Result<i64> {
        let left = redis.get(LEFT).await?;
        self.stage.timeline.stock(left);
        Ok(left)
    }

    /// As many others come as orders were cancelled. Whoever is refused tries again. How many have got one.
    async fn later(&self, shop: &Shop) -> Result<u64> {
        let lane = self.stage.timeline.lane("order service 2");
        let mut trying = None;
        let mut waiting: Vec<_> = (0..self.cancelled())
            .map(|n| format!("later-{n}"))
            .collect();
        for _ in 0..TRIES {
            let mut refused = Vec::new();
            for buyer in waiting {
                match shop.sells_to(&buyer).await? {
                    true => lane.notes(Event::Sale, buyer),
                    false => refused.push(buyer),
                }
            }
            waiting = refused;
            if waiting.is_empty() {
                break;
            }
            trying.get_or_insert_with(|| {
                lane.notes(Event::Refused, format!("{} are refused", waiting.len()));
                lane.is(Doing::Waiting, "they try again")
            });
            self.stage.pace.sleep(TRY_EVERY).await;
        }
        Ok(self.cancelled() - waiting.len() as u64)
    }

    /// Whoever of the later buyers has none was refused a unit that is there: as many had come back.
    fn count(&self, sold_first: u64, sold_later: u64) -> Evidence {
        let stranded = self.cancelled() - sold_later;
        if stranded > 0 {
            self.stage.timeline.lane("order service 2").notes(
                Event::Harm,
                format!("{stranded} units are there, and cannot be bought"),
            );
        }
        let evidence = Evidence::new()
            .sold(self.stock, sold_first - self.cancelled() + sold_later)
            .stranded(stranded);
        evidence.judge_oversold().judge_stranded()
    }

    async fn play_engine(&self) -> Result<Evidence> {
        let redis = self.stage.redis().await?;
        let mut engine = Engine::start(self.stage, &redis).await?;
        let item = engine
            .offer(json!({ "id": "sneakers", "stock": self.stock }))
            .await?;
        self.stage.timeline.stock(i64::try_from(self.stock)?);
        let (client, counter) = (Client::new(), engine.counter.clone());
        let lane = self.stage.timeline.lane("order service 1");
        let crowd = (0..self.buyers).map(|n| {
            let (counter, client, item, lane) =
                (counter.clone(), client.clone(), item.clone(), lane.clone());
            async move {
                let buyer = format!("buyer-{n}");
                let order = counter.insist(&client, &item, &buyer, KEY).await?;
                if order.is_some() {
                    lane.notes(Event::Sale, buyer);
                }
                anyhow::Ok(order)
            }
        });
        let answers: Vec<Option<String>> = stream::iter(crowd)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        let orders: Vec<_> = answers.iter().flatten().collect();
        lane.notes(
            Event::Refused,
            format!("{} buyers were refused", answers.len() - orders.len()),
        );
        let sold_first = orders.len() as u64;
        self.stage.timeline.stock(0);
        let down = engine.kill(&lane).await?;
        engine.restart().await?;
        drop(down);

        self.stage.pace.sleep(CANCELLED_AFTER).await;
        let free = engine.audit(&item).await?.available;
        for order in orders.into_iter().take(usize::try_from(self.cancelled())?) {
            counter.cancel(&client, order).await?;
        }
        self.note_cancelled();
        let audit = engine
            .audit_says(&item, |audit| audit.available == free + self.cancelled())
            .await?;
        self.stage.timeline.stock(i64::try_from(audit.available)?);
        let sold_later = self
            .later(&Shop::Engine(counter, client, item.clone()))
            .await?;
        let audit = engine.audit(&item).await?;
        self.stage.timeline.stock(i64::try_from(audit.available)?);
        let evidence = self.count(sold_first, sold_later);
        ensure!(
            evidence.units_sold == audit.promised(),
            "buyers have {}, the ledger says {}",
            evidence.units_sold,
            audit.promised()
        );
        Ok(evidence)
    }
}
