//! The network parts: the old Redis master goes on selling on its side, and the promoted replica sells on the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use redis::InfoDict;
use sqlx::postgres::PgConnectOptions;
use testbed::{Proxy, Redis, RedisBuilder, Traffic};

use super::counter_shop::{LedgerRow, Shop, Till};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, During, Event, Lane},
    what_if::Knob,
};

/// Buyers who come before the network parts.
const BEFORE: usize = 2;
/// Buyers on the old master's side who come at once when it has parted.
const AT_ONCE: usize = 3;
/// In seconds, not of the story: the smallest at which those who come at once really come before it has passed.
const MAX_LAG: &str = "2";
/// More than any lag.
const NOTICES_WITHIN: Duration = Duration::from_secs(15);

/// The case.
pub struct SplitBrain;

const TWO_MASTERS: &str = "two masters";
const MIN_REPLICAS: &str = "min-replicas-to-write";
const AND_WAIT: &str = "min-replicas-to-write and WAIT";
const LEDGER: &str = "ledger check";

#[async_trait]
impl Case for SplitBrain {
    fn name(&self) -> &'static str {
        "split-brain"
    }

    fn story(&self) -> Story {
        Story {
            title: "Two masters sell the same stock",
            told: "When the network parts, Sentinel promotes a replica on the side of the majority, and the old master, which knows nothing of that, \
                   goes on confirming writes to whoever is on its side. Both sell what was left. When the network is whole again the old master \
                   becomes a replica and drops whatever it had confirmed: 56 % of the writes in the test that made this famous.",
            sources: &[
                (
                    "Kyle Kingsbury: Call me maybe: Redis",
                    "https://aphyr.com/posts/283-jepsen-redis",
                ),
                (
                    "Redis: NOREPLICAS, min-replicas-to-write",
                    "https://redis.io/docs/latest/develop/reference/errors/common/noreplicas/",
                ),
            ],
            schedule: "A master with two replicas sells two units. The network parts: the master and shop A are on one side; the replicas, shop B and \
                       the ledger on the other. Three buyers come to shop A at once. A replica is promoted, and ten more buyers come to \
                       each shop. Then the network is whole again, and the old master follows the new one.",
            instead: "Let a ledger that both sides must reach accept each sale, so that the side which cannot reach it does not sell. \
                      min-replicas-to-write shortens the time for which the old master sells, to its lag and not to zero; WAIT before the \
                      answer closes that gap, at the price of a round trip to a replica for each sale.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                TWO_MASTERS,
                "an atomic script checks and decrements the stock on whatever master the shop knows",
                "each side has a stock of its own",
            ),
            Way::does_not_help(
                MIN_REPLICAS,
                "the master refuses writes when no replica has been heard of for two seconds",
                "for two seconds it sells on: fewer units too many, but too many",
            ),
            Way::holds(
                AND_WAIT,
                "the same, and a sale counts only when WAIT says that a replica has it",
                "the old master's side can take units, but tells nobody that they are sold",
            ),
            Way::holds(
                LEDGER,
                "a sale counts only when a row in SQL has accepted it",
                "who cannot reach the ledger does not sell",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock, Knob::Buyers]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let group = Group::start(stage, matches!(way, MIN_REPLICAS | AND_WAIT)).await?;
        group.play(way == AND_WAIT, way == LEDGER).await
    }
}

/// A master, its replicas, and what is between them.
struct Group<'a> {
    stage: &'a Stage,
    master: Redis,
    replicas: [Redis; 2],
    between: Proxy,
    /// It refuses writes that no replica would have.
    refuses: bool,
}

impl<'a> Group<'a> {
    async fn start(stage: &'a Stage, refuses: bool) -> Result<Self> {
        let builder = || configured(stage.redis_builder(), refuses);
        let master = builder().start().await?;
        let between = Proxy::start(master.port()).await?;
        let replica = builder().config("replicaof", &format!("127.0.0.1 {}", between.port()));
        let replicas = [replica.clone().start().await?, replica.start().await?];
        master.is_followed_by(2).await?;
        Ok(Self {
            stage,
            master,
            replicas,
            between,
            refuses,
        })
    }

