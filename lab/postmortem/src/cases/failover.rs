//! A Redis master dies before its replicas have its last writes, and one of them is promoted.

mod master_lock;

use std::time::Duration;

use anyhow::{Context, Result};
use redis::{AsyncCommands, InfoDict};
use testbed::Redis;
use tokio::task::JoinHandle;

use self::master_lock::{LOCK, MasterLock};
use super::{
    counter_sale::{CounterSale, LedgerRow, Till},
    last_unit::{LastUnit, TwoSellers},
    redlock_nodes::PlainRedlock,
};
use crate::{
    case::Case,
    measurements::Measurements,
    test_env::{self, TestEnv},
    timeline::{Doing, During, Event, Lane},
    what_if::Knob,
};

/// Lease in scenario time. It never expires here: the promotion of a replica takes real time at any
/// speed.
const LEASE: Duration = Duration::from_secs(300);
const REPLICAS: usize = 3;
/// Number of buyers who arrive before the master dies.
const BUYERS_BEFORE_FAULT: usize = 4;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("failover", include_str!("failover.toml"))
        .knobs(&[Knob::Stock, Knob::Buyers])
        .faulty("lock, asynchronous replication", |env| {
            Box::pin(lock(env, false, 1))
        })
        .faulty("stock, asynchronous replication", |env| {
            Box::pin(stock(env, false))
        })
        .holds("WAIT", |env| Box::pin(lock(env, true, 1)))
        .does_not_help("WAIT, two servers die", |env| Box::pin(lock(env, true, 2)))
        .holds("Redlock", |env| Box::pin(redlock(env)))
        .holds("ledger check", |env| Box::pin(stock(env, true)))
}

async fn lock(env: &TestEnv, waits: bool, dead: usize) -> Result<Measurements> {
    Group::start(env).await?.lock(waits, dead).await
}

async fn stock(env: &TestEnv, checked: bool) -> Result<Measurements> {
    Group::start(env).await?.stock(checked).await
}

/// A master and its replicas.
struct Group<'a> {
    env: &'a TestEnv,
    /// The servers; the first is the master.
    servers: Vec<Redis>,
    lanes: Vec<Lane>,
    during: Vec<During>,
}

impl<'a> Group<'a> {
    async fn start(env: &'a TestEnv) -> Result<Self> {
        let mut servers = vec![env.redis().await?];
        for _ in 0..REPLICAS {
            servers.push(env.redis_builder().replica_of(&servers[0]).start().await?);
        }
        servers[0].is_followed_by(REPLICAS).await?;
        let lanes: Vec<_> = (1..=servers.len())
            .map(|server| env.timeline.lane(format!("Redis {server}")))
            .collect();
        let during = vec![lanes[0].is(Doing::Working, "master")];
        Ok(Self {
            env,
            servers,
            lanes,
            during,
        })
    }

    async fn delay_replicas(&mut self) -> Result<()> {
        for replica in 1..=REPLICAS {
            self.servers[replica].lag().await?;
            self.during
                .push(self.lanes[replica].is(Doing::Stalled, "replica, behind"));
        }
        Ok(())
    }

    async fn lock(mut self, waits: bool, dead: usize) -> Result<Measurements> {
        let sale = LastUnit::open(self.env, LEASE).await?;
        self.delay_replicas().await?;
        let (pace, master) = (self.env.pace, self.servers[0].url());
        let lock = |url| Box::new(MasterLock::new(url, waits, pace, LEASE));
        let catch_up = waits.then(|| self.spawn_catch_up());
        let sellers = sale.first(lock(master)).await?;
        if let Some(catch_up) = catch_up {
            catch_up.await??;
            drop(self.during.remove(1));
        }
        let new = self.fail_over(dead).await?;
        let new = self.servers[new].url();
        Ok(sellers.and(lock(new)).await?.judge_holders())
    }

