//! P7: an uncontended lock on five nodes, compared with a round trip to the slowest node.
//!
//! Acquiring and releasing take one round trip each, so the pair is compared with two. A round trip
//! runs a script on every node that writes one key with a lifetime, as a lock must, and waits for
//! the last of the five. (A lock needs three of five. A PING would leave out the disk, which no
//! lock can do.) The contenders alternate in short slices, so that other work of the machine hits
//! all of them.

use std::time::{Duration, Instant};

use ::lock::{Exclusion, Lock, Redlock, RedlockBuilder, Standing};
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use redis::{Script, aio::MultiplexedConnection};
use reporting::statistics::median;
use rslock::LockManager;
use testbed::Redis;
use tokio::time::sleep;

use super::servers;
use crate::{
    goal::{Bound, Line, Measured, Sample},
    options::Options,
};

const NODES: usize = 5;
const LEASE: Duration = Duration::from_secs(3);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(250);
/// Lock names, used in turn: the last message for a name may still be in flight when it returns.
const NAMES: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait until all nodes vote.
const VOTE_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes a key with a lifetime, and that is all.
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";

/// Measures it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let nodes = Nodes::start().await?;
    let contenders = Contenders::open(&nodes).await?;
    contenders.take_turns(SLICE, &mut Laps::default()).await?;
    let [mut pair, mut acquire, mut peer, mut ping] = lines();
    for _ in 0..options.repeats {
        let (mut laps, began) = (Laps::default(), Instant::now());
        while began.elapsed() < Duration::from_secs(options.seconds.max(1)) {
            contenders.take_turns(SLICE, &mut laps).await?;
        }
        let medians = laps.medians();
        let sample = |figure: f64, baseline: f64| Sample {
            figure,
            baseline,
            accepted: laps.ours.len() as u64,
            ..Sample::default()
        };
        pair.samples
            .push(sample(medians.ours, 2.0 * medians.round_trip));
        acquire
            .samples
            .push(sample(medians.ours_acquired, medians.round_trip));
        peer.samples.push(sample(medians.ours, medians.theirs));
        ping.samples.push(sample(medians.ours, 2.0 * medians.ping));
    }
    Ok(Measured {
        goal: "P7",
        title: "an uncontended lock on five nodes",
        lines: vec![pair, peer, acquire, ping],
    })
}

fn lines() -> [Line; 4] {
    let line = |figure: &str, baseline: &str, bound| Line {
        figure: figure.into(),
        baseline: baseline.into(),
        unit: "us, median",
        bound,
        setting: format!(
            "{NODES} nodes, {}; one client, one after the other; round trips end with the slowest node",
            servers::REDIS
        ),
        samples: Vec::new(),
    };
    [
        line(
            "acquire + release",
            "two round trips that write a key",
            Bound::AtMost(1.3),
        ),
        line("acquire", "one round trip that writes a key", Bound::None),
        line(
            "acquire + release",
            "rslock, lock + unlock",
            Bound::AtMost(1.1),
        ),
        line("acquire + release", "two round trips of PING", Bound::None),
    ]
}

/// Five independent servers.
pub struct Nodes(Vec<Redis>);

impl Nodes {
    /// Starts empty nodes.
    pub async fn start() -> Result<Self> {
        Ok(Self(
            try_join_all((0..NODES).map(|_| Redis::start())).await?,
        ))
    }

    /// URLs of the nodes.
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(Redis::url).collect()
    }

    /// Stockade's lock, once all nodes vote. New nodes wait for the longest lease.
    pub async fn redlock(&self, retry: Option<Duration>) -> Result<Redlock> {
        let builder = RedlockBuilder::new(self.urls())
            .lease(LEASE)
            .node_timeout(NODE_TIMEOUT);
        let lock = retry
            .map_or(builder.clone(), |retry| builder.retry(retry))
            .build()
            .await?;
        let began = Instant::now();
        while lock
            .status()
            .await
            .iter()
            .any(|node| matches!(node.standing, Standing::Excluded(Exclusion::Forgot { .. })))
        {
            ensure!(began.elapsed() < VOTE_TIMEOUT, "not all nodes vote");
            sleep(POLL_INTERVAL).await;
        }
        Ok(lock)
    }
}

