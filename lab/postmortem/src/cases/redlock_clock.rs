//! The wall clock of one of five Redlock nodes jumps forward, and the leases on that node expire.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use lock::FencingToken;
use testbed::{Clock, Redis};

use super::{
    last_unit::{Locking, TwoSellers, require_broken_lock},
    redlock_nodes::{FirstClient, OurRedlock, PlainRedlock},
};
use crate::{
    case::Case, measurements::Measurements, test_env::TestEnv, timeline::Event, what_if::Knob,
};

/// Lease in scenario time.
const LEASE: Duration = Duration::from_secs(40);
/// Size of the jump in leases, at any speed.
const JUMP_LEASES: u32 = 4;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("redlock-clock", include_str!("redlock_clock.toml"))
        .knobs(&[Knob::Lease])
        .faulty("no clock check", |env| Box::pin(plain(env)))
        .holds("clock guard", |env| Box::pin(guarded(env)))
        .does_not_help("clock guard, new client", |env| Box::pin(new_client(env)))
        .holds("fence and version", |env| {
            Box::pin(new_client_with_fence(env))
        })
}

async fn plain(env: &TestEnv) -> Result<Measurements> {
    Sale::prepare(env).await?.plain().await
}

async fn guarded(env: &TestEnv) -> Result<Measurements> {
    Sale::prepare(env).await?.guarded().await
}

async fn new_client(env: &TestEnv) -> Result<Measurements> {
    let measurements = Sale::prepare(env).await?.new_client(false).await?;
    Ok(measurements.judge_holders())
}

async fn new_client_with_fence(env: &TestEnv) -> Result<Measurements> {
    require_broken_lock(Sale::prepare(env).await?.new_client(true).await?)
}

struct Sale<'a> {
    env: &'a TestEnv,
    lease: Duration,
    nodes: Vec<Redis>,
    /// Clock of node 3.
    clock: Clock,
    first_client: FirstClient,
}

impl<'a> Sale<'a> {
    async fn prepare(env: &'a TestEnv) -> Result<Self> {
        let clock = Clock::new().await?;
        let mut nodes = Vec::new();
        for node in 1..=5 {
            let builder = env.redis_builder();
            let builder = if node == 3 {
                builder.clock(&clock).await?
            } else {
                builder
            };
            nodes.push(builder.start().await?);
        }
        let first_client = FirstClient::of(&nodes).await?;
        Ok(Self {
            env,
            lease: env.what_if.lease.unwrap_or(LEASE),
            nodes,
            clock,
            first_client,
        })
    }

    async fn plain(&self) -> Result<Measurements> {
        let redlock = |urls| Box::new(PlainRedlock::new(urls, self.env.pace, self.lease));
        let sellers = self
            .until_the_jump(redlock(self.first_client.urls().to_vec()))
            .await?;
        Ok(sellers.and(redlock(self.urls())).await?.judge_holders())
    }

    async fn guarded(&self) -> Result<Measurements> {
        let (first, second) = (
            self.ours(self.first_client.urls().to_vec()).await?,
            self.ours(self.urls()).await?,
        );
        let sellers = self.until_the_jump(Box::new(first)).await?;
        Ok(sellers.and(Box::new(second)).await?.judge_holders())
    }

    async fn new_client(&self, fenced: bool) -> Result<Measurements> {
        let tokens = |lock| -> Box<dyn Locking> {
            if fenced {
                Box::new(lock)
            } else {
                Box::new(WithoutToken(lock))
            }
        };
        let first = self.ours(self.first_client.urls().to_vec()).await?;
        let sellers = self.until_the_jump(tokens(first)).await?;
        let second = self.ours(self.urls()).await?;
        sellers.and(tokens(second)).await
    }

    async fn ours(&self, urls: Vec<String>) -> Result<OurRedlock> {
        OurRedlock::new(urls, self.env.pace, self.lease).await
    }

    async fn until_the_jump(&self, first: Box<dyn Locking>) -> Result<TwoSellers<'_>> {
        self.first_client.lose_two();
        let sellers = TwoSellers::of(self.env, self.lease, first).await?;
        let (lane, ahead) = (self.env.timeline.lane("node 3"), self.lease * JUMP_LEASES);
        lane.notes(
            Event::Fault,
            format!("its clock jumps by {} s", ahead.as_secs()),
        );
        self.clock
            .set(i64::try_from(self.env.pace.real_ms(ahead))?)?;
        Ok(sellers)
    }

    fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }
}

/// A lock whose token the row does not check.
struct WithoutToken(OurRedlock);

#[async_trait]
impl Locking for WithoutToken {
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>> {
        Ok(self.0.lock().await?.map(|_| None))
    }

    async fn unlock(&mut self) -> Result<()> {
        self.0.unlock().await
    }
}
