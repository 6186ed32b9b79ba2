//! The counter as a token: every node of a Redlock counts its holders, and the highest count is the token.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use async_trait::async_trait;
use futures::future::try_join_all;
use testbed::{Proxy, Redis, Traffic};

use super::keeper::{
    Check, DECIDED, Keeping, Kept, Locks, Row, Work, ballot, keeper, lock_is_free,
};
use crate::{
    actor::{Actor, Stop},
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// The case.
pub struct CounterToken;

const STORY: &str = "the highest count";
const READ_LATER: &str = "the count is read later";
const COUNTED_LATER: &str = "counted when needed";
const TWO_ROUNDS: &str = "two rounds";
const COUNT_OF_THE_FIRST: &str = "one node counts";
const BALLOT: &str = "ballot";

const LEASE: Duration = Duration::from_secs(12);
const UNITS: u64 = 10;
const NODES: usize = 3;
/// Which node each keeper cannot reach.
const OUT_OF_REACH: [usize; 3] = [3, 1, 2];

#[async_trait]
impl Case for CounterToken {
    fn name(&self) -> &'static str {
        "counter-token"
    }

    fn story(&self) -> Story {
        Story {
            title: "Counters on several nodes that give a token twice",
            told: "Redlock has no fencing tokens, and whoever wants some is tempted to let each node count its holders and to take the highest \
                   count of the quorum. Martin Kleppmann warned that counters on several nodes go out of sync, and that one on a single node is \
                   as good as that node. Three holders one after the other are enough, each with a quorum, none of them late: 1, 2, 2.",
            sources: &[(
                "Martin Kleppmann: How to do distributed locking",
                "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
            )],
            schedule: "Ten units, and three nodes, of which each keeper reaches two: keeper 1 not node 3, keeper 2 not node 1, keeper 3 not \
                       node 2. Keeper 1 sells a unit. Keeper 2 has read the stock and is stopped (SIGSTOP) before it writes, until its lease is \
                       over. Keeper 3 sells a unit. Then keeper 2 wakes up. The row refuses tokens that are lower than the highest it has seen; \
                       who is refused begins anew. In the end the shop sells what the row says is left.",
            instead: "Let the quorum agree on the token together with the lock: propose a number, and a node accepts it only if it is higher than \
                      all that it has accepted. Two quorums share a node, so two holders never share a number. And let the row check a version, \
                      too: then even a token that was given twice does no harm.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "SET NX PX and INCR on each node; the token is the highest count of the quorum",
                "two quorums share a node, but that node need not have the highest count",
            ),
            Way::does_not_help(
                READ_LATER,
                "the same, but the counts are read when the token is needed, just before the write",
                "who comes late reads its successor's token",
            ),
            Way::does_not_help(
                COUNTED_LATER,
                "SET NX PX on each node; INCR on each when the token is needed, just before the write",
                "a number that is drawn late is as high as the successor's, or higher: it tells who wrote last, not who held the lock last",
            ),
            Way::does_not_help(
                TWO_ROUNDS,
                "the quorum is asked for its highest number with the lock, and told the next one before the write: each node keeps the higher",
                "two may be told the same highest number, and a node that has the next one already does not object",
            ),
            Way::does_not_help(
                COUNT_OF_THE_FIRST,
                "SET NX PX on each node; the token is an INCR on the first of them",
                "no token is given twice, but who cannot reach that one node has a quorum and no token",
            ),
            Way::holds(
                BALLOT,
                "the quorum accepts the token with the lock, each node only a higher one than all before",
                "the node that two quorums share refuses a number that it has accepted",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock, Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let lease = stage.what_if.lease.unwrap_or(LEASE);
        let nodes = Nodes::start(stage).await?;
        let locks = match way {
            STORY => Locks::HighestCount,
            READ_LATER => Locks::CountReadLater,
            COUNTED_LATER => Locks::CountedLater,
            TWO_ROUNDS => Locks::TwoRounds,
            COUNT_OF_THE_FIRST => Locks::CountOfTheFirst,
            BALLOT => {
                nodes.are_admitted(stage.pace.real(lease)).await?;
                Locks::Ballot
            }
            _ => bail!("no such way: {way}"),
        };
        play(stage, &nodes, locks, lease).await
    }
}

async fn play(
    stage: &Stage,
    nodes: &Nodes,
    locks: fn(Vec<String>) -> Locks,
    lease: Duration,
) -> Result<Evidence> {
    let units = stage.what_if.stock.unwrap_or(UNITS);
    let row = Row::create(stage, units).await?;
    let keeping = Keeping {
        work: Work::Sale,
        looks_first: false,
        check: Check::Fence,
    };
    let mut keepers = Vec::new();
    for (index, out_of_reach) in OUT_OF_REACH.into_iter().enumerate() {
        let number = index + 1;
        let keeper = keeper(
            stage,
            &row,
            number,
            lease,
            locks(nodes.seen_by(number)),
            keeping,
        )
        .await?;
        keeper.lane().notes(
            Event::Fault,
            format!("node {out_of_reach} is out of its reach"),
        );
        keepers.push(keeper);
    }
    let [one, two, three] = keepers.as_mut_slice() else {
        bail!("three keepers")
    };
    let mut kept = vec![one.finish::<Kept>().await?];
    row.stock().await?;
    let decided = stands_or_is_done(two, &mut kept).await?;
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
    count(stage, &row, units, &kept).await
}

/// Whether a keeper stands before its write. If not, it is done.
async fn stands_or_is_done(keeper: &mut Actor, kept: &mut Vec<Kept>) -> Result<bool> {
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

async fn count(stage: &Stage, row: &Row, units: u64, kept: &[Kept]) -> Result<Evidence> {
    // What the row says is left is sold, too.
    let sold = row.writes().await? + row.stock().await?;
    let evidence = Evidence::new()
        .sold(units, sold)
        .stranded(units.saturating_sub(sold))
        .holders(stage.timeline.holders_at_once());
    let evidence = evidence
        .stuck(stage.timeline.longest(Doing::Waiting))
        .judge_oversold()
        .judge_stranded();
    let failed = kept.iter().filter(|kept| kept.without_token).count();
    let evidence = evidence.judge(Measure::LostUpdates, row.lost_updates().await?, 0);
    let evidence = evidence.judge(
        Measure::DuplicateTokens,
        duplicates(kept.iter().flat_map(|kept| &kept.tokens)),
        0,
    );
    Ok(evidence.judge(Measure::FailedRequests, u64::try_from(failed)?, 0))
}

/// How many tokens had been given before.
fn duplicates<'a>(tokens: impl IntoIterator<Item = &'a i64>) -> u64 {
    let mut given = BTreeSet::new();
    tokens
        .into_iter()
        .map(|token| u64::from(!given.insert(token)))
        .sum()
}

/// The nodes, and what is in the way of each keeper.
struct Nodes {
    servers: Vec<Redis>,
    /// In front of the node that each keeper cannot reach: every connection is cut.
    cuts: Vec<Proxy>,
}

impl Nodes {
    async fn start(stage: &Stage) -> Result<Self> {
        let servers = try_join_all((0..NODES).map(|_| stage.redis())).await?;
        let mut cuts = Vec::new();
        for node in OUT_OF_REACH {
            let cut = Proxy::start(servers[node - 1].port()).await?;
            cut.set(Traffic::Reset);
            cuts.push(cut);
        }
        Ok(Self { servers, cuts })
    }

    /// Where a keeper finds them.
    fn seen_by(&self, keeper: usize) -> Vec<String> {
        let mut urls: Vec<_> = self.servers.iter().map(Redis::url).collect();
        urls[OUT_OF_REACH[keeper - 1] - 1] =
            format!("redis://127.0.0.1:{}", self.cuts[keeper - 1].port());
        urls
    }

    /// New nodes vote when the longest lease is over.
    async fn are_admitted(&self, lease: Duration) -> Result<()> {
        let urls: Vec<_> = self.servers.iter().map(Redis::url).collect();
        ballot(&urls, lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::duplicates;

    #[test]
    fn a_token_is_a_duplicate_each_time_it_is_given_again() {
        assert_eq!(duplicates(&[]), 0);
        assert_eq!(duplicates(&[1, 2, 3]), 0);
        assert_eq!(duplicates(&[1, 2, 2]), 1);
        assert_eq!(duplicates(&[2, 1, 2, 2]), 2);
    }
}
