//! The network partitions: the old Redis master continues to sell on its side, and the promoted
//! replica sells on the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redis::InfoDict;
use sqlx::postgres::PgConnectOptions;
use testbed::{Proxy, Redis, RedisBuilder, Traffic};

use super::counter_sale::{CounterSale, LedgerRow, Till};
use crate::{
    case::Case,
    measurements::Measurements,
    test_env::TestEnv,
    timeline::{Doing, During, Event, Lane},
    what_if::Knob,
};

/// Number of buyers who arrive before the partition.
const BUYERS_BEFORE_PARTITION: usize = 2;
/// Number of buyers who arrive on the old master's side immediately after the partition.
const IMMEDIATE_BUYERS: usize = 3;
/// Permitted lag in real seconds: the smallest in which the immediate buyers arrive before it has
/// elapsed.
const LAG_MAX_SECONDS: &str = "2";
/// Longer than any permitted lag.
const LAG_DETECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("split-brain", include_str!("split_brain.toml"))
        .knobs(&[Knob::Stock, Knob::Buyers])
        .faulty("two masters", |env| Box::pin(run(env, Guards::default())))
        .does_not_help("min-replicas-to-write", |env| {
            Box::pin(run(
                env,
                Guards {
                    min_replicas: true,
                    ..Guards::default()
                },
            ))
        })
        .holds("min-replicas-to-write and WAIT", |env| {
            Box::pin(run(
                env,
                Guards {
                    min_replicas: true,
                    wait: true,
                    ..Guards::default()
                },
            ))
        })
        .holds("ledger check", |env| {
            Box::pin(run(
                env,
                Guards {
                    ledger: true,
                    ..Guards::default()
                },
            ))
        })
}

/// Protections of a variant against a second master.
#[derive(Debug, Clone, Copy, Default)]
struct Guards {
    /// The master refuses writes that no replica would receive.
    min_replicas: bool,
    /// A sale counts only after WAIT has reported a replica.
    wait: bool,
    /// A sale counts only after the ledger has accepted it.
    ledger: bool,
}

async fn run(env: &TestEnv, guards: Guards) -> Result<Measurements> {
    let group = Group::start(env, guards.min_replicas).await?;
    group.run(guards.wait, guards.ledger).await
}

/// A master, its replicas, and the proxy between them.
struct Group<'a> {
    env: &'a TestEnv,
    master: Redis,
    replicas: [Redis; 2],
    between: Proxy,
    /// Whether the master refuses writes that no replica would receive.
    refuses: bool,
}

impl<'a> Group<'a> {
    async fn start(env: &'a TestEnv, refuses: bool) -> Result<Self> {
        let builder = || configured(env.redis_builder(), refuses);
        let master = builder().start().await?;
        let between = Proxy::start(master.port()).await?;
        let replica = builder().config("replicaof", &format!("127.0.0.1 {}", between.port()));
        let replicas = [replica.clone().start().await?, replica.start().await?];
        master.is_followed_by(2).await?;
        Ok(Self {
            env,
            master,
            replicas,
            between,
            refuses,
        })
    }

    async fn run(self, waits: bool, uses_ledger: bool) -> Result<Measurements> {
        let (env, what_if) = (self.env, self.env.what_if);
        let (stock, buyers) = (what_if.stock.unwrap_or(10), what_if.buyers.unwrap_or(10));
        let [shop_a, shop_b, old, new] =
            ["shop A", "shop B", "Redis 1", "Redis 2"].map(|name| env.timeline.lane(name));
        let mut sale = CounterSale::new(env, stock);
        sale.fill(&self.master.url()).await?;
        self.master.is_followed_by(2).await?;
        let ledger = Ledger::open(env, stock).await?;
        let (near, far) = if uses_ledger {
            (Some(ledger.near), Some(ledger.far))
        } else {
            (None, None)
        };
        let mut till_a = Till::open(shop_a, &self.master.url())
            .await?
            .with(far)
            .waiting(waits);
        let first_reign = old.is(Doing::Working, "master");
        sale.serve(&mut till_a, BUYERS_BEFORE_PARTITION).await?;
        self.master.is_followed_by(2).await?;

        old.notes(Event::Fault, "the network partitions");
        self.between.set(Traffic::Hold);
        ledger.between.set(Traffic::Reset);
        sale.serve(&mut till_a, IMMEDIATE_BUYERS).await?;
        let second_reign = self.promote(&new).await?;
        self.wait_until_isolated(&old).await?;
        let mut till_b = Till::open(shop_b, &self.replicas[0].url())
            .await?
            .with(near)
            .waiting(waits);
        sale.serve(&mut till_a, buyers).await?;
        sale.serve(&mut till_b, buyers).await?;

        drop(first_reign);
        self.master.follow(&self.replicas[0]).await?;
        old.notes(Event::Note, "follows Redis 2, and drops its own writes");
        drop(second_reign);
        Ok(sale.count())
    }

    /// Promotes a replica, as Sentinel does on the majority side.
    async fn promote(&self, lane: &Lane) -> Result<During> {
        let [new, other] = &self.replicas;
        new.promote().await?;
        other.follow(new).await?;
        new.is_followed_by(1).await?;
        lane.notes(Event::Note, "promoted");
        Ok(lane.is(Doing::Working, "second master"))
    }

    /// Waits until the old master has detected the loss of its replicas, if it counts them at all.
    async fn wait_until_isolated(&self, lane: &Lane) -> Result<()> {
        if !self.refuses {
            return Ok(());
        }
        let until = Instant::now() + LAG_DETECTION_TIMEOUT;
        let mut connection = self.env.connect(&self.master).await?;
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
                "the old master did not detect the loss of its replicas within {LAG_DETECTION_TIMEOUT:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn configured(builder: RedisBuilder, refuses: bool) -> RedisBuilder {
    match refuses {
        true => builder
            .config("min-replicas-to-write", "1")
            .config("min-replicas-max-lag", LAG_MAX_SECONDS),
        false => builder,
    }
}

/// The ledger as reached from both sides.
struct Ledger {
    near: LedgerRow,
    far: LedgerRow,
    /// Proxy between the ledger and the far side.
    between: Proxy,
}

impl Ledger {
    async fn open(env: &TestEnv, stock: u64) -> Result<Self> {
        let url = env.database().await?;
        let near = LedgerRow::create(&url, stock).await?;
        let options: PgConnectOptions = url.parse()?;
        let between = Proxy::start(options.get_port()).await?;
        let far = LedgerRow::reach(&options.port(between.port())).await?;
        Ok(Self { near, far, between })
    }
}
