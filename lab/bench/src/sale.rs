//! A load on one item. The answers are compared with the history: the service's counters and the
//! ledger.
//!
//! When its time ends, wrk closes its connections, each with an order in flight. The service places
//! these orders without a client to answer. The ledger may therefore have up to one order per
//! connection more than were answered, but never one fewer.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use client::{Audit, Durability};
use tokio::time::sleep;

use crate::{
    buyers::Crowd,
    goal::Sample,
    test_env::TestEnv,
    wrk::{Answered, Load, load},
};

/// Stock that no measurement exhausts.
pub const PLENTY: u64 = 100_000_000;

/// Warm-up before a measurement: it opens connections, fills the token cache and counts every
/// status.
const WARM_SECONDS: u64 = 1;

/// Longer than a request waits until the service reads it.
const DRAIN_INTERVAL: Duration = Duration::from_millis(200);

/// Terms of a sale.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// A new item.
    pub item: &'a str,
    /// Number of its segments.
    pub segments: u16,
    /// When an order is acknowledged: `recorded` or `accepted`.
    pub durability: Durability,
    /// Status of an acknowledged order.
    pub status: u16,
    /// Concurrent orders.
    pub connections: u32,
    /// Duration.
    pub seconds: u64,
}

/// What every answer of a load must have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// An order.
    Held,
    /// The refusal of a sold-out item.
    SoldOut,
}

impl Expected {
    /// Name of the outcome in the service's counters.
    fn outcome(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::SoldOut => "sold_out",
        }
    }
}

/// Audit and counters of an item at one moment.
pub struct History {
    audit: Audit,
    outcomes: BTreeMap<String, u64>,
}

impl History {
    /// Reads them when nothing is in flight any more: closed connections may have left requests
    /// that the service has not read yet.
    pub async fn read(env: &TestEnv, item: &str) -> Result<Self> {
        let mut audit = env.audit(item).await?;
        loop {
            sleep(DRAIN_INTERVAL).await;
            let later = env.audit(item).await?;
            if later.held == audit.held {
                return Ok(Self {
                    audit: later,
                    outcomes: env.outcomes().await?,
                });
            }
            audit = later;
        }
    }
}

/// Sells from a new item with plenty of stock.
pub async fn sell(env: &TestEnv, crowd: &Crowd, terms: Terms<'_>) -> Result<(Answered, Sample)> {
    let begun = Begun::begin(env, crowd, terms).await?;
    let answered = begun.load(env, crowd).await?;
    let sample = begun.settle(env, &answered).await?;
    Ok((answered, sample))
}

/// A sale that is warm, and whose history so far has been read.
pub struct Begun<'a> {
    terms: Terms<'a>,
    before: History,
}

impl<'a> Begun<'a> {
    /// Opens the item, and sells from it for a moment.
    pub async fn begin(env: &TestEnv, crowd: &Crowd, terms: Terms<'a>) -> Result<Self> {
        let Terms {
            item,
            segments,
            durability,
            status,
            connections,
            ..
        } = terms;
        env.open_in(segments, item, PLENTY, durability).await?;
        let first = env.order(item, "probe").await?;
        ensure!(
            first == status,
            "an order of {item} was answered {first}, not {status}"
        );
        let order = Load::warm(&env.url, item, crowd.tokens(), connections, WARM_SECONDS);
        let warm = load(order).await?;
        ensure!(
            warm.statuses.keys().eq([&status]),
            "orders of {item} were answered {:?}, not all {status}",
            warm.statuses
        );
        let before = History::read(env, item).await?;
        Ok(Self { terms, before })
    }

    /// Sells. Nothing is audited meanwhile.
    pub async fn load(&self, env: &TestEnv, crowd: &Crowd) -> Result<Answered> {
        let Terms {
            item,
            connections,
            seconds,
            ..
        } = self.terms;
        load(Load {
            run: "run",
            seconds,
            statuses: false,
            ..Load::warm(&env.url, item, crowd.tokens(), connections, seconds)
        })
        .await
    }

    /// Compares the answers with the history, once everything is recorded.
    pub async fn settle(&self, env: &TestEnv, answered: &Answered) -> Result<Sample> {
        let after = History::read(env, self.terms.item).await?;
        let connections = self.terms.connections;
        settle(Expected::Held, connections, answered, &self.before, &after)
    }
}

