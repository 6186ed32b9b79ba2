//! A Redis master dies before its replicas have its last writes, and Sentinel promotes one of them.

mod master_lock;

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use redis::{AsyncCommands, Script};
use sqlx::PgPool;
use testbed::{Redis, RedisSentinel};
use tokio::task::JoinHandle;

use self::master_lock::{LOCK, MasterLock};
use super::{last_unit::TwoSellers, redlock_nodes::PlainRedlock};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::{self, Stage},
    timeline::{Doing, During, Event, Lane},
    what_if::Knob,
};

/// In the story. No lease ends here: Sentinel needs some seconds, whatever the speed.
const LEASE: Duration = Duration::from_secs(900);
const STOCK: &str = "stock";
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
                ("Distributed locks with Redis: why failover-based implementations are not enough", "https://redis.io/topics/distlock"),
                ("Kyle Kingsbury: Call me maybe: Redis", "https://aphyr.com/posts/283-jepsen-redis"),
                ("Redis: WAIT, consistency", "https://redis.io/commands/wait"),
            ],
            schedule: "A master, three replicas that are behind, three sentinels. Seller A gets the lock (or four buyers get a unit), and the master is \
                       killed. Sentinel promotes a replica, and seller B asks that one for the lock (or the other buyers come). Replica 1 \
                       catches up before that only for who waits for it.",
            instead: "Count a sale when a ledger has accepted it that loses nothing it has confirmed, and let the ledger refuse what does not exist; \
                      Redis in front of it may then forget. WAIT makes the loss rarer, not impossible. A lock that must survive one server needs \
                      a majority of independent ones.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(LOCK_ALONE, "SET key value NX PX on the master", "the new master has never heard of the lock"),
            Way::faulty(
                STOCK_ALONE,
                "an atomic script checks and decrements the stock on the master",
                "the new master's counter is as before the sales",
            ),
            Way::holds(
                WAIT,
                "SET NX PX, then WAIT for one replica, before the lock counts as ours",
                "one replica has it, and Sentinel promotes the one that has most",
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

/// A master and its replicas, which are behind.
struct Group<'a> {
    stage: &'a Stage,
    redis: RedisSentinel,
    lanes: [Lane; 4],
    master: Option<During>,
    behind: Vec<During>,
}

impl<'a> Group<'a> {
    async fn start(stage: &'a Stage) -> Result<Self> {
        let redis = RedisSentinel::start(REPLICAS).await?;
        Ok(Self::of(stage, redis))
    }

    fn of(stage: &'a Stage, redis: RedisSentinel) -> Self {
        let lane = |name| stage.timeline.lane(name);
        let lanes = [lane("Redis 1"), lane("Redis 2"), lane("Redis 3"), lane("Redis 4")];
        let master = Some(lanes[0].is(Doing::Working, "master"));
        Self { stage, redis, lanes, master, behind: Vec::new() }
    }

    async fn falls_behind(&mut self) -> Result<()> {
        for replica in 1..=REPLICAS {
            self.redis.servers()[replica].lag().await?;
            self.behind.push(self.lanes[replica].is(Doing::Stalled, "replica, behind"));
        }
        Ok(())
    }

    async fn lock(mut self, waits: bool, rack: bool) -> Result<Evidence> {
        self.falls_behind().await?;
        let (pace, master) = (self.stage.pace, self.redis.servers()[0].url());
        let lock = |url| Box::new(MasterLock::new(url, waits, pace, LEASE));
        let catches_up = waits.then(|| self.catches_up_when_asked());
        let sellers = TwoSellers::of(self.stage, LEASE, lock(master)).await?;
        if let Some(catches_up) = catches_up {
            catches_up.await??;
            drop(self.behind.remove(0));
        }
        if rack {
            self.lanes[1].notes(Event::Fault, "killed (SIGKILL)");
            self.redis.servers_mut()[1].kill().await?;
        }
        let new = self.fails_over().await?;
        let new = self.redis.servers()[new].url();
        Ok(sellers.and(lock(new)).await?.judge_holders())
    }

    /// Replica 1 catches up when the master has the lock.
    fn catches_up_when_asked(&self) -> JoinHandle<Result<()>> {
        let (master, replica) = (self.redis.servers()[0].url(), self.redis.servers()[1].url());
        tokio::spawn(async move {
            let mut connection = stage::connect(&master).await?;
            while !connection.exists::<_, bool>(LOCK).await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let told = redis::cmd("CLIENT").arg("UNPAUSE").exec_async(&mut stage::connect(&replica).await?).await;
            told.context("the replica does not catch up")
        })
    }

