//! Our books against the service's audit.

use std::{collections::BTreeMap, fmt};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{closing::Closed, tally::Tally};

/// What was asked of the run.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Requests, if their number was given.
    pub requests: Option<u64>,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Units must have come back and been bought again, or the run has shown nothing.
    pub must_resell: bool,
}

/// What came of an item.
#[derive(Debug, Clone, Serialize)]
pub struct ItemVerdict {
    /// Which.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Units of all orders that were acknowledged to us and have not come back.
    pub units_sold: u64,
    /// Units of all orders that the ledger has.
    pub units_recorded: u64,
    /// Units of orders that were placed beyond the stock, because others had come back.
    pub units_resold: u64,
    /// Acknowledged and not recorded; negative if it is the other way round.
    pub lost: i64,
    /// Units that are left although buyers of one unit were told that none is, and where units return: that nobody could buy then.
    pub stranded: u64,
    /// Units that were bought at the closing to see that they can be.
    pub swept: u64,
    /// Units that the audit cannot explain.
    pub drift: u64,
    /// Units promised beyond the stock, by the audit or by what was acknowledged to us, whichever is worse.
    pub oversold: u64,
    /// What is wrong.
    pub findings: Vec<String>,
}

/// What came of a run. Units are sums over the items.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Which scenario.
    pub scenario: String,
    /// Each item.
    pub items: Vec<ItemVerdict>,
    /// Requests that were answered, or given up.
    pub requested: u64,
    /// Orders that were placed.
    pub held: u64,
    /// Refused: nothing is left.
    pub sold_out: u64,
    /// Refused: the buyer's limit.
    pub limited: u64,
    /// Repeats that got the answer of the first request.
    pub replayed: u64,
    /// Items and orders that were shown, or rightly not shown.
    pub looks: u64,
    /// Payments that were taken in, repeats included.
    pub payments: u64,
    /// Cancellations and refunds that were accepted, repeats included.
    pub ends: u64,
    /// Payments, cancellations and refunds that were rightly refused.
    pub declined: u64,
    /// Requests whose answer the client did not wait for.
    pub given_up: u64,
    /// Anything else.
    pub errors: u64,
    /// What they were, and how often.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Units that exist.
    pub stock: u64,
    /// Units of all orders that were acknowledged to us and have not come back.
    pub units_sold: u64,
    /// Units that came back.
    pub units_returned: u64,
    /// Units of orders that were placed beyond the stock, because others had come back.
    pub units_resold: u64,
    /// Units that were bought at the closing to see that they can be.
    pub swept: u64,
    /// Acknowledged and not recorded; negative if it is the other way round.
    pub lost: i64,
    /// Units that nobody could buy although they are there.
    pub stranded: u64,
    /// Units that the audit cannot explain.
    pub drift: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
    /// Orders placed a second, until the last was placed.
    pub orders_per_second: f64,
    /// Answers of every kind a second, over the whole run.
    pub answers_per_second: f64,
    /// Half of the placed orders took no longer.
    pub order_latency_ms_p50: f64,
    /// 99 of 100 placed orders took no longer.
    pub order_latency_ms_p99: f64,
    /// Half of all answers took no longer.
    pub answer_latency_ms_p50: f64,
    /// 99 of 100 answers took no longer.
    pub answer_latency_ms_p99: f64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Nothing is wrong.
    pub good: bool,
    /// What is wrong.
    pub findings: Vec<String>,
}

impl ItemVerdict {
    /// Holds the books of an item against its audit.
    pub fn new(tally: &Tally, closed: &Closed) -> Self {
        let (audit, item) = (&closed.audit, closed.item);
        let (units_sold, units_recorded) = (tally.units(item), audit.held + audit.confirmed);
        let mut verdict = Self {
            item: closed.on_sale.id.clone(),
            stock: audit.stock,
            units_sold,
            units_recorded,
            units_resold: tally
                .units_placed(item)
                .saturating_sub(closed.swept)
                .saturating_sub(audit.stock),
            lost: signed(units_sold) - signed(units_recorded),
            stranded: closed.stranded,
            swept: closed.swept,
            drift: audit.drift,
            oversold: audit.oversold.max(units_sold.saturating_sub(audit.stock)),
            findings: Vec::new(),
        };
        verdict.findings = verdict.find(closed, tally.units_paid(item));
        verdict
    }