    /// Lets replica 1 catch up once the master has the lock.
    fn spawn_catch_up(&self) -> JoinHandle<Result<()>> {
        let (master, replica) = (self.servers[0].url(), self.servers[1].url());
        tokio::spawn(async move {
            let mut connection = test_env::connect(&master).await?;
            while !connection.exists::<_, bool>(LOCK).await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let resumed = redis::cmd("CLIENT")
                .arg("UNPAUSE")
                .exec_async(&mut test_env::connect(&replica).await?)
                .await;
            resumed.context("cannot resume the replication of replica 1")
        })
    }

    async fn stock(mut self, checked: bool) -> Result<Measurements> {
        let what_if = self.env.what_if;
        let (stock, buyers) = (what_if.stock.unwrap_or(10), what_if.buyers.unwrap_or(20));
        let (master, mut sale) = (self.servers[0].url(), CounterSale::new(self.env, stock));
        sale.fill(&master).await?;
        self.servers[0].is_followed_by(REPLICAS).await?;
        let url = self.env.database().await?;
        let created = LedgerRow::create(&url, stock).await?;
        let ledger = if checked { Some(created) } else { None };
        let lane = self.env.timeline.lane("shop");
        let mut till = Till::open(lane.clone(), &master).await?.with(ledger);
        self.delay_replicas().await?;
        sale.serve(&mut till, BUYERS_BEFORE_FAULT.min(buyers))
            .await?;
        let new = self.fail_over(1).await?;
        let ledger = if checked {
            Some(LedgerRow::reach(&url.parse()?).await?)
        } else {
            None
        };
        let mut till = Till::open(lane, &self.servers[new].url())
            .await?
            .with(ledger);
        sale.serve(&mut till, buyers.saturating_sub(BUYERS_BEFORE_FAULT))
            .await?;
        Ok(sale.count())
    }

    /// Kills the first `dead` servers, the master among them, and promotes one of the others.
    /// Returns its index.
    async fn fail_over(&mut self, dead: usize) -> Result<usize> {
        self.during.clear();
        for server in 0..dead {
            self.lanes[server].notes(Event::Fault, "killed (SIGKILL)");
            self.during.push(self.lanes[server].is(Doing::Down, "down"));
            self.servers[server].kill().await?;
        }
        for replica in &self.servers[dead..] {
            replica.notices_its_masters_end().await?;
            // Data that the master had sent and this replica had not applied is lost now.
            replica.catch_up().await?;
        }
        let new = self.most_recent(dead).await?;
        self.servers[new].promote().await?;
        for replica in (dead..self.servers.len()).filter(|replica| *replica != new) {
            self.servers[replica].follow(&self.servers[new]).await?;
        }
        self.lanes[new].notes(Event::Note, "promoted");
        self.during
            .push(self.lanes[new].is(Doing::Working, "master"));
        Ok(new)
    }

    /// Returns the index of the surviving replica with the most data, which Sentinel and operators
    /// choose.
    async fn most_recent(&self, dead: usize) -> Result<usize> {
        let mut best = (dead, 0);
        for (index, replica) in self.servers.iter().enumerate().skip(dead) {
            let mut connection = self.env.connect(replica).await?;
            let info: InfoDict = redis::cmd("INFO")
                .arg("replication")
                .query_async(&mut connection)
                .await?;
            let offset = info
                .get::<u64>("slave_repl_offset")
                .context("INFO of a replica has no slave_repl_offset")?;
            if offset > best.1 {
                best = (index, offset);
            }
        }
        Ok(best.0)
    }
}

async fn redlock(env: &TestEnv) -> Result<Measurements> {
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(env.redis().await?);
    }
    let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
    let first = Box::new(PlainRedlock::new(urls.clone(), env.pace, LEASE));
    let second = Box::new(PlainRedlock::new(urls, env.pace, LEASE));
    let sellers = TwoSellers::of(env, LEASE, first).await?;
    let lane = env.timeline.lane("Redis 1");
    lane.notes(Event::Fault, "killed (SIGKILL)");
    let _down = lane.is(Doing::Down, "down");
    nodes[0].kill().await?;
    Ok(sellers.and(second).await?.judge_holders())
}