/// Compares the answers with the history. Returns the sample, without figure and baseline.
pub fn settle(
    expected: Expected,
    connections: u32,
    answered: &Answered,
    before: &History,
    after: &History,
) -> Result<Sample> {
    let Answered {
        answers, refused, ..
    } = *answered;
    let outcome = expected.outcome();
    for (other, count) in &after.outcomes {
        let counted = count - before.outcomes.get(other).copied().unwrap_or_default();
        ensure!(
            other == outcome || counted == 0,
            "{counted} answers were {other}, where all should have been {outcome}"
        );
    }
    let held = after.audit.held - before.audit.held;
    let (accepted, most) = match expected {
        Expected::Held => (answers - refused, answers + u64::from(connections)),
        Expected::SoldOut => (0, 0),
    };
    let rejected = answers - accepted;
    ensure!(
        expected == Expected::SoldOut || rejected == 0,
        "{rejected} of {answers} answers were no orders"
    );
    ensure!(
        expected == Expected::Held || refused == answers,
        "{} of {answers} answers were no refusals",
        answers - refused
    );
    ensure!(
        (accepted..=most).contains(&held),
        "{accepted} orders were acknowledged over {connections} connections, and the ledger has {held} more than before"
    );
    Ok(Sample {
        accepted,
        rejected,
        drift: i64::try_from(after.audit.drift)?,
        oversold: after.audit.oversold,
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{Answered, Expected, History, settle};
    use client::Audit;

    fn history(held: u64, outcomes: &[(&str, u64)]) -> History {
        let outcomes = outcomes
            .iter()
            .map(|(outcome, count)| ((*outcome).to_owned(), *count))
            .collect();
        let audit = Audit {
            held,
            ..Audit::default()
        };
        History { audit, outcomes }
    }

    fn answered(answers: u64, refused: u64) -> Answered {
        let text = format!(
            r#"{{"answers":{answers},"micros":1,"refused":{refused},"broken":0,"timeouts":0,"p50_ms":1,"p99_ms":1,"statuses":{{}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn wrong(expected: Expected, answered: &Answered, after: &History) -> String {
        settle(expected, 10, answered, &history(5, &[("held", 5)]), after)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn orders_that_the_ledger_has_are_accepted_and_nothing_else_is() {
        let (before, after) = (history(5, &[("held", 5)]), history(107, &[("held", 106)]));
        let sample = settle(Expected::Held, 10, &answered(100, 0), &before, &after).unwrap();
        assert_eq!((sample.accepted, sample.rejected), (100, 0));
        let after = history(5, &[("held", 5), ("sold_out", 90)]);
        let sample = settle(Expected::SoldOut, 10, &answered(90, 90), &before, &after).unwrap();
        assert_eq!((sample.accepted, sample.rejected), (0, 90));
    }

    #[test]
    fn an_acknowledged_order_that_the_ledger_does_not_have_is_found_and_so_is_one_too_many() {
        assert!(
            wrong(
                Expected::Held,
                &answered(100, 0),
                &history(104, &[("held", 105)])
            )
            .contains("the ledger has 99")
        );
        assert!(
            wrong(
                Expected::Held,
                &answered(100, 0),
                &history(116, &[("held", 105)])
            )
            .contains("the ledger has 111")
        );
        assert!(
            wrong(
                Expected::SoldOut,
                &answered(9, 9),
                &history(6, &[("held", 5), ("sold_out", 9)])
            )
            .contains("the ledger has 1")
        );
    }

    #[test]
    fn a_refusal_is_no_order_and_an_order_no_refusal() {
        assert!(
            wrong(
                Expected::Held,
                &answered(100, 1),
                &history(105, &[("held", 105)])
            )
            .contains("1 of 100")
        );
        assert!(
            wrong(
                Expected::SoldOut,
                &answered(100, 99),
                &history(5, &[("held", 5), ("sold_out", 100)])
            )
            .contains("1 of 100")
        );
    }

    #[test]
    fn an_answer_of_another_kind_ends_the_run() {
        let text = wrong(
            Expected::Held,
            &answered(100, 0),
            &history(105, &[("held", 105), ("outcome_unknown", 2)]),
        );
        assert!(text.contains("2 answers were outcome_unknown"), "{text}");
    }
}