    fn find(&self, closed: &Closed, units_paid: u64) -> Vec<String> {
        let audit = &closed.audit;
        let mut findings = Vec::new();
        let mut must = |holds: bool, finding: String| {
            if !holds {
                findings.push(finding);
            }
        };
        must(
            self.lost <= 0,
            format!(
                "{} units were acknowledged and are not in the ledger",
                self.lost
            ),
        );
        must(
            self.lost >= 0,
            format!(
                "{} units are in the ledger and were acknowledged to nobody",
                -self.lost
            ),
        );
        must(
            units_paid == audit.confirmed,
            format!(
                "{units_paid} units were paid by what we were told, and {} by the ledger",
                audit.confirmed
            ),
        );
        must(
            self.stranded == 0,
            format!(
                "{} units are left although buyers were told that none is",
                self.stranded
            ),
        );
        must(
            self.drift == 0,
            format!("the audit cannot explain {} units", self.drift),
        );
        must(
            self.oversold == 0,
            format!("{} units were promised beyond the stock", self.oversold),
        );
        must(
            audit.in_flight == 0,
            format!(
                "{} units are still on their way to the ledger",
                audit.in_flight
            ),
        );
        must(
            audit.returning == 0,
            format!("{} units are still on their way back", audit.returning),
        );
        for segment in &audit.segments {
            must(
                segment.finding.is_none(),
                format!(
                    "segment {}: {}",
                    segment.segment,
                    segment.finding.as_deref().unwrap_or_default()
                ),
            );
        }
        findings
    }
}

impl Verdict {
    /// Holds the books against the audits.
    pub fn new(scenario: &str, tally: &Tally, closed: &[Closed], demand: Demand) -> Self {
        let errors_by_kind = errors(tally, demand);
        let items: Vec<_> = closed
            .iter()
            .map(|closed| ItemVerdict::new(tally, closed))
            .collect();
        let sum = |units: fn(&ItemVerdict) -> u64| items.iter().map(units).sum();
        let mut verdict = Self {
            scenario: scenario.to_owned(),
            requested: tally.requested,
            held: tally.held,
            sold_out: tally.sold_out,
            limited: tally.limited,
            replayed: tally.replayed,
            looks: tally.looks,
            payments: tally.payments,
            ends: tally.ends,
            declined: tally.declined,
            given_up: tally.given_up,
            errors: errors_by_kind.values().sum(),
            errors_by_kind,
            stock: sum(|item| item.stock),
            units_sold: sum(|item| item.units_sold),
            units_returned: tally.units_returned,
            units_resold: sum(|item| item.units_resold),
            swept: sum(|item| item.swept),
            lost: items.iter().map(|item| item.lost).sum(),
            stranded: sum(|item| item.stranded),
            drift: sum(|item| item.drift),
            oversold: sum(|item| item.oversold),
            orders_per_second: rate(tally.held, tally.last_held.as_secs_f64()),
            answers_per_second: rate(tally.requested - tally.given_up, tally.last.as_secs_f64()),
            order_latency_ms_p50: percentile_ms(&tally.held_latency, 50.0),
            order_latency_ms_p99: percentile_ms(&tally.held_latency, 99.0),
            answer_latency_ms_p50: percentile_ms(&tally.latency, 50.0),
            answer_latency_ms_p99: percentile_ms(&tally.latency, 99.0),
            seconds: rounded(tally.last.as_secs_f64(), 1_000.0),
            good: false,
            findings: Vec::new(),
            items,
        };
        verdict.findings = verdict.find(demand);
        verdict.good = verdict.findings.is_empty();
        verdict
    }

