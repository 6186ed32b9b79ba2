//! The verdict: compares the history with the audits of the service.

use std::{collections::BTreeMap, fmt};

use hdrhistogram::Histogram;
use reporting::{
    number::rounded,
    table::{align_right, ruled},
};
use serde::Serialize;

use crate::{
    cart::ledger::CartsReport,
    closing::Closed,
    history::{Counts, History},
    hostile::{Answers, Report},
};

/// What the run must have reached.
#[derive(Debug, Clone, Copy)]
pub struct Expectations {
    /// Number of requests, if it was given.
    pub requests: Option<u64>,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Whether units must have returned and been bought again.
    pub must_resell: bool,
}

/// The verdict about an item.
#[derive(Debug, Clone, Serialize)]
pub struct ItemVerdict {
    /// The name of the item.
    pub item: String,
    /// Units that exist.
    pub stock: u64,
    /// Units of all acknowledged orders that have not returned.
    pub units_sold: u64,
    /// Units of all orders in the ledger.
    pub units_recorded: u64,
    /// Units of orders that were placed beyond the stock, because other units had returned.
    pub units_resold: u64,
    /// Units acknowledged minus units recorded. Must be 0.
    pub lost: i64,
    /// Units that are left although the item was reported as sold out to a buyer of one unit. If
    /// units return: units that new buyers could not buy.
    pub stranded: u64,
    /// Orders that were refused as sold out while units were free. Must be 0.
    pub wrongly_sold_out: u64,
    /// Units that were bought after the run to test that they can be.
    pub swept: u64,
    /// Units that the audit cannot account for.
    pub drift: u64,
    /// Units promised beyond the stock, according to the audit or the history, whichever is more.
    pub oversold: u64,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

/// The verdict about a run. Units are sums over the items.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The name of the scenario.
    pub scenario: String,
    /// Each item.
    pub items: Vec<ItemVerdict>,
    /// How many requests had which outcome.
    #[serde(flatten)]
    pub counts: Counts,
    /// Carts that the ledger has, those included that failed after a line had taken its units.
    pub carts_recorded: u64,
    /// Carts whose lines do not agree, in the ledger. Must be 0.
    pub carts_half_sold: u64,
    /// Acknowledged carts that the ledger lacks, or has in another state. Must be 0.
    pub carts_lost: u64,
    /// Outcomes that violate the promises of the service.
    pub errors: u64,
    /// Number of errors of each kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Units that exist.
    pub stock: u64,
    /// Units of all acknowledged orders that have not returned.
    pub units_sold: u64,
    /// Units of orders that were placed beyond the stock, because other units had returned.
    pub units_resold: u64,
    /// Units that were bought after the run to test that they can be.
    pub swept: u64,
    /// Units acknowledged minus units recorded. Must be 0.
    pub lost: i64,
    /// Units that exist but cannot be bought.
    pub stranded: u64,
    /// Orders that were refused as sold out while units were free. Must be 0.
    pub wrongly_sold_out: u64,
    /// Units that the audit cannot account for.
    pub drift: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
    /// Orders placed per second, until the last was placed.
    pub orders_per_second: f64,
    /// Outcomes of every kind per second, over the whole run.
    pub answers_per_second: f64,
    /// Median latency of placed orders.
    pub order_latency_ms_p50: f64,
    /// 99th percentile of the latency of placed orders.
    pub order_latency_ms_p99: f64,
    /// Median latency of all outcomes.
    pub answer_latency_ms_p50: f64,
    /// 99th percentile of the latency of all outcomes.
    pub answer_latency_ms_p99: f64,
    /// Time from the first request to the last outcome.
    pub seconds: f64,
    /// Whether nothing is wrong.
    pub good: bool,
    /// What hostile clients got: each attack's answers, a status or what became of the connection.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hostile: BTreeMap<&'static str, Answers>,
    /// Connections that crowds of hostile clients opened, and requests that others sent, in each
    /// second of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attacks_per_second: Option<f64>,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

impl ItemVerdict {
    /// Compares the history of an item with its audit.
    pub fn new(history: &History, closed: &Closed) -> Self {
        let (audit, item) = (&closed.audit, closed.item);
        let (units_sold, units_recorded) = (history.units(item), audit.held + audit.confirmed);
        let mut verdict = Self {
            item: closed.sale_item.id.clone(),
            stock: audit.stock,
            units_sold,
            units_recorded,
            units_resold: history
                .units_placed(item)
                .saturating_sub(closed.swept)
                .saturating_sub(audit.stock),
            lost: signed(units_sold) - signed(units_recorded),
            stranded: closed.stranded,
            wrongly_sold_out: history.wrongly_sold_out(item, audit.stock),
            swept: closed.swept,
            drift: audit.drift,
            oversold: audit.oversold.max(units_sold.saturating_sub(audit.stock)),
            findings: Vec::new(),
        };
        verdict.findings = verdict.find(closed, history.units_paid(item), history.refused_units);
        verdict
    }

