//! A load on one item of a site, with books: what was answered is held against what the service counted and what the ledger has.
//!
//! What a reader could get wrong: when wrk's time is over it drops the connections, each with an order under way. Those are placed, and nobody was told, so
//! the ledger may have up to one order a connection more than were answered, and never one fewer.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::{
    buyers::Crowd,
    goal::Sample,
    site::{Audit, Site},
    wrk::{Answered, Load, load},
};

/// Nobody sells as much.
pub const PLENTY: u64 = 100_000_000;

/// Seconds before a measurement: connections are made, tokens checked for the first time, every status counted.
const WARM_SECONDS: u64 = 1;

/// Longer than a request waits to be read.
const UNREAD: Duration = Duration::from_millis(200);

/// How a sale is made.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// What is sold: a new item.
    pub item: &'a str,
    /// When an order is acknowledged: `recorded` or `accepted`.
    pub durability: &'a str,
    /// The status that says so.
    pub status: u16,
    /// Orders at once.
    pub connections: u32,
    /// How long.
    pub seconds: u64,
}

/// What every answer of a load must have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// An order.
    Held,
    /// The refusal of an item of which nothing is left.
    SoldOut,
}

impl Expected {
    /// As the service counts it.
    fn outcome(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::SoldOut => "sold_out",
        }
    }
}

/// A look at the books of an item.
pub struct Books {
    audit: Audit,
    outcomes: BTreeMap<String, u64>,
}

impl Books {
    /// As they are when nothing is under way any more: of connections that were dropped there may be requests that nobody has read yet.
    pub async fn look(site: &Site, item: &str) -> Result<Self> {
        let mut audit = site.audit(item).await?;
        loop {
            sleep(UNREAD).await;
            let later = site.audit(item).await?;
            if later.held == audit.held {
                return Ok(Self {
                    audit: later,
                    outcomes: site.outcomes().await?,
                });
            }
            audit = later;
        }
    }
}

/// Sells from a new item, of which there is plenty.
pub async fn sell(site: &Site, crowd: &Crowd, terms: Terms<'_>) -> Result<(Answered, Sample)> {
    let Terms {
        item,
        durability,
        status,
        connections,
        seconds,
    } = terms;
    site.open(item, PLENTY, durability).await?;
    let first = site.order(item, "probe").await?;
    ensure!(
        first == status,
        "an order of {item} was answered {first}, not {status}"
    );
    let order = Load::warm(&site.url, item, crowd.tokens(), connections, WARM_SECONDS);
    let warm = load(order).await?;
    ensure!(
        warm.statuses.keys().eq([&status]),
        "orders of {item} were answered {:?}, not all {status}",
        warm.statuses
    );
    let before = Books::look(site, item).await?;
    let answered = load(Load {
        run: "run",
        seconds,
        statuses: false,
        ..order
    })
    .await?;
    let after = Books::look(site, item).await?;
    let sample = settle(Expected::Held, connections, &answered, &before, &after)?;
    Ok((answered, sample))
}

/// Holds what was answered against the books, and says what of it goes into a sample: all but figure and baseline.
pub fn settle(
    expected: Expected,
    connections: u32,
    answered: &Answered,
    before: &Books,
    after: &Books,
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
    use super::{Answered, Books, Expected, settle};
    use crate::site::Audit;

    fn books(held: u64, outcomes: &[(&str, u64)]) -> Books {
        let outcomes = outcomes
            .iter()
            .map(|(outcome, count)| ((*outcome).to_owned(), *count))
            .collect();
        let mut audit = Audit::default();
        audit.held = held;
        Books { audit, outcomes }
    }

    fn answered(answers: u64, refused: u64) -> Answered {
        let text = format!(
            r#"{{"answers":{answers},"micros":1,"refused":{refused},"broken":0,"timeouts":0,"p50_ms":1,"p99_ms":1,"statuses":{{}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn wrong(expected: Expected, answered: &Answered, after: &Books) -> String {
        settle(expected, 10, answered, &books(5, &[("held", 5)]), after)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn orders_that_the_ledger_has_are_accepted_and_nothing_else_is() {
        let (before, after) = (books(5, &[("held", 5)]), books(107, &[("held", 106)]));
        let sample = settle(Expected::Held, 10, &answered(100, 0), &before, &after).unwrap();
        assert_eq!((sample.accepted, sample.rejected), (100, 0));
        let after = books(5, &[("held", 5), ("sold_out", 90)]);
        let sample = settle(Expected::SoldOut, 10, &answered(90, 90), &before, &after).unwrap();
        assert_eq!((sample.accepted, sample.rejected), (0, 90));
    }

    #[test]
    fn an_acknowledged_order_that_the_ledger_does_not_have_is_found_and_so_is_one_too_many() {
        assert!(
            wrong(
                Expected::Held,
                &answered(100, 0),
                &books(104, &[("held", 105)])
            )
            .contains("the ledger has 99")
        );
        assert!(
            wrong(
                Expected::Held,
                &answered(100, 0),
                &books(116, &[("held", 105)])
            )
            .contains("the ledger has 111")
        );
        assert!(
            wrong(
                Expected::SoldOut,
                &answered(9, 9),
                &books(6, &[("held", 5), ("sold_out", 9)])
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
                &books(105, &[("held", 105)])
            )
            .contains("1 of 100")
        );
        assert!(
            wrong(
                Expected::SoldOut,
                &answered(100, 99),
                &books(5, &[("held", 5), ("sold_out", 100)])
            )
            .contains("1 of 100")
        );
    }

    #[test]
    fn an_answer_of_another_kind_ends_the_run() {
        let text = wrong(
            Expected::Held,
            &answered(100, 0),
            &books(105, &[("held", 105), ("outcome_unknown", 2)]),
        );
        assert!(text.contains("2 answers were outcome_unknown"), "{text}");
    }
}