    fn find(&self, demand: Demand) -> Vec<String> {
        let mut findings: Vec<_> = self
            .errors_by_kind
            .iter()
            .map(|(kind, count)| format!("{count} x {kind}"))
            .collect();
        if let Some(requests) = demand
            .requests
            .filter(|requests| *requests != self.requested)
        {
            findings.push(format!(
                "the run ended after {} of {requests} requests",
                self.requested
            ));
        }
        if self.requested == 0 {
            findings.push("no request was made".into());
        }
        if demand.must_resell && self.units_resold == 0 {
            findings.push("no unit that came back was bought again: the run needs more requests, or less stock".into());
        }
        let name = |item: &ItemVerdict| {
            if self.items.len() > 1 {
                format!("{}: ", item.item)
            } else {
                String::new()
            }
        };
        for item in &self.items {
            findings.extend(
                item.findings
                    .iter()
                    .map(|finding| format!("{}{finding}", name(item))),
            );
        }
        findings
    }

    fn rows(&self) -> [(&'static str, String); 26] {
        [
            ("requested", self.requested.to_string()),
            ("held", self.held.to_string()),
            ("sold out", self.sold_out.to_string()),
            ("limited", self.limited.to_string()),
            ("replayed", self.replayed.to_string()),
            ("looks", self.looks.to_string()),
            ("payments", self.payments.to_string()),
            ("cancelled, refunded", self.ends.to_string()),
            ("declined", self.declined.to_string()),
            ("given up", self.given_up.to_string()),
            ("errors", self.errors.to_string()),
            ("units sold", self.units_sold.to_string()),
            ("units returned", self.units_returned.to_string()),
            ("units bought again", self.units_resold.to_string()),
            ("bought at the closing", self.swept.to_string()),
            ("stock", self.stock.to_string()),
            ("lost", self.lost.to_string()),
            ("stranded", self.stranded.to_string()),
            ("drift", self.drift.to_string()),
            ("oversold", self.oversold.to_string()),
            (
                "orders/s until the last",
                format!("{:.0}", self.orders_per_second),
            ),
            ("answers/s", format!("{:.0}", self.answers_per_second)),
            (
                "p50 of placed orders, ms",
                format!("{:.1}", self.order_latency_ms_p50),
            ),
            (
                "p99 of placed orders, ms",
                format!("{:.1}", self.order_latency_ms_p99),
            ),
            (
                "p50 of all answers, ms",
                format!("{:.1}", self.answer_latency_ms_p50),
            ),
            (
                "p99 of all answers, ms",
                format!("{:.1}", self.answer_latency_ms_p99),
            ),
        ]
    }

    fn items_in_words(&self) -> String {
        match self.items.as_slice() {
            [item] => item.item.clone(),
            items => format!("{} items", items.len()),
        }
    }
}

/// Kinds of answers that a scenario may well have none of.
const ONLY_IF_ANY: [&str; 8] = [
    "looks",
    "payments",
    "cancelled, refunded",
    "declined",
    "given up",
    "units returned",
    "units bought again",
    "bought at the closing",
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table
            .load_style(UTF8_FULL_CONDENSED)
            .set_header([&self.scenario, &self.items_in_words()]);
        for (name, value) in self.rows() {
            if value != "0" || !ONLY_IF_ANY.contains(&name) {
                table.add_row([name.to_owned(), value]);
            }
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        write!(f, "{}", if self.good { "GOOD" } else { "NOT GOOD" })
    }
}

fn errors(tally: &Tally, demand: Demand) -> BTreeMap<String, u64> {
    let mut errors = tally.errors.clone();
    let beyond = tally.buyers_beyond(demand.limit);
    if beyond > 0 {
        errors.insert("a buyer holds more than the limit".into(), beyond);
    }
    errors
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// A number a second.
#[expect(clippy::cast_precision_loss, reason = "nobody counts to 2^53 here")]
pub fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        rounded(count as f64 / seconds, 10.0)
    } else {
        0.0
    }
}

/// Milliseconds that so many of a hundred took at most.
#[expect(
    clippy::cast_precision_loss,
    reason = "nobody waits for 2^53 microseconds"
)]
pub fn percentile_ms(micros: &Histogram<u64>, percent: f64) -> f64 {
    rounded(
        micros.value_at_percentile(percent) as f64 / 1_000.0,
        1_000.0,
    )
}

fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::{Url, header::HeaderValue};
    use uuid::Uuid;

    use super::{Demand, Verdict};
    use crate::{
        admin::Audit,
        answer::Answer,
        closing::Closed,
        items::OnSale,
        scenario::Shelf,
        tally::{Answered, Tally},
        wish::{Placed, State, Wish},
    };

    type Given = (Answer, Option<&'static str>);

    const TIME: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(500));

    /// Books of buyers 0, 1, ..., each answered as here, for one unit.
    fn books(answers: &[Given]) -> Tally {
        let mut tally = Tally::new().unwrap();
        let wish = Wish::Order {
            key: HeaderValue::from_static("k"),
            quantity: 1,
        };
        for (buyer, (answer, flaw)) in answers.iter().enumerate() {
            tally.enter(&Answered {
                buyer,
                item: 0,
                wish: &wish,
                answer,
                flaw: *flaw,
                took: TIME.0,
                at: TIME.1,
            });
        }
        tally
    }

    fn pay(tally: &mut Tally, id: u128, state: State) {
        let wish = Wish::Pay {
            order: Placed {
                id: Uuid::from_u128(id),
                quantity: 1,
            },
            payment: "pay_1".into(),
        };
        tally.enter(&Answered {
            buyer: 0,
            item: 0,
            wish: &wish,
            answer: &Answer::Stands(state),
            flaw: None,
            took: TIME.0,
            at: TIME.1,
        });
    }

    fn held(id: u128) -> Given {
        (
            Answer::Held {
                id: Uuid::from_u128(id),
                replayed: false,
            },
            None,
        )
    }

    fn closed(audit: Audit) -> Closed {
        let url = Url::parse("http://127.0.0.1:1").unwrap();
        let on_sale = OnSale {
            id: "vase".into(),
            shelf: Shelf::Kept,
            stock: audit.stock,
            hold: Duration::from_secs(1),
            page: url.clone(),
            counter: url,
        };
        Closed {
            item: 0,
            on_sale,
            audit,
            stranded: 0,
            swept: 0,
        }
    }

    fn demand(tally: &Tally) -> Demand {
        Demand {
            requests: Some(tally.requested),
            limit: 2,
            must_resell: false,
        }
    }

    fn judge(answers: &[Given], audit: &Audit) -> Verdict {
        let tally = books(answers);
        Verdict::new("rush", &tally, &[closed(audit.clone())], demand(&tally))
    }

    fn audit(stock: u64, held: u64) -> Audit {
        Audit {
            stock,
            held,
            ..Audit::default()
        }
    }

    fn finds(verdict: &Verdict, finding: &str) {
        assert!(
            !verdict.good && verdict.findings.iter().any(|found| found == finding),
            "{finding}: {verdict}"
        );
    }

    const SOLD_OUT: Given = (Answer::SoldOut, None);

    #[test]
    fn books_that_agree_are_good() {
        let verdict = judge(
            &[held(1), held(2), SOLD_OUT, (Answer::Limited, None)],
            &audit(2, 2),
        );
        assert!(verdict.good, "{verdict}");
        assert_eq!(
            (verdict.lost, verdict.stranded, verdict.units_sold),
            (0, 0, 2)
        );
        assert_eq!(
            (verdict.orders_per_second, verdict.answers_per_second),
            (4.0, 8.0)
        );
        assert!(
            (verdict.order_latency_ms_p99 - 4.0).abs() < 0.01,
            "{verdict}"
        );
    }

    #[test]
    fn what_was_paid_is_paid_in_the_ledger() {
        let mut tally = books(&[held(1), held(2)]);
        pay(&mut tally, 1, State::Confirmed);
        let judge = |confirmed, held| {
            let audit = Audit {
                confirmed,
                ..audit(5, held)
            };
            Verdict::new("whole-life", &tally, &[closed(audit)], demand(&tally))
        };
        assert!(judge(1, 1).good, "{}", judge(1, 1));
        finds(
            &judge(0, 2),
            "1 units were paid by what we were told, and 0 by the ledger",
        );
    }

    #[test]
    fn what_came_back_is_not_sold_and_not_lost() {
        let mut tally = books(&[held(1), held(2)]);
        pay(&mut tally, 1, State::RefundDue);
        let verdict = Verdict::new("whole-life", &tally, &[closed(audit(5, 1))], demand(&tally));
        assert!(verdict.good, "{verdict}");
        assert_eq!((verdict.units_sold, verdict.units_returned), (1, 1));
    }

    #[test]
    fn everything_that_is_wrong_is_found() {
        let repeat = (
            Answer::Held {
                id: Uuid::from_u128(2),
                replayed: true,
            },
            Some("a repeat was given another order"),
        );
        let wrong = (Answer::Wrong("409 not_open".into()), None);
        let table: [(&[Given], Audit, &str); 8] = [
            (
                &[held(1), held(2)],
                audit(5, 1),
                "1 units were acknowledged and are not in the ledger",
            ),
            (
                &[held(1)],
                audit(5, 2),
                "1 units are in the ledger and were acknowledged to nobody",
            ),
            (
                &[held(1), held(2), held(3)],
                audit(2, 3),
                "1 units were promised beyond the stock",
            ),
            (
                &[held(1)],
                Audit {
                    oversold: 4,
                    ..audit(5, 1)
                },
                "4 units were promised beyond the stock",
            ),
            (
                &[held(1)],
                Audit {
                    drift: 1,
                    ..audit(5, 1)
                },
                "the audit cannot explain 1 units",
            ),
            (
                &[held(1)],
                Audit {
                    returning: 1,
                    ..audit(5, 1)
                },
                "1 units are still on their way back",
            ),
            (
                &[held(1), repeat],
                audit(5, 2),
                "1 x a repeat was given another order",
            ),
            (&[held(1), wrong], audit(5, 1), "1 x 409 not_open"),
        ];
        for (answers, audit, finding) in table {
            finds(&judge(answers, &audit), finding);
        }
    }

    #[test]
    fn units_that_nobody_can_buy_are_stranded() {
        let tally = books(&[held(1), SOLD_OUT]);
        let stranded = Closed {
            stranded: 1,
            ..closed(audit(2, 1))
        };
        finds(
            &Verdict::new("returns", &tally, &[stranded], demand(&tally)),
            "1 units are left although buyers were told that none is",
        );
    }

    #[test]
    fn returns_without_a_resale_have_shown_nothing() {
        let tally = books(&[held(1), held(2)]);
        let demand = Demand {
            must_resell: true,
            ..demand(&tally)
        };
        let verdict = Verdict::new("returns", &tally, &[closed(audit(2, 2))], demand);
        finds(
            &verdict,
            "no unit that came back was bought again: the run needs more requests, or less stock",
        );
    }

    #[test]
    fn of_several_items_the_one_that_is_wrong_is_named() {
        let tally = books(&[held(1)]);
        let other = Closed {
            item: 1,
            ..closed(Audit {
                drift: 3,
                ..audit(5, 0)
            })
        };
        finds(
            &Verdict::new(
                "rush",
                &tally,
                &[closed(audit(5, 1)), other],
                demand(&tally),
            ),
            "vase: the audit cannot explain 3 units",
        );
    }

    #[test]
    fn a_run_that_ended_early_is_not_good() {
        let tally = books(&[held(1)]);
        let demand = Demand {
            requests: Some(2),
            ..demand(&tally)
        };
        assert!(!Verdict::new("rush", &tally, &[closed(audit(5, 1))], demand).good);
    }

    #[test]
    fn a_buyer_beyond_the_limit_is_an_error_even_if_no_answer_was() {
        let tally = books(&[held(1)]);
        let verdict = Verdict::new(
            "rush",
            &tally,
            &[closed(audit(5, 1))],
            Demand {
                limit: 0,
                ..demand(&tally)
            },
        );
        assert_eq!(verdict.errors, 1);
    }
}