    /// `may_be_unacknowledged`: units of orders that may have been recorded although a later
    /// attempt was refused. A promoted replica may lack an order and refuse its repeat, while a
    /// recorder still commits the order. Its hold ends without a payment.
    fn find(&self, closed: &Closed, units_paid: u64, may_be_unacknowledged: u64) -> Vec<String> {
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
                "{} units were acknowledged but are not in the ledger",
                self.lost
            ),
        );
        must(
            -self.lost <= signed(may_be_unacknowledged),
            format!(
                "{} units are in the ledger but were not acknowledged",
                -self.lost
            ),
        );
        must(
            units_paid == audit.confirmed,
            format!(
                "{units_paid} units are paid according to the responses, and {} according to the ledger",
                audit.confirmed
            ),
        );
        let none_of = [
            (
                self.stranded,
                "",
                " units are left although the item was reported as sold out",
            ),
            (
                self.wrongly_sold_out,
                "",
                " orders were refused as sold out while units were free",
            ),
            (self.drift, "the audit cannot account for ", " units"),
            (self.oversold, "", " units were promised beyond the stock"),
            (
                audit.in_flight,
                "",
                " units are still on their way to the ledger",
            ),
            (audit.returning, "", " units are still returning"),
        ];
        for (count, before, behind) in none_of {
            must(count == 0, format!("{before}{count}{behind}"));
        }
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
    /// Compares the history with the audits.
    pub fn new(
        scenario: &str,
        history: &History,
        closed: &[Closed],
        expectations: Expectations,
    ) -> Self {
        let errors_by_kind = errors(history, expectations);
        let items: Vec<_> = closed
            .iter()
            .map(|closed| ItemVerdict::new(history, closed))
            .collect();
        let sum = |units: fn(&ItemVerdict) -> u64| items.iter().map(units).sum();
        let mut verdict = Self {
            scenario: scenario.to_owned(),
            counts: history.counts,
            carts_recorded: 0,
            carts_half_sold: 0,
            carts_lost: 0,
            errors: errors_by_kind.values().sum(),
            errors_by_kind,
            stock: sum(|item| item.stock),
            units_sold: sum(|item| item.units_sold),
            units_resold: sum(|item| item.units_resold),
            swept: sum(|item| item.swept),
            lost: items.iter().map(|item| item.lost).sum(),
            stranded: sum(|item| item.stranded),
            wrongly_sold_out: sum(|item| item.wrongly_sold_out),
            drift: sum(|item| item.drift),
            oversold: sum(|item| item.oversold),
            orders_per_second: rate(history.counts.held, history.last_held.as_secs_f64()),
            answers_per_second: rate(
                history.counts.requested - history.counts.given_up,
                history.last.as_secs_f64(),
            ),
            order_latency_ms_p50: percentile_ms(&history.held_latency, 50.0),
            order_latency_ms_p99: percentile_ms(&history.held_latency, 99.0),
            answer_latency_ms_p50: percentile_ms(&history.latency, 50.0),
            answer_latency_ms_p99: percentile_ms(&history.latency, 99.0),
            seconds: rounded(history.last.as_secs_f64(), 1_000.0),
            good: false,
            hostile: BTreeMap::new(),
            attacks_per_second: None,
            findings: Vec::new(),
            items,
        };
        verdict.findings = verdict.find(expectations);
        verdict.good = verdict.findings.is_empty();
        verdict
    }

