//! The wall clock of one of five Redlock nodes jumps forward, and the node's leases are over.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use lock::FencingToken;
use testbed::{Clock, Redis};

use super::{
    last_unit::{Locking, TwoSellers, was_broken},
    redlock_nodes::{FirstClient, OurRedlock, PlainRedlock},
};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::Event,
    what_if::Knob,
};

/// In the story.
const LEASE: Duration = Duration::from_secs(40);
/// By how much the clock jumps: a multiple of the lease, whatever the speed.
const LEASES: u32 = 4;

/// The case.
pub struct RedlockClock;

const CLOCK_TRUSTED: &str = "the clock is trusted";
const CLOCK_GUARD: &str = "clock guard";
const NEWCOMER: &str = "clock guard, and a newcomer";
const FENCE: &str = "fence and version";

#[async_trait]
impl Case for RedlockClock {
    fn name(&self) -> &'static str {
        "redlock-clock"
    }

    fn story(&self) -> Story {
        Story {
            title: "The clock of a Redlock node jumps",
            told: "Redis ends leases by its wall clock. When an administrator or a time daemon sets the clock of one node forward, the locks on it \
                   are over early, and somebody else finds a majority while the first holder still has one. Kleppmann described it in 2016; \
                   antirez answered that clocks should not jump, and that Redis should use a monotonic one. It does not.",
            sources: &[
                (
                    "Martin Kleppmann: How to do distributed locking",
                    "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
                ),
                ("antirez: Is Redlock safe?", "http://antirez.com/news/101"),
            ],
            schedule: "Five nodes. Seller A cannot reach nodes 4 and 5, gets the lock from 1, 2 and 3, and reads that one unit is left. The clock of \
                       node 3 jumps forward by four leases. Seller B asks all five. Then both sell, if both are inside.",
            instead: "Hold every node's clock against a monotonic one, and do not count the votes of a node whose clock has jumped; that helps those \
                      who were there before the jump. Let the row check a token: then it does not matter who believes to have the lock.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                CLOCK_TRUSTED,
                "Redlock as described",
                "on node 3 A's lease is over: 1, 2, 3 and 3, 4, 5 are majorities",
            ),
            Way::holds(
                CLOCK_GUARD,
                "this library's Redlock, which holds the time in every answer against its own monotonic clock",
                "B has asked node 3 before, sees the jump, and does not count its vote",
            ),
            Way::does_not_help(
                NEWCOMER,
                "the same, but B starts after the jump; the row does not look at tokens",
                "who comes after the jump cannot know of it: no client can guard against every clock",
            ),
            Way::holds(
                FENCE,
                "the same newcomer; the row is claimed with the token, and written with token and version",
                "there are two holders all the same, and the row refuses the older one",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let sale = Sale::prepare(stage).await?;
        match way {
            CLOCK_TRUSTED => sale.plain().await,
            CLOCK_GUARD => sale.guarded().await,
            NEWCOMER => Ok(sale.newcomer(false).await?.judge_holders()),
            _ => was_broken(sale.newcomer(true).await?),
        }
    }
}

struct Sale<'a> {
    stage: &'a Stage,
    lease: Duration,
    nodes: Vec<Redis>,
    /// Of node 3.
    clock: Clock,
    first_client: FirstClient,
}

impl<'a> Sale<'a> {
    async fn prepare(stage: &'a Stage) -> Result<Self> {
        let clock = Clock::new().await?;
        let mut nodes = Vec::new();
        for node in 1..=5 {
            let builder = stage.redis_builder();
            let builder = if node == 3 {
                builder.clock(&clock).await?
            } else {
                builder
            };
            nodes.push(builder.start().await?);
        }
        let first_client = FirstClient::of(&nodes).await?;
        Ok(Self {
            stage,
            lease: stage.what_if.lease.unwrap_or(LEASE),
            nodes,
            clock,
            first_client,
        })
    }

    async fn plain(&self) -> Result<Evidence> {
        let redlock = |urls| Box::new(PlainRedlock::new(urls, self.stage.pace, self.lease));
        let sellers = self
            .until_the_jump(redlock(self.first_client.urls().to_vec()))
            .await?;
        Ok(sellers.and(redlock(self.urls())).await?.judge_holders())
    }

    async fn guarded(&self) -> Result<Evidence> {
        let (first, second) = (
            self.ours(self.first_client.urls().to_vec()).await?,
            self.ours(self.urls()).await?,
        );
        let sellers = self.until_the_jump(Box::new(first)).await?;
        Ok(sellers.and(Box::new(second)).await?.judge_holders())
    }

    async fn newcomer(&self, fenced: bool) -> Result<Evidence> {
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
        OurRedlock::new(urls, self.stage.pace, self.lease).await
    }

    async fn until_the_jump(&self, first: Box<dyn Locking>) -> Result<TwoSellers<'_>> {
        self.first_client.loses_two();
        let sellers = TwoSellers::of(self.stage, self.lease, first).await?;
        let (lane, ahead) = (self.stage.timeline.lane("node 3"), self.lease * LEASES);
        lane.notes(
            Event::Fault,
            format!("its clock jumps by {} s", ahead.as_secs()),
        );
        self.clock
            .set(i64::try_from(self.stage.pace.real_ms(ahead))?)?;
        Ok(sellers)
    }

    fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }
}

/// A lock whose token nobody looks at.
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
