//! One of five Redlock nodes restarts, and has lost its vote.

use std::time::Duration;

use anyhow::Result;
use testbed::{AppendFsync, Redis};

use super::{
    last_unit::{Locking, TwoSellers},
    redlock_nodes::{FirstClient, OurRedlock, PlainRedlock},
};
use crate::{
    case::Case,
    measurements::Measurements,
    test_env::TestEnv,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// Lease in scenario time.
const LEASE: Duration = Duration::from_secs(40);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("redlock-restart", include_str!("redlock_restart.toml"))
        .knobs(&[Knob::Lease])
        .faulty("no persistence", |env| Box::pin(run(env, Node::default())))
        .holds("appendfsync always", |env| {
            Box::pin(run(
                env,
                Node {
                    fsync: true,
                    ..Node::default()
                },
            ))
        })
        .holds("delayed restart", |env| {
            Box::pin(run(
                env,
                Node {
                    delayed: true,
                    ..Node::default()
                },
            ))
        })
        .holds("restart guard", |env| {
            Box::pin(run(
                env,
                Node {
                    guarded: true,
                    ..Node::default()
                },
            ))
        })
}

/// Protections of a variant against a node that restarts without its votes.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// The nodes flush every write before they acknowledge it.
    fsync: bool,
    /// The restarted node stays away for one lease.
    delayed: bool,
    /// The clients use this library's Redlock, which has a restart guard.
    guarded: bool,
}

async fn run(env: &TestEnv, node: Node) -> Result<Measurements> {
    let lease = env.what_if.lease.unwrap_or(LEASE);
    let fsync = if node.fsync {
        AppendFsync::Always
    } else {
        AppendFsync::No
    };
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(env.redis_builder().appendfsync(fsync).start().await?);
    }
    let urls: Vec<_> = nodes.iter().map(Redis::url).collect();
    let first_client = FirstClient::of(&nodes).await?;
    let (first, second) = sellers(node.guarded, env, lease, &first_client, urls).await?;
    first_client.lose_two();
    let third = nodes.remove(2);
    restart_between(env, lease, first, second, third, node.delayed).await
}

type Both = (Box<dyn Locking>, Box<dyn Locking>);

async fn sellers(
    guard: bool,
    env: &TestEnv,
    lease: Duration,
    first: &FirstClient,
    urls: Vec<String>,
) -> Result<Both> {
    let first = first.urls().to_vec();
    if !guard {
        return Ok((
            Box::new(PlainRedlock::new(first, env.pace, lease)),
            Box::new(PlainRedlock::new(urls, env.pace, lease)),
        ));
    }
    Ok((
        Box::new(OurRedlock::new(first, env.pace, lease).await?),
        Box::new(OurRedlock::new(urls, env.pace, lease).await?),
    ))
}

async fn restart_between(
    env: &TestEnv,
    lease: Duration,
    first: Box<dyn Locking>,
    second: Box<dyn Locking>,
    mut node: Redis,
    delayed: bool,
) -> Result<Measurements> {
    let sellers = TwoSellers::of(env, lease, first).await?;
    let lane = env.timeline.lane("node 3");
    let voted = lane.is(Doing::Working, "votes for A");
    lane.notes(Event::Fault, "killed (SIGKILL)");
    drop(voted);
    let down = lane.is(Doing::Down, "down");
    node.kill().await?;
    let measurements = if delayed {
        let measurements = sellers.and(second).await?;
        env.pace.sleep(lease).await;
        node.restart().await?;
        measurements
    } else {
        node.restart().await?;
        drop(down);
        lane.notes(Event::Note, "restarted");
        sellers.and(second).await?
    };
    Ok(measurements.judge_holders())
}