    async fn stock(mut self, checked: bool) -> Result<Evidence> {
        let what_if = self.stage.what_if;
        let (stock, buyers) = (what_if.stock.unwrap_or(10), what_if.buyers.unwrap_or(20));
        let () = self.stage.connect(&self.redis.servers()[0]).await?.set(STOCK, stock).await?;
        self.redis.servers()[0].is_followed_by(REPLICAS).await?;
        self.falls_behind().await?;
        let ledger = if checked { Some(Ledger::create(&self.stage.database().await?, stock).await?) } else { None };
        let mut till = Till { stage: self.stage, lane: self.stage.timeline.lane("shop"), ledger, stock, sold: 0, refused: 0 };
        till.sells(&self.redis.servers()[0], BEFORE.min(buyers)).await?;
        let new = self.fails_over().await?;
        till.sells(&self.redis.servers()[new], buyers.saturating_sub(BEFORE)).await?;
        let stranded = if till.refused > 0 { stock.saturating_sub(till.sold) } else { 0 };
        Ok(Evidence::new().sold(stock, till.sold).stranded(stranded).judge_oversold().judge_stranded())
    }

    /// The master dies, and the sentinels choose another one; which.
    async fn fails_over(&mut self) -> Result<usize> {
        self.lanes[0].notes(Event::Fault, "killed (SIGKILL)");
        self.master = None;
        let down = self.lanes[0].is(Doing::Down, "down");
        let old = self.redis.kill_master().await?;
        // What the master had sent and they had not taken in is lost now.
        for replica in self.redis.servers().iter().skip(1) {
            // One of them may be dead.
            let _ = replica.catch_up().await;
        }
        self.behind.clear();
        let new = self.redis.successor_of(old).await?;
        drop(down);
        self.lanes[new].notes(Event::Note, "Sentinel promotes it");
        self.master = Some(self.lanes[new].is(Doing::Working, "master"));
        Ok(new)
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

/// Where buyers pay.
struct Till<'a> {
    stage: &'a Stage,
    lane: Lane,
    ledger: Option<Ledger>,
    stock: u64,
    sold: u64,
    refused: u64,
}

impl Till<'_> {
    /// So many buyers come, one after the other.
    async fn sells(&mut self, redis: &Redis, buyers: usize) -> Result<()> {
        let mut connection = self.stage.connect(redis).await?;
        let script = "local left = tonumber(redis.call('GET', KEYS[1])) if left <= 0 then return -1 end return redis.call('DECR', KEYS[1])";
        let script = Script::new(script);
        for _ in 0..buyers {
            let left: i64 = script.key(STOCK).invoke_async(&mut connection).await?;
            self.stage.timeline.stock(left.max(0));
            let accepted = left >= 0 && self.accepted().await?;
            match accepted {
                true => self.sold += 1,
                false => self.refused += 1,
            }
            self.lane.notes(self.event(accepted), format!("{left} left in Redis"));
        }
        Ok(())
    }

    async fn accepted(&self) -> Result<bool> {
        match &self.ledger {
            Some(ledger) => ledger.accepts().await,
            None => Ok(true),
        }
    }

    fn event(&self, accepted: bool) -> Event {
        match accepted {
            true if self.sold > self.stock => Event::Harm,
            true => Event::Sale,
            false => Event::Refused,
        }
    }
}

/// What counts.
struct Ledger(PgPool);

impl Ledger {
    async fn create(url: &str, stock: u64) -> Result<Self> {
        let pool = PgPool::connect(url).await?;
        sqlx::query("CREATE TABLE ledger (stock BIGINT NOT NULL, sold BIGINT NOT NULL CHECK (sold <= stock))").execute(&pool).await?;
        sqlx::query("INSERT INTO ledger (stock, sold) VALUES ($1, 0)").bind(i64::try_from(stock)?).execute(&pool).await?;
        Ok(Self(pool))
    }

    async fn accepts(&self) -> Result<bool> {
        let accepted = sqlx::query("UPDATE ledger SET sold = sold + 1 WHERE sold < stock").execute(&self.0).await?;
        Ok(accepted.rows_affected() == 1)
    }
}
