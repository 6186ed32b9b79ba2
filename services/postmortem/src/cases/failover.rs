//! A Redis master dies before its replicas have its last writes, and one of them is promoted.

mod master_lock;

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use redis::{AsyncCommands, InfoDict};
use testbed::Redis;
use tokio::task::JoinHandle;

use self::master_lock::{LOCK, MasterLock};
use super::{
    counter_shop::{LedgerRow, Shop, Till},
    last_unit::{Counter, TwoSellers},
    redlock_nodes::PlainRedlock,
};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::{self, Stage},
    timeline::{Doing, During, Event, Lane},
    what_if::Knob,
};

/// In the story. No lease ends here: to promote a replica takes its time, whatever the speed.
const LEASE: Duration = Duration::from_secs(300);
const REPLICAS: usize = 3;
/// Of the buyers, how many come before the master dies.
const BEFORE: usize = 4;

/// The case.
pub struct Failover;

const LOCK_ALONE: &str = "lock, replicated later";
const STOCK_ALONE: &str = "stock, replicated later";
const WAIT: &str = "WAIT";
const WAIT_AND_RACK: &str = "WAIT, and two servers die";
const REDLOCK: &str = "Redlock";
const LEDGER: &str = "ledger check";

#[async_trait]
impl Case for Failover {
    fn name(&self) -> &'static str {
        "failover"
    }

    fn story(&self) -> Story {
        Story {
            title: "The replica that is promoted has not heard of the lock",
            told: "Redis confirms a write before its replicas have it. If the master dies in between and Sentinel promotes a replica, whatever was \
                   confirmed last is gone: a lock is free although somebody has it, and a stock counter is as high as before the last sales. \
                   Nothing is broken; it is what asynchronous replication means.",
            sources: &[
                (
                    "Distributed locks with Redis: why failover-based implementations are not enough",
                    "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#why-failover-based-implementations-are-not-enough",
                ),
                (
                    "Kyle Kingsbury: Call me maybe: Redis",
                    "https://aphyr.com/posts/283-jepsen-redis",
                ),
                ("Redis: WAIT, consistency", "https://redis.io/commands/wait"),
            ],
            schedule: "A master and three replicas that are behind. Seller A gets the lock (or four buyers get a unit), and the master is killed. \
                       The replica that has most is promoted, as Sentinel does it, and seller B asks that one for the lock (or the other \
                       buyers come). Replica 1 catches up before that only for who waits for it.",
            instead: "Count a sale when a ledger has accepted it that loses nothing it has confirmed, and let the ledger refuse what does not exist; \
                      Redis in front of it may then forget. WAIT makes the loss rarer, not impossible. A lock that must survive one server needs \
                      a majority of independent ones.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                LOCK_ALONE,
                "SET key value NX PX on the master",
                "the new master has never heard of the lock",
            ),
            Way::faulty(
                STOCK_ALONE,
                "an atomic script checks and decrements the stock on the master",
                "the new master's counter is as before the sales",
            ),
            Way::holds(
                WAIT,
                "SET NX PX, then WAIT for one replica, before the lock counts as ours",
                "one replica has it, and the one that has most is promoted",
            ),
            Way::does_not_help(
                WAIT_AND_RACK,
                "the same, but the replica that confirmed dies with the master",
                "one of the others is promoted: WAIT for one is a promise of one server",
            ),
            Way::holds(
                REDLOCK,
                "a majority of five independent servers, without replicas",
                "four of five still have the lock, and nothing is promoted",
            ),
            Way::holds(
                LEDGER,
                "the stock on the master as before, and each sale counts only when a row in SQL has accepted it",
                "the row knows the sales that Redis has forgotten",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock, Knob::Buyers]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        match way {
            LOCK_ALONE => Group::start(stage).await?.lock(false, false).await,
            WAIT => Group::start(stage).await?.lock(true, false).await,
            WAIT_AND_RACK => Group::start(stage).await?.lock(true, true).await,
            REDLOCK => redlock(stage).await,
            _ => Group::start(stage).await?.stock(way == LEDGER).await,
        }
    }
}

/// A master and its replicas.
struct Group<'a> {
    stage: &'a Stage,
    /// The first is the master.
    servers: Vec<Redis>,
    lanes: Vec<Lane>,
    during: Vec<During>,
}

impl<'a> Group<'a> {
    async fn start(stage: &'a Stage) -> Result<Self> {
        let mut servers = vec![stage.redis().await?];
        for _ in 0..REPLICAS {
            servers.push(
                stage
                    .redis_builder()
                    .replica_of(&servers[0])
                    .start()
                    .await?,
            );
        }
        servers[0].is_followed_by(REPLICAS).await?;
        let lanes: Vec<_> = (1..=servers.len())
            .map(|server| stage.timeline.lane(format!("Redis {server}")))
            .collect();
        let during = vec![lanes[0].is(Doing::Working, "master")];
        Ok(Self {
            stage,
            servers,
            lanes,
            during,
        })
    }

