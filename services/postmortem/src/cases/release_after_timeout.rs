//! Release after time-out: no answer is taken for a no, and units are given back that were never taken.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use redis::{AsyncCommands, RedisResult, Script, aio::MultiplexedConnection};
use reqwest::Client;
use serde_json::json;
use testbed::{Proxy, Redis, Traffic};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    case::{Case, Story, Way},
    engine::{ALL_ROLES, Answer, Engine, Instance},
    evidence::Evidence,
    stage::{Stage, connect},
    timeline::{Doing, Event, Lane},
    what_if::Knob,
};

/// How long a service waits for Redis, in the story.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the engine does before it says that it does not know.
const ENGINE_PATIENCE: Duration = PATIENCE;
/// How long after that the network is well again, and others come.
const UNTIL_WELL: Duration = Duration::from_secs(4);
const OTHERS_AFTER: Duration = Duration::from_secs(3);
/// How long the next buyer comes after the last one.
const BUYERS_EVERY: Duration = Duration::from_millis(200);
const LEFT: &str = "bikes:left";

/// The case.
pub struct ReleaseAfterTimeout;

const STORY: &str = "no answer: give it back";
const NOTHING: &str = "give nothing back";
const BY_ORDER: &str = "give back what the order took";
const MARKED: &str = "a release leaves a mark";
const ASK_AGAIN: &str = "ask again";
const ENGINE: &str = "the engine";

#[async_trait]
impl Case for ReleaseAfterTimeout {
    fn name(&self) -> &'static str {
        "release-after-timeout"
    }

    fn story(&self) -> Story {
        Story {
            title: "A time-out is not a no",
            told: "An order service takes a unit from the stock, hears nothing for a while, and treats that as a failure: it gives the unit back \
                   and tells the buyer to try again. But nobody knows whether the unit was taken. If the request was lost, a unit was made \
                   from nothing; if it was only late, it takes a unit for a buyer who has been sent away.",
            sources: &[
                (
                    "Amazon Builders' Library: Challenges with distributed systems",
                    "https://aws.amazon.com/builders-library/challenges-with-distributed-systems/",
                ),
                (
                    "Amazon Builders' Library: Making retries safe with idempotent APIs",
                    "https://aws.amazon.com/builders-library/making-retries-safe-with-idempotent-APIs/",
                ),
            ],
            schedule: "Ann's request and Bert's are held up between their order services and Redis. Both services give up waiting after 10 s \
                       and do what they do then. The first connection breaks: Ann's request is lost. The other one recovers: Bert's arrives \
                       late. Then others buy until nothing is left.",
            instead: "What has no answer is unknown, and only an answer resolves it: ask again with the same order id, of a store that \
                      repeats what it has answered. Give the buyer \"not yet known\", never \"sold out\". Whoever must give up leaves a mark \
                      that refuses the late request.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "after a time-out INCR, and the buyer is told that it failed",
                "a request that was lost has taken nothing",
            ),
            Way::does_not_help(
                NOTHING,
                "after a time-out nothing is given back",
                "a request that was only late has taken a unit, for nobody",
            ),
            Way::does_not_help(
                BY_ORDER,
                "units are taken by order id, and the release gives back what that order has taken",
                "the release overtakes the late request, and finds nothing to give back",
            ),
            Way::holds(
                MARKED,
                "the same, and the release marks the order, so that nothing can be taken for it any more",
                "the late request is refused; the buyer was told the truth",
            ),
            Way::holds(
                ASK_AGAIN,
                "units are taken by order id, and whoever hears nothing asks again with the same one",
                "the first answer is repeated, whichever request comes first",
            ),
            Way::holds(
                ENGINE,
                "Stockade, three instances, two of them behind the bad connections; Ann and Bert ask again at the third",
                "503 says that the outcome is unknown, and the same key tells",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let sale = Sale::open(stage).await?;
        let reaction = match way {
            STORY => Reaction::Increment,
            NOTHING => Reaction::Nothing,
            BY_ORDER => Reaction::Release,
            MARKED => Reaction::ReleaseAndMark,
            ASK_AGAIN => Reaction::AskAgain,
            ENGINE => return sale.play_engine().await,
            _ => bail!("no such way: {way}"),
        };
        sale.play(reaction).await
    }
}

/// What a service does that has heard nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Increment,
    Nothing,
    Release,
    ReleaseAndMark,
    AskAgain,
}