    /// Adds what the ledger has of the carts.
    pub fn add_carts(&mut self, report: CartsReport) {
        self.carts_recorded = report.recorded;
        self.carts_half_sold = report.half_sold;
        self.carts_lost = report.lost;
        self.findings.extend(report.findings);
        self.good = self.findings.is_empty();
    }

    /// Adds what hostile clients got during the run.
    pub fn add_hostile(&mut self, report: Report) {
        self.hostile = report.answers;
        self.attacks_per_second = report.attacks_per_second;
        self.findings.extend(report.findings);
        self.good = self.findings.is_empty();
    }

    fn find(&self, expectations: Expectations) -> Vec<String> {
        let mut findings: Vec<_> = self
            .errors_by_kind
            .iter()
            .map(|(kind, count)| format!("{count} x {kind}"))
            .collect();
        if let Some(requests) = expectations
            .requests
            .filter(|requests| *requests != self.counts.requested)
        {
            findings.push(format!(
                "the run ended after {} of {requests} requests",
                self.counts.requested
            ));
        }
        if self.counts.requested == 0 {
            findings.push("no request was sent".into());
        }
        if expectations.must_resell && self.units_resold == 0 {
            findings.push(
                "no returned unit was bought again: the run needs more requests, or less stock"
                    .into(),
            );
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

    fn rows(&self) -> [(&'static str, String); 34] {
        let counts = &self.counts;
        [
            ("requested", counts.requested.to_string()),
            ("held", counts.held.to_string()),
            ("sold out", counts.sold_out.to_string()),
            ("limited", counts.limited.to_string()),
            ("carts", counts.carts.to_string()),
            ("carts refused", counts.carts_refused.to_string()),
            ("carts extended", counts.carts_extended.to_string()),
            ("replayed", counts.replayed.to_string()),
            ("reads", counts.reads.to_string()),
            ("payments", counts.payments.to_string()),
            ("cancelled, refunded", counts.ends.to_string()),
            ("declined", counts.declined.to_string()),
            ("given up", counts.given_up.to_string()),
            ("unknown at first", counts.unknown_first.to_string()),
            ("errors", self.errors.to_string()),
            ("units sold", self.units_sold.to_string()),
            ("units returned", counts.units_returned.to_string()),
            ("units bought again", self.units_resold.to_string()),
            ("bought after the run", self.swept.to_string()),
            ("stock", self.stock.to_string()),
            ("lost", self.lost.to_string()),
            ("stranded", self.stranded.to_string()),
            ("wrongly sold out", self.wrongly_sold_out.to_string()),
            ("carts in the ledger", self.carts_recorded.to_string()),
            ("carts half sold", self.carts_half_sold.to_string()),
            ("carts lost", self.carts_lost.to_string()),
            ("drift", self.drift.to_string()),
            ("oversold", self.oversold.to_string()),
            (
                "orders/s until the last",
                format!("{:.0}", self.orders_per_second),
            ),
            ("responses/s", format!("{:.0}", self.answers_per_second)),
            (
                "p50 of placed orders, ms",
                format!("{:.1}", self.order_latency_ms_p50),
            ),
            (
                "p99 of placed orders, ms",
                format!("{:.1}", self.order_latency_ms_p99),
            ),
            (
                "p50 of all responses, ms",
                format!("{:.1}", self.answer_latency_ms_p50),
            ),
            (
                "p99 of all responses, ms",
                format!("{:.1}", self.answer_latency_ms_p99),
            ),
        ]
    }

    fn describe_items(&self) -> String {
        match self.items.as_slice() {
            [item] => item.item.clone(),
            items => format!("{} items", items.len()),
        }
    }
}

/// Rows that are left out if they are 0, because a scenario need not have any.
const OPTIONAL_ROWS: [&str; 13] = [
    "carts",
    "carts refused",
    "carts extended",
    "carts in the ledger",
    "reads",
    "payments",
    "cancelled, refunded",
    "declined",
    "given up",
    "unknown at first",
    "units returned",
    "units bought again",
    "bought after the run",
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = ruled([&self.scenario, &self.describe_items()]);
        for (name, value) in self.rows() {
            let is_about_carts = name.starts_with("carts") && self.carts_recorded == 0;
            let is_optional = OPTIONAL_ROWS.contains(&name) || is_about_carts;
            if value != "0" || !is_optional {
                table.add_row([name.to_owned(), value]);
            }
        }
        align_right(&mut table, [1]);
        writeln!(f, "{table}")?;
        for (attack, answers) in &self.hostile {
            let answers: Vec<_> = answers
                .iter()
                .map(|(answer, count)| format!("{count} x {answer}"))
                .collect();
            writeln!(f, "  hostile clients, {attack}: {}", answers.join(", "))?;
        }
        if let Some(attacks) = self.attacks_per_second {
            writeln!(
                f,
                "  hostile clients: {attacks:.1} connections or requests/s"
            )?;
        }
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        write!(f, "{}", if self.good { "GOOD" } else { "NOT GOOD" })
    }
}

fn errors(history: &History, expectations: Expectations) -> BTreeMap<String, u64> {
    let mut errors = history.errors.clone();
    let over = history.buyers_over(expectations.limit);
    if over > 0 {
        errors.insert("a buyer holds more than the limit".into(), over);
    }
    errors
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// The number per second.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        rounded(count as f64 / seconds, 10.0)
    } else {
        0.0
    }
}

/// The percentile in milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "latencies are far below 2^53 microseconds"
)]
pub fn percentile_ms(micros: &Histogram<u64>, percent: f64) -> f64 {
    rounded(
        micros.value_at_percentile(percent) as f64 / 1_000.0,
        1_000.0,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::{Audit, NewOrder, OrderState};
    use uuid::Uuid;

    use super::{Expectations, Verdict};
    use crate::{
        action::{Action, OrderRef},
        cart::ledger::CartsReport,
        closing::Closed,
        history::{History, Observation},
        items::SaleItem,
        outcome::Outcome,
        return_policy::ReturnPolicy,
    };

    type Given = (Outcome, Option<&'static str>);

    fn observation<'a>(action: &'a Action, outcome: &'a Outcome) -> Observation<'a> {
        let [took, at] = [4, 500].map(Duration::from_millis);
        Observation {
            begun: at - took,
            took,
            at,
            ..Observation::of(action, outcome)
        }
    }

    /// The history of buyers 0, 1, ... with these outcomes of orders of one unit.
    fn history_of(outcomes: &[Given]) -> History {
        let mut history = History::new().unwrap();
        let action = Action::Order(NewOrder::new("vase", 1));
        for (buyer, (outcome, violation)) in outcomes.iter().enumerate() {
            history.record(&Observation {
                buyer,
                violation: *violation,
                ..observation(&action, outcome)
            });
        }
        history
    }

    fn pay(history: &mut History, id: u128, state: OrderState) {
        let action = Action::Pay {
            order: OrderRef {
                id: Uuid::from_u128(id),
                quantity: 1,
            },
            payment: "pay_1".into(),
        };
        history.record(&Observation {
            buyer: 0,
            ..observation(&action, &Outcome::InState(state))
        });
    }

    fn held(id: u128) -> Given {
        (
            Outcome::Held {
                id: Uuid::from_u128(id),
                replayed: false,
            },
            None,
        )
    }

    fn closed(audit: Audit) -> Closed {
        let sale_item = SaleItem {
            id: "vase".into(),
            policy: ReturnPolicy::Final,
            stock: audit.stock,
            is_scarce: false,
            hold: Duration::from_secs(1),
        };
        Closed {
            item: 0,
            sale_item,
            audit,
            stranded: 0,
            swept: 0,
        }
    }

    fn expectations(history: &History) -> Expectations {
        Expectations {
            requests: Some(history.counts.requested),
            limit: 2,
            must_resell: false,
        }
    }

    fn verdict_of(history: &History, audit: Audit) -> Verdict {
        Verdict::new("rush", history, &[closed(audit)], expectations(history))
    }

    fn judge(outcomes: &[Given], audit: &Audit) -> Verdict {
        verdict_of(&history_of(outcomes), audit.clone())
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

    const SOLD_OUT: Given = (Outcome::SoldOut, None);

    #[test]
    fn a_history_that_agrees_with_the_audit_is_good() {
        let verdict = judge(
            &[held(1), held(2), SOLD_OUT, (Outcome::Limited, None)],
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
    fn paid_units_must_be_paid_in_the_ledger() {
        let mut history = history_of(&[held(1), held(2)]);
        pay(&mut history, 1, OrderState::Confirmed);
        let judge = |confirmed, held| {
            let audit = Audit {
                confirmed,
                ..audit(5, held)
            };
            verdict_of(&history, audit)
        };
        assert!(judge(1, 1).good, "{}", judge(1, 1));
        finds(
            &judge(0, 2),
            "1 units are paid according to the responses, and 0 according to the ledger",
        );
    }

    #[test]
    fn only_a_refusal_after_an_unknown_outcome_may_leave_an_order_in_the_ledger() {
        for unknown_first in [false, true] {
            let mut history = history_of(&[held(1)]);
            history.record(&Observation {
                buyer: 2,
                unknown_first,
                ..observation(&Action::Order(NewOrder::new("vase", 1)), &Outcome::Limited)
            });
            let of = |held| verdict_of(&history, audit(held, held));
            assert!(of(1).good, "{}", of(1));
            assert_eq!(of(2).good, unknown_first, "{}", of(2));
            finds(
                &of(3),
                "2 units are in the ledger but were not acknowledged",
            );
        }
    }

    #[test]
    fn returned_units_are_neither_sold_nor_lost() {
        let mut history = history_of(&[held(1), held(2)]);
        pay(&mut history, 1, OrderState::RefundDue);
        let verdict = verdict_of(&history, audit(5, 1));
        assert!(verdict.good, "{verdict}");
        assert_eq!((verdict.units_sold, verdict.counts.units_returned), (1, 1));
    }

    #[test]
    fn each_difference_is_found() {
        let repeat = (
            Outcome::Held {
                id: Uuid::from_u128(2),
                replayed: true,
            },
            Some("a repeat returned another order"),
        );
        let wrong = (Outcome::Wrong("409 not_open".into()), None);
        let in_history: [(&[Given], Audit, &str); 5] = [
            (
                &[held(1), held(2)],
                audit(5, 1),
                "1 units were acknowledged but are not in the ledger",
            ),
            (
                &[held(1)],
                audit(5, 2),
                "1 units are in the ledger but were not acknowledged",
            ),
            (
                &[held(1), held(2), held(3)],
                audit(2, 3),
                "1 units were promised beyond the stock",
            ),
            (
                &[held(1), repeat],
                audit(5, 2),
                "1 x a repeat returned another order",
            ),
            (&[held(1), wrong], audit(5, 1), "1 x 409 not_open"),
        ];
        for (outcomes, audit, finding) in in_history {
            finds(&judge(outcomes, &audit), finding);
        }
        let is_found = |change: fn(&mut Audit), finding| {
            let mut audit = audit(5, 1);
            change(&mut audit);
            finds(&judge(&[held(1)], &audit), finding);
        };
        is_found(
            |it| it.oversold = 4,
            "4 units were promised beyond the stock",
        );
        is_found(|it| it.drift = 1, "the audit cannot account for 1 units");
        is_found(|it| it.returning = 1, "1 units are still returning");
    }

    #[test]
    fn units_that_cannot_be_bought_are_stranded() {
        let history = history_of(&[held(1), SOLD_OUT]);
        let stranded = Closed {
            stranded: 1,
            ..closed(audit(2, 1))
        };
        finds(
            &Verdict::new("returns", &history, &[stranded], expectations(&history)),
            "1 units are left although the item was reported as sold out",
        );
    }

    #[test]
    fn a_refusal_while_units_are_free_is_found() {
        finds(
            &judge(&[held(1), SOLD_OUT], &audit(2, 1)),
            "1 orders were refused as sold out while units were free",
        );
        assert!(judge(&[held(1), held(2), SOLD_OUT], &audit(2, 2)).good);
    }

    #[test]
    fn a_cart_that_is_half_sold_or_lost_makes_the_verdict_bad() {
        let with = |report| {
            let mut verdict = judge(&[held(1)], &audit(5, 1));
            verdict.add_carts(report);
            verdict
        };
        assert!(
            with(CartsReport {
                recorded: 3,
                ..CartsReport::default()
            })
            .good
        );
        let bad = with(CartsReport {
            recorded: 3,
            half_sold: 1,
            lost: 2,
            findings: vec!["carts, half sold: cart 1".into()],
        });
        finds(&bad, "carts, half sold: cart 1");
        let shown = bad.to_string();
        assert!(
            shown.contains("carts half sold") && shown.contains("carts lost"),
            "{shown}"
        );
        let json = serde_json::to_value(&bad).unwrap();
        assert_eq!(
            (&json["held"], &json["carts_half_sold"], &json["carts_lost"]),
            (&1.into(), &1.into(), &2.into())
        );
        assert!(json.get("counts").is_none(), "its fields are the verdict's");
        let without = judge(&[held(1)], &audit(5, 1)).to_string();
        assert!(!without.contains("carts"), "{without}");
    }

    #[test]
    fn a_run_that_must_resell_fails_without_a_resale() {
        let history = history_of(&[held(1), held(2)]);
        let expectations = Expectations {
            must_resell: true,
            ..expectations(&history)
        };
        let verdict = Verdict::new("returns", &history, &[closed(audit(2, 2))], expectations);
        finds(
            &verdict,
            "no returned unit was bought again: the run needs more requests, or less stock",
        );
    }

    #[test]
    fn a_finding_about_one_of_several_items_names_it() {
        let history = history_of(&[held(1)]);
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
                &history,
                &[closed(audit(5, 1)), other],
                expectations(&history),
            ),
            "vase: the audit cannot account for 3 units",
        );
    }

    #[test]
    fn a_run_that_ended_early_is_not_good() {
        let history = history_of(&[held(1)]);
        let expectations = Expectations {
            requests: Some(2),
            ..expectations(&history)
        };
        assert!(!Verdict::new("rush", &history, &[closed(audit(5, 1))], expectations).good);
    }

    #[test]
    fn a_buyer_over_the_limit_is_an_error_even_if_no_outcome_was() {
        let history = history_of(&[held(1)]);
        let verdict = Verdict::new(
            "rush",
            &history,
            &[closed(audit(5, 1))],
            Expectations {
                limit: 0,
                ..expectations(&history)
            },
        );
        assert_eq!(verdict.errors, 1);
    }
}