/// The contenders, which take turns.
struct Contenders {
    ours: Redlock,
    theirs: LockManager,
    connections: Vec<MultiplexedConnection>,
    write: Script,
}

impl Contenders {
    async fn open(nodes: &Nodes) -> Result<Self> {
        let (ours, connections, write) = (
            nodes.redlock(None).await?,
            servers::connect_all(&nodes.0).await?,
            Script::new(WRITE),
        );
        for mut connection in connections.clone() {
            write.load_async(&mut connection).await?;
        }
        Ok(Self {
            ours,
            theirs: LockManager::new(nodes.urls()),
            connections,
            write,
        })
    }

    async fn take_turns(&self, slice: Duration, laps: &mut Laps) -> Result<()> {
        let mut turn = 0;
        let mut name = || {
            turn += 1;
            format!("alone-{}", turn % NAMES)
        };
        let began = Instant::now();
        while began.elapsed() < slice {
            laps.round_trip
                .push(timed(self.write_everywhere(&name())).await?);
        }
        let began = Instant::now();
        while began.elapsed() < slice / 2 {
            laps.ping.push(timed(self.ping_everywhere()).await?);
        }
        let began = Instant::now();
        while began.elapsed() < slice {
            let (acquired, all) = self.ours(&name()).await?;
            laps.ours_acquired.push(acquired);
            laps.ours.push(all);
        }
        let began = Instant::now();
        while began.elapsed() < slice {
            laps.theirs.push(timed(self.theirs(&name())).await?);
        }
        Ok(())
    }

    async fn write_everywhere(&self, name: &str) -> Result<()> {
        try_join_all(self.connections.iter().map(|connection| async {
            let mut connection = connection.clone();
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(self.write.get_hash())
                .arg(1)
                .arg(format!("round-trip:{name}"))
                .arg("owner")
                .arg(LEASE.as_millis() as u64);
            command.query_async::<i64>(&mut connection).await
        }))
        .await?;
        Ok(())
    }

    async fn ping_everywhere(&self) -> Result<()> {
        let ping = redis::cmd("PING");
        try_join_all(self.connections.iter().map(|connection| async {
            let mut connection = connection.clone();
            ping.query_async::<String>(&mut connection).await
        }))
        .await?;
        Ok(())
    }

    /// Microseconds until the lock was acquired, and until it was released.
    async fn ours(&self, name: &str) -> Result<(f64, f64)> {
        let began = Instant::now();
        let guard = self.ours.try_acquire(name).await?;
        let acquired = us(began.elapsed());
        guard.release().await?;
        Ok((acquired, us(began.elapsed())))
    }

    async fn theirs(&self, name: &str) -> Result<()> {
        let name = format!("theirs:{name}");
        let lock = self
            .theirs
            .lock(name.as_bytes(), LEASE)
            .await
            .ok()
            .context("rslock did not get an uncontended lock")?;
        lock.release().await;
        Ok(())
    }
}

async fn timed(what: impl Future<Output = Result<()>>) -> Result<f64> {
    let began = Instant::now();
    what.await?;
    Ok(us(began.elapsed()))
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Durations of the turns, in microseconds.
#[derive(Debug, Default)]
struct Laps {
    round_trip: Vec<f64>,
    ping: Vec<f64>,
    ours_acquired: Vec<f64>,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

struct Medians {
    round_trip: f64,
    ping: f64,
    ours_acquired: f64,
    ours: f64,
    theirs: f64,
}

impl Laps {
    fn medians(&self) -> Medians {
        Medians {
            round_trip: median(&self.round_trip),
            ping: median(&self.ping),
            ours_acquired: median(&self.ours_acquired),
            ours: median(&self.ours),
            theirs: median(&self.theirs),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Contenders, Laps, Nodes};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_contender_gets_the_lock_in_turn() {
        let nodes = Nodes::start().await.unwrap();
        let mut laps = Laps::default();
        Contenders::open(&nodes)
            .await
            .unwrap()
            .take_turns(Duration::from_millis(50), &mut laps)
            .await
            .unwrap();
        let medians = laps.medians();
        assert!(
            medians.ours_acquired <= medians.ours
                && medians.ping > 0.0
                && medians.theirs > 0.0
                && medians.round_trip > 0.0
        );
    }
}