impl Reaction {
    /// Takes a unit: 1 if there was one. Where orders are known by their ids, an order takes once and hears the same each time.
    fn take(self) -> Script {
        Script::new(match self {
            Self::Increment | Self::Nothing => {
                "if tonumber(redis.call('GET', KEYS[1])) < 1 then return 0 end
                 redis.call('DECR', KEYS[1])
                 return 1"
            }
            Self::Release | Self::ReleaseAndMark | Self::AskAgain => {
                "local answer = redis.call('GET', KEYS[2])
                 if answer then return answer == 'taken' and 1 or 0 end
                 if tonumber(redis.call('GET', KEYS[1])) < 1 then redis.call('SET', KEYS[2], 'passed') return 0 end
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

/// An order service with its connection to Redis, and how it gets another one.
struct OrderService<'a> {
    stage: &'a Stage,
    lane: Lane,
    redis: MultiplexedConnection,
    fresh: MultiplexedConnection,
    reaction: Reaction,
}

impl OrderService<'_> {
    /// Whether the buyer has a unit, as the buyer is told; and the first request, which may still be on its way.
    async fn sell(&self, buyer: &str) -> Result<(bool, JoinHandle<RedisResult<u64>>)> {
        let mut first = self.take(self.redis.clone(), buyer);
        let waiting = self
            .lane
            .is(Doing::Waiting, format!("asks for a unit for {buyer}"));
        if let Ok(answer) = timeout(self.stage.pace.real(PATIENCE), &mut first).await {
            let sold = answer?? == 1;
            return Ok((sold, tokio::spawn(async move { Ok(u64::from(sold)) })));
        }
        drop(waiting);
        self.lane
            .notes(Event::Note, format!("has heard nothing for {buyer}"));
        let sold = self.has_heard_nothing(buyer).await?;
        self.lane.notes(
            if sold { Event::Sale } else { Event::Refused },
            format!("{buyer}: {}", if sold { "has one" } else { "it failed" }),
        );
        Ok((sold, first))
    }

    async fn has_heard_nothing(&self, buyer: &str) -> Result<bool> {
        let mut redis = self.fresh.clone();
        match self.reaction {
            Reaction::Nothing => {}
            Reaction::Increment => {
                let () = redis.incr(LEFT, 1).await?;
                self.lane.notes(Event::Write, "gives one back");
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
            Reaction::AskAgain => return Ok(self.take(redis, buyer).await?? == 1),
        }
        Ok(false)
    }

    /// It is on its way whether or not somebody waits for it.
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
    stage: &'a Stage,
    redis: Redis,
    /// What is held up here will be lost.
    loses: Proxy,
    /// What is held up here will be late.
    delays: Proxy,
    stock: u64,
}

impl<'a> Sale<'a> {
    async fn open(stage: &'a Stage) -> Result<Self> {
        let redis = stage.redis().await?;
        let (loses, delays) = (
            Proxy::start(redis.port()).await?,
            Proxy::start(redis.port()).await?,
        );
        // Ann and Bert want one each, and somebody else must come too late.
        Ok(Self {
            stage,
            redis,
            loses,
            delays,
            stock: stage.what_if.stock.unwrap_or(10).max(3),
        })
    }

    fn hold_up(&self) {
        for (proxy, n) in [(&self.loses, 1), (&self.delays, 2)] {
            self.service(n)
                .notes(Event::Fault, "requests to Redis are held up");
            proxy.set(Traffic::HoldRequests);
        }
    }

    /// One of the connections breaks, the other one is well again.
    async fn end(&self) {
        self.stage.pace.sleep(UNTIL_WELL).await;
        self.service(1).notes(Event::Fault, "the connection breaks");
        self.loses.set(Traffic::Reset);
        self.service(2)
            .notes(Event::Note, "the connection recovers");
        self.delays.set(Traffic::Pass);
    }

    fn service(&self, n: usize) -> Lane {
        self.stage.timeline.lane(format!("order service {n}"))
    }

    async fn play(&self, reaction: Reaction) -> Result<Evidence> {
        let mut redis = self.stage.connect(&self.redis).await?;
        let () = redis.set(LEFT, self.stock).await?;
        self.note_left(&mut redis).await?;
        let service = async |n, port: u16| {
            let connection = connect(&format!("redis://127.0.0.1:{port}")).await?;
            anyhow::Ok(OrderService {
                stage: self.stage,
                lane: self.service(n),
                redis: connection,
                fresh: redis.clone(),
                reaction,
            })
        };
        let (first, second) = (
            service(1, self.loses.port()).await?,
            service(2, self.delays.port()).await?,
        );
        let third = service(3, self.redis.port()).await?;
        self.hold_up();
        let (ann, bert) = tokio::join!(first.sell("Ann"), second.sell("Bert"));
        let ((ann, lost), (bert, late)) = (ann?, bert?);
        self.note_left(&mut redis).await?;
        self.end().await;
        anyhow::ensure!(lost.await?.is_err(), "Ann's request was to be lost");
        let _ = late.await??;
        self.service(2)
            .notes(Event::Write, "Bert's request arrives");
        self.note_left(&mut redis).await?;
        self.stage.pace.sleep(OTHERS_AFTER).await;

        let mut sold = u64::from(ann) + u64::from(bert);
        // The counter is right or wrong by a few.
        for n in 0..self.stock + 5 {
            self.stage.pace.sleep(BUYERS_EVERY).await;
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
        self.stage.timeline.stock(left);
        Ok(left)
    }

    /// Everybody who came later was told the truth; what is neither sold nor left is nobody's.
    fn count(&self, sold: u64, left: u64) -> Evidence {
        let stranded = self.stock.saturating_sub(sold);
        if stranded > left {
            self.service(3)
                .notes(Event::Harm, format!("{stranded} units are nobody's"));
        }
        let waited = self.stage.timeline.longest(Doing::Waiting);
        Evidence::new()
            .sold(self.stock, sold)
            .stranded(stranded)
            .stuck(waited)
            .judge_oversold()
            .judge_stranded()
    }

    async fn play_engine(&self) -> Result<Evidence> {
        let database_url = self.stage.database().await?;
        let patience = (
            "STOCKADE_ORDER_TIMEOUT_MS",
            self.stage.pace.real_ms(ENGINE_PATIENCE).to_string(),
        );
        let instance = |name, port: u16, roles, settings| {
            let redis_url = format!("redis://127.0.0.1:{port}");
            Engine::start_instance(
                self.stage,
                Instance {
                    name,
                    redis_url,
                    database_url: database_url.clone(),
                    roles,
                    settings,
                },
            )
        };
        let third = instance("order-service-3", self.redis.port(), ALL_ROLES, Vec::new()).await?;
        let item = third
            .offer(json!({ "id": "bikes", "stock": self.stock }))
            .await?;
        let first = instance(
            "order-service-1",
            self.loses.port(),
            "order",
            vec![patience.clone()],
        )
        .await?;
        let second = instance(
            "order-service-2",
            self.delays.port(),
            "order",
            vec![patience],
        )
        .await?;
        let client = Client::new();
        // The services know the item before anything breaks.
        for engine in [&first, &second] {
            engine.audit(&item).await?;
        }
        self.stage.timeline.stock(i64::try_from(self.stock)?);

        self.hold_up();
        let waiting = [1, 2].map(|n| self.service(n).is(Doing::Waiting, "asks for a unit"));
        let (ann, bert) = tokio::join!(
            first.counter.buy(&client, &item, "Ann", "a-bike"),
            second.counter.buy(&client, &item, "Bert", "a-bike")
        );
        anyhow::ensure!(
            (ann?, bert?) == (Answer::Unknown, Answer::Unknown),
            "a request that is held up has no answer"
        );
        drop(waiting);
        (1..=2).for_each(|n| {
            self.service(n)
                .notes(Event::Note, "503: the outcome is unknown")
        });
        let mut sold = 0;
        for buyer in ["Ann", "Bert"] {
            sold += u64::from(self.insist(&third, &client, &item, buyer).await?);
        }
        self.end().await;
        self.stage.pace.sleep(OTHERS_AFTER).await;
        for n in 0..self.stock + 5 {
            sold += u64::from(
                self.insist(&third, &client, &item, &format!("buyer-{n}"))
                    .await?,
            );
        }
        let audit = third
            .audit_says(&item, |audit| audit.in_flight == 0 && audit.returning == 0)
            .await?;
        self.stage.timeline.stock(i64::try_from(audit.available)?);
        anyhow::ensure!(
            sold == audit.promised(),
            "buyers were told {sold}, the ledger says {}",
            audit.promised()
        );
        Ok(self.count(sold, audit.available))
    }

    /// Asks until there is an answer.
    async fn insist(
        &self,
        engine: &Engine,
        client: &Client,
        item: &str,
        buyer: &str,
    ) -> Result<bool> {
        if engine
            .counter
            .insist(client, item, buyer, "a-bike")
            .await?
            .is_none()
        {
            return Ok(false);
        }
        self.service(3).notes(Event::Sale, buyer);
        Ok(true)
    }
}