    async fn falls_behind(&mut self) -> Result<()> {
        for replica in 1..=REPLICAS {
            self.servers[replica].lag().await?;
            self.during
                .push(self.lanes[replica].is(Doing::Stalled, "replica, behind"));
        }
        Ok(())
    }

    async fn lock(mut self, waits: bool, rack: bool) -> Result<Evidence> {
        let counter = Counter::open(self.stage, LEASE).await?;
        self.falls_behind().await?;
        let (pace, master) = (self.stage.pace, self.servers[0].url());
        let lock = |url| Box::new(MasterLock::new(url, waits, pace, LEASE));
        let catches_up = waits.then(|| self.catches_up_when_asked());
        let sellers = counter.first(lock(master)).await?;
        if let Some(catches_up) = catches_up {
            catches_up.await??;
            drop(self.during.remove(1));
        }
        let dead = if rack { 2 } else { 1 };
        let new = self.fails_over(dead).await?;
        let new = self.servers[new].url();
        Ok(sellers.and(lock(new)).await?.judge_holders())
    }

    /// Replica 1 catches up when the master has the lock.
    fn catches_up_when_asked(&self) -> JoinHandle<Result<()>> {
        let (master, replica) = (self.servers[0].url(), self.servers[1].url());
        tokio::spawn(async move {
            let mut connection = stage::connect(&master).await?;
            while !connection.exists::<_, bool>(LOCK).await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let told = redis::cmd("CLIENT")
                .arg("UNPAUSE")
                .exec_async(&mut stage::connect(&replica).await?)
                .await;
            told.context("the replica does not catch up")
        })
    }

    async fn stock(mut self, checked: bool) -> Result<Evidence> {
        let what_if = self.stage.what_if;
        let (stock, buyers) = (what_if.stock.unwrap_or(10), what_if.buyers.unwrap_or(20));
        let (master, mut shop) = (self.servers[0].url(), Shop::new(self.stage, stock));
        shop.fill(&master).await?;
        self.servers[0].is_followed_by(REPLICAS).await?;
        let url = self.stage.database().await?;
        let created = LedgerRow::create(&url, stock).await?;
        let ledger = if checked { Some(created) } else { None };
        let lane = self.stage.timeline.lane("shop");
        let mut till = Till::open(lane.clone(), &master).await?.with(ledger);
        self.falls_behind().await?;
        shop.serves(&mut till, BEFORE.min(buyers)).await?;
        let new = self.fails_over(1).await?;
        let ledger = if checked {
            Some(LedgerRow::reach(&url.parse()?).await?)
        } else {
            None
        };
        let mut till = Till::open(lane, &self.servers[new].url())
            .await?
            .with(ledger);
        shop.serves(&mut till, buyers.saturating_sub(BEFORE))
            .await?;
        Ok(shop.count())
    }

    /// The first so many die, the master among them, and one of the others is promoted; which.
    async fn fails_over(&mut self, dead: usize) -> Result<usize> {
        self.during.clear();
        for server in 0..dead {
            self.lanes[server].notes(Event::Fault, "killed (SIGKILL)");
            self.during.push(self.lanes[server].is(Doing::Down, "down"));
            self.servers[server].kill().await?;
        }
        for replica in &self.servers[dead..] {
            replica.notices_its_masters_end().await?;
            // What the master had sent and this one had not taken in is lost now.
            replica.catch_up().await?;
        }
        let new = self.best(dead).await?;
        self.servers[new].promote().await?;
        for replica in (dead..self.servers.len()).filter(|replica| *replica != new) {
            self.servers[replica].follow(&self.servers[new]).await?;
        }
        self.lanes[new].notes(Event::Note, "is promoted");
        self.during
            .push(self.lanes[new].is(Doing::Working, "master"));
        Ok(new)
    }

    /// Which of the living has most of what the master had. Sentinel chooses by this, too, and so does every operator who looks.
    async fn best(&self, dead: usize) -> Result<usize> {
        let mut best = (dead, 0);
        for (index, replica) in self.servers.iter().enumerate().skip(dead) {
            let mut connection = self.stage.connect(replica).await?;
            let info: InfoDict = redis::cmd("INFO")
                .arg("replication")
                .query_async(&mut connection)
                .await?;
            let offset = info
                .get::<u64>("slave_repl_offset")
                .context("a replica has an offset")?;
            if offset > best.1 {
                best = (index, offset);
            }
        }
        Ok(best.0)
    }
}

async fn redlock(stage: &Stage) -> Result<Evidence> {
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(stage.redis().await?);
    }
    let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
    let first = Box::new(PlainRedlock::new(urls.clone(), stage.pace, LEASE));
    let second = Box::new(PlainRedlock::new(urls, stage.pace, LEASE));
    let sellers = TwoSellers::of(stage, LEASE, first).await?;
    let lane = stage.timeline.lane("Redis 1");
    lane.notes(Event::Fault, "killed (SIGKILL)");
    let _down = lane.is(Doing::Down, "down");
    nodes[0].kill().await?;
    Ok(sellers.and(second).await?.judge_holders())
}
