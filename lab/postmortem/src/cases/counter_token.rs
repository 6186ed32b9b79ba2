//! Counters as tokens: every node of a Redlock counts its holders, and the highest count is the
//! token.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use futures::future::try_join_all;
use testbed::{Proxy, Redis, Traffic};

use super::keeper::{
    Check, DECIDED, Keeping, Kept, Locks, Row, Work, ballot, keeper, lock_is_free,
};
use crate::{
    actor::{Actor, Stop},
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::Event,
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(12);
const UNITS: u64 = 10;
const NODES: usize = 3;
/// Number of the node that each keeper cannot reach.
const UNREACHABLE_NODES: [usize; 3] = [3, 1, 2];

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("counter-token", include_str!("counter_token.toml"))
        .knobs(&[Knob::Stock, Knob::Lease])
        .faulty("highest count", |env| {
            Box::pin(hand_written(env, Locks::HighestCount))
        })
        .does_not_help("count read late", |env| {
            Box::pin(hand_written(env, Locks::CountReadLater))
        })
        .does_not_help("incremented late", |env| {
            Box::pin(hand_written(env, Locks::CountedLater))
        })
        .does_not_help("two rounds", |env| {
            Box::pin(hand_written(env, Locks::TwoRounds))
        })
        .does_not_help("one node counts", |env| {
            Box::pin(hand_written(env, Locks::CountOfTheFirst))
        })
        .holds("ballot", |env| Box::pin(with_ballot(env)))
}

async fn hand_written(env: &TestEnv, locks: fn(Vec<String>) -> Locks) -> Result<Measurements> {
    run(env, &Nodes::start(env).await?, locks).await
}

async fn with_ballot(env: &TestEnv) -> Result<Measurements> {
    let nodes = Nodes::start(env).await?;
    nodes.wait_for_admission(env.pace.real(lease(env))).await?;
    run(env, &nodes, Locks::Ballot).await
}

fn lease(env: &TestEnv) -> Duration {
    env.what_if.lease.unwrap_or(LEASE)
}

async fn run(
    env: &TestEnv,
    nodes: &Nodes,
    locks: fn(Vec<String>) -> Locks,
) -> Result<Measurements> {
    let lease = lease(env);
    let units = env.what_if.stock.unwrap_or(UNITS);
    let row = Row::create(env, units).await?;
    let keeping = Keeping {
        work: Work::Sale,
        checks_lease: false,
        check: Check::Fence,
    };
    let mut keepers = Vec::new();
    for (index, out_of_reach) in UNREACHABLE_NODES.into_iter().enumerate() {
        let number = index + 1;
        let keeper = keeper(
            env,
            &row,
            number,
            lease,
            locks(nodes.seen_by(number)),
            keeping,
        )
        .await?;
        keeper
            .lane()
            .notes(Event::Fault, format!("cannot reach node {out_of_reach}"));
        keepers.push(keeper);
    }
    let [one, two, three] = keepers.as_mut_slice() else {
        bail!("expected three keepers")
    };
    let mut kept = vec![one.finish::<Kept>().await?];
    row.stock().await?;
    let decided = run_to_decision(two, &mut kept).await?;
    let stopped = if decided {
        Some(two.pause().await?)
    } else {
        None
    };
    lock_is_free(&nodes.servers).await?;
    kept.push(three.finish().await?);
    row.stock().await?;
    if let Some(stopped) = stopped {
        two.resume(stopped).await?;
        kept.push(two.finish().await?);
    }
    count(env, &row, units, &kept).await
}

/// Runs a keeper until it is about to write, and returns true; returns false if it ends earlier.
async fn run_to_decision(keeper: &mut Actor, kept: &mut Vec<Kept>) -> Result<bool> {
    loop {
        match keeper.next().await? {
            Stop::At(point) if point == DECIDED => return Ok(true),
            Stop::At(_) => {}
            Stop::Done(result) => {
                kept.push(serde_json::from_value(result)?);
                return Ok(false);
            }
        }
    }
}

async fn count(env: &TestEnv, row: &Row, units: u64, kept: &[Kept]) -> Result<Measurements> {
    // Units that are left according to the row are sold as well.
    let sold = row.writes().await? + row.stock().await?;
    let measurements =
        Measurements::of(&env.timeline).judge_sale(units, sold, units.saturating_sub(sold));
    let failed = kept.iter().filter(|kept| kept.without_token).count();
    let measurements = measurements.judge(Measure::LostUpdates, row.lost_updates().await?, 0);
    let measurements = measurements.judge(
        Measure::DuplicateTokens,
        duplicates(kept.iter().flat_map(|kept| &kept.tokens)),
        0,
    );
    Ok(measurements.judge(Measure::FailedRequests, u64::try_from(failed)?, 0))
}

/// Counts the tokens that had been issued before.
fn duplicates<'a>(tokens: impl IntoIterator<Item = &'a i64>) -> u64 {
    let mut given = BTreeSet::new();
    tokens
        .into_iter()
        .map(|token| u64::from(!given.insert(token)))
        .sum()
}

/// The nodes, and the proxies of the keepers.
struct Nodes {
    servers: Vec<Redis>,
    /// Proxies of the nodes that a keeper cannot reach: they cut every connection.
    cuts: Vec<Proxy>,
}

impl Nodes {
    async fn start(env: &TestEnv) -> Result<Self> {
        let servers = try_join_all((0..NODES).map(|_| env.redis())).await?;
        let mut cuts = Vec::new();
        for node in UNREACHABLE_NODES {
            let cut = Proxy::start(servers[node - 1].port()).await?;
            cut.set(Traffic::Reset);
            cuts.push(cut);
        }
        Ok(Self { servers, cuts })
    }

    /// Returns the addresses that a keeper uses.
    fn seen_by(&self, keeper: usize) -> Vec<String> {
        let mut urls: Vec<_> = self.servers.iter().map(Redis::url).collect();
        urls[UNREACHABLE_NODES[keeper - 1] - 1] =
            format!("redis://127.0.0.1:{}", self.cuts[keeper - 1].port());
        urls
    }

    /// Waits until new nodes vote, which takes the longest lease.
    async fn wait_for_admission(&self, lease: Duration) -> Result<()> {
        let urls: Vec<_> = self.servers.iter().map(Redis::url).collect();
        ballot(&urls, lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::duplicates;

    #[test]
    fn a_token_is_a_duplicate_each_time_it_is_issued_again() {
        assert_eq!(duplicates(&[]), 0);
        assert_eq!(duplicates(&[1, 2, 3]), 0);
        assert_eq!(duplicates(&[1, 2, 2]), 1);
        assert_eq!(duplicates(&[2, 1, 2, 2]), 2);
    }
}
