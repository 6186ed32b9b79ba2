//! One of five Redlock nodes restarts, and has forgotten that it voted.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use testbed::{AppendFsync, Redis};

use super::{
    last_unit::{Locking, TwoSellers},
    redlock_nodes::{FirstClient, OurRedlock, PlainRedlock},
};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// In the story.
const LEASE: Duration = Duration::from_secs(40);

/// The case.
pub struct RedlockRestart;

const NO_PERSISTENCE: &str = "no persistence";
const ALWAYS: &str = "appendfsync always";
const DELAYED: &str = "delayed restart";
const GUARD: &str = "restart guard";

#[async_trait]
impl Case for RedlockRestart {
    fn name(&self) -> &'static str {
        "redlock-restart"
    }

    fn story(&self) -> Story {
        Story {
            title: "A Redlock node restarts and votes again",
            told: "Redlock gives a lock to who has a majority of independent Redis servers. If one that voted restarts without its data, it votes \
                   for somebody else, and there are two majorities at once. The description of the algorithm says so itself, and asks for fsync at \
                   every write, or for a node that stays away for longer than any lease after a crash; few who run it do either.",
            sources: &[
                (
                    "Distributed locks with Redis: performance, crash recovery and fsync",
                    "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#performance-crash-recovery-and-fsync",
                ),
                (
                    "Martin Kleppmann: How to do distributed locking",
                    "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
                ),
            ],
            schedule: "Five nodes. Seller A cannot reach nodes 4 and 5, gets the lock from 1, 2 and 3, and reads that one unit is left. Node 3 is \
                       killed and restarted. Seller B asks all five. Then both sell, if both are inside.",
            instead: "Let a node that may have forgotten a vote not vote until every lease that it could have forgotten is over, and let the client \
                      see to that, because an operator's restart script will not. Keep `appendfsync always` as well, and let the row check a token.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                NO_PERSISTENCE,
                "Redlock as described, on nodes that keep nothing on disk",
                "node 3 has forgotten its vote: 1, 2, 3 and 3, 4, 5 are majorities",
            ),
            Way::holds(
                ALWAYS,
                "the same, on nodes that flush every write before they confirm it",
                "node 3 remembers",
            ),
            Way::holds(
                DELAYED,
                "without persistence, but a node that was down stays away for a lease",
                "whatever it has forgotten is over when it votes again",
            ),
            Way::holds(
                GUARD,
                "without persistence, with this library's Redlock: a start of a node that nobody has admitted does not vote",
                "the client sees that node 3 is new, and counts its vote only after a lease",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let lease = stage.what_if.lease.unwrap_or(LEASE);
        let fsync = if way == ALWAYS {
            AppendFsync::Always
        } else {
            AppendFsync::No
        };
        let mut nodes = Vec::new();
        for _ in 0..5 {
            nodes.push(stage.redis_builder().appendfsync(fsync).start().await?);
        }
        let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
        let first_client = FirstClient::of(&nodes).await?;
        let (first, second) = sellers(way == GUARD, stage, lease, &first_client, urls).await?;
        first_client.loses_two();
        let node = nodes.remove(2);
        play(stage, lease, first, second, node, way == DELAYED).await
    }
}

type Both = (Box<dyn Locking>, Box<dyn Locking>);

async fn sellers(
    guard: bool,
    stage: &Stage,
    lease: Duration,
    first: &FirstClient,
    urls: Vec<String>,
) -> Result<Both> {
    let first = first.urls().to_vec();
    if !guard {
        return Ok((
            Box::new(PlainRedlock::new(first, stage.pace, lease)),
            Box::new(PlainRedlock::new(urls, stage.pace, lease)),
        ));
    }
    Ok((
        Box::new(OurRedlock::new(first, stage.pace, lease).await?),
        Box::new(OurRedlock::new(urls, stage.pace, lease).await?),
    ))
}

async fn play(
    stage: &Stage,
    lease: Duration,
    first: Box<dyn Locking>,
    second: Box<dyn Locking>,
    mut node: Redis,
    delayed: bool,
) -> Result<Evidence> {
    let sellers = TwoSellers::of(stage, lease, first).await?;
    let lane = stage.timeline.lane("node 3");
    let voted = lane.is(Doing::Working, "votes for A");
    lane.notes(Event::Fault, "killed (SIGKILL)");
    drop(voted);
    let down = lane.is(Doing::Down, "down");
    node.kill().await?;
    let evidence = if delayed {
        let evidence = sellers.and(second).await?;
        stage.pace.sleep(lease).await;
        node.restart().await?;
        evidence
    } else {
        node.restart().await?;
        drop(down);
        lane.notes(Event::Note, "is back");
        sellers.and(second).await?
    };
    Ok(evidence.judge_holders())
}