    async fn play(self, waits: bool, asks_ledger: bool) -> Result<Evidence> {
        let (stage, what_if) = (self.stage, self.stage.what_if);
        let (stock, buyers) = (what_if.stock.unwrap_or(10), what_if.buyers.unwrap_or(10));
        let [shop_a, shop_b, old, new] =
            ["shop A", "shop B", "Redis 1", "Redis 2"].map(|name| stage.timeline.lane(name));
        let mut shop = Shop::new(stage, stock);
        shop.fill(&self.master.url()).await?;
        self.master.is_followed_by(2).await?;
        let ledger = Ledger::open(stage, stock).await?;
        let (near, far) = if asks_ledger {
            (Some(ledger.near), Some(ledger.far))
        } else {
            (None, None)
        };
        let mut till_a = Till::open(shop_a, &self.master.url())
            .await?
            .with(far)
            .waiting(waits);
        let reigns = old.is(Doing::Working, "master");
        shop.serves(&mut till_a, BEFORE).await?;
        self.master.is_followed_by(2).await?;

        old.notes(Event::Fault, "the network parts");
        self.between.set(Traffic::Hold);
        ledger.between.set(Traffic::Reset);
        shop.serves(&mut till_a, AT_ONCE).await?;
        let reigns_too = self.promote(&new).await?;
        self.notices(&old).await?;
        let mut till_b = Till::open(shop_b, &self.replicas[0].url())
            .await?
            .with(near)
            .waiting(waits);
        shop.serves(&mut till_a, buyers).await?;
        shop.serves(&mut till_b, buyers).await?;

        drop(reigns);
        self.master.follow(&self.replicas[0]).await?;
        old.notes(Event::Note, "follows Redis 2, and drops what only it had");
        drop(reigns_too);
        Ok(shop.count())
    }

    /// What Sentinel does on the side of the majority.
    async fn promote(&self, lane: &Lane) -> Result<During> {
        let [new, other] = &self.replicas;
        new.promote().await?;
        other.follow(new).await?;
        new.is_followed_by(1).await?;
        lane.notes(Event::Note, "is promoted");
        Ok(lane.is(Doing::Working, "master, too"))
    }

    /// Waits until the old master knows that it is alone, if it counts its replicas at all.
    async fn notices(&self, lane: &Lane) -> Result<()> {
        if !self.refuses {
            return Ok(());
        }
        let until = Instant::now() + NOTICES_WITHIN;
        let mut connection = self.stage.connect(&self.master).await?;
        loop {
            let info: InfoDict = redis::cmd("INFO")
                .arg("replication")
                .query_async(&mut connection)
                .await?;
            if info.get::<u32>("min_slaves_good_slaves") == Some(0) {
                lane.notes(Event::Note, "refuses writes: no replica");
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "the old master never notices that it is alone"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn configured(builder: RedisBuilder, refuses: bool) -> RedisBuilder {
    match refuses {
        true => builder
            .config("min-replicas-to-write", "1")
            .config("min-replicas-max-lag", MAX_LAG),
        false => builder,
    }
}

/// The ledger, seen from both sides.
struct Ledger {
    near: LedgerRow,
    far: LedgerRow,
    /// It and the far side.
    between: Proxy,
}

impl Ledger {
    async fn open(stage: &Stage, stock: u64) -> Result<Self> {
        let url = stage.database().await?;
        let near = LedgerRow::create(&url, stock).await?;
        let options: PgConnectOptions = url.parse()?;
        let between = Proxy::start(options.get_port()).await?;
        let far = LedgerRow::reach(&options.port(between.port())).await?;
        Ok(Self { near, far, between })
    }
}
