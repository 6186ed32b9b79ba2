//! Our books against the service's audit.

use std::{collections::BTreeMap, fmt};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{admin::Audit, tally::Tally};

/// What was asked of the run.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Requests.
    pub requests: u64,
    /// Units that one buyer may hold.
    pub limit: u32,
}

/// What came of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Which scenario.
    pub scenario: String,
    /// Of which item.
    pub item: String,
    /// Requests that were answered.
    pub requested: u64,
    /// Orders that were placed.
    pub held: u64,
    /// Refused: nothing is left.
    pub sold_out: u64,
    /// Refused: the buyer's limit.
    pub limited: u64,
    /// Repeats that got the answer of the first request.
    pub replayed: u64,
    /// Anything else.
    pub errors: u64,
    /// What they were, and how often.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Units that exist.
    pub stock: u64,
    /// Units of all orders that were acknowledged to us.
    pub units_sold: u64,
    /// Units of all orders that the ledger has.
    pub units_recorded: u64,
    /// Acknowledged and not recorded; negative if it is the other way round.
    pub lost: i64,
    /// Units that are left although buyers of one unit were told that none is.
    pub stranded: u64,
    /// Units that the audit cannot explain.
    pub drift: u64,
    /// Units promised beyond the stock, by the audit or by what was acknowledged to us, whichever is worse.
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

impl Verdict {
    /// Holds the books against the audit.
    pub fn new(scenario: &str, item: &str, tally: &Tally, audit: &Audit, demand: Demand) -> Self {
        let errors_by_kind = errors(tally, demand);
        let (units_sold, units_recorded) = (tally.units(), audit.held + audit.confirmed);
        let mut verdict = Self {
            scenario: scenario.to_owned(),
            item: item.to_owned(),
            requested: tally.requested,
            held: tally.held,
            sold_out: tally.sold_out,
            limited: tally.limited,
            replayed: tally.replayed,
            errors: errors_by_kind.values().sum(),
            errors_by_kind,
            stock: audit.stock,
            units_sold,
            units_recorded,
            lost: signed(units_sold) - signed(units_recorded),
            stranded: if tally.one_unit_sold_out { audit.stock.saturating_sub(units_sold.max(units_recorded)) } else { 0 },
            drift: audit.drift,
            oversold: audit.oversold.max(units_sold.saturating_sub(audit.stock)),
            orders_per_second: rate(tally.held, tally.last_held.as_secs_f64()),
            answers_per_second: rate(tally.requested, tally.last.as_secs_f64()),
            order_latency_ms_p50: percentile(&tally.held_latency, 50.0),
            order_latency_ms_p99: percentile(&tally.held_latency, 99.0),
            answer_latency_ms_p50: percentile(&tally.latency, 50.0),
            answer_latency_ms_p99: percentile(&tally.latency, 99.0),
            seconds: rounded(tally.last.as_secs_f64(), 1_000.0),
            good: false,
            findings: Vec::new(),
        };
        verdict.findings = verdict.find(audit, demand);
        verdict.good = verdict.findings.is_empty();
        verdict
    }

    fn find(&self, audit: &Audit, demand: Demand) -> Vec<String> {
        let mut findings: Vec<_> = self.errors_by_kind.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
        let mut must = |holds: bool, finding: String| {
            if !holds {
                findings.push(finding);
            }
        };
        must(self.requested == demand.requests, format!("the run ended after {} of {} requests", self.requested, demand.requests));
        must(self.lost <= 0, format!("{} units were acknowledged and are not in the ledger", self.lost));
        must(self.lost >= 0, format!("{} units are in the ledger and were acknowledged to nobody", -self.lost));
        must(self.stranded == 0, format!("{} units are left although buyers were told that none is", self.stranded));
        must(self.drift == 0, format!("the audit cannot explain {} units", self.drift));
        must(self.oversold == 0, format!("{} units were promised beyond the stock", self.oversold));
        must(audit.in_flight == 0, format!("{} units are still on their way to the ledger", audit.in_flight));
        for segment in &audit.segments {
            must(segment.finding.is_none(), format!("segment {}: {}", segment.segment, segment.finding.as_deref().unwrap_or_default()));
        }
        findings
    }

    fn rows(&self) -> [(&'static str, String); 18] {
        [
            ("requested", self.requested.to_string()),
            ("held", self.held.to_string()),
            ("sold out", self.sold_out.to_string()),
            ("limited", self.limited.to_string()),
            ("replayed", self.replayed.to_string()),
            ("errors", self.errors.to_string()),
            ("units sold", self.units_sold.to_string()),
            ("stock", self.stock.to_string()),
            ("lost", self.lost.to_string()),
            ("stranded", self.stranded.to_string()),
            ("drift", self.drift.to_string()),
            ("oversold", self.oversold.to_string()),
            ("orders/s until sold out", format!("{:.0}", self.orders_per_second)),
            ("answers/s", format!("{:.0}", self.answers_per_second)),
            ("p50 of placed orders, ms", format!("{:.1}", self.order_latency_ms_p50)),
            ("p99 of placed orders, ms", format!("{:.1}", self.order_latency_ms_p99)),
            ("p50 of all answers, ms", format!("{:.1}", self.answer_latency_ms_p50)),
            ("p99 of all answers, ms", format!("{:.1}", self.answer_latency_ms_p99)),
        ]
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([&self.scenario, &self.item]);
        for (name, value) in self.rows() {
            table.add_row([name.to_owned(), value]);
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

#[expect(clippy::cast_precision_loss, reason = "nobody counts to 2^53 here")]
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { rounded(count as f64 / seconds, 10.0) } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 microseconds")]
fn percentile(micros: &Histogram<u64>, percent: f64) -> f64 {
    rounded(micros.value_at_percentile(percent) as f64 / 1_000.0, 1_000.0)
}

fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::{Demand, Verdict};
    use crate::{
        admin::Audit,
        answer::Answer,
        tally::{Answered, Tally},
    };

    type Given = (Answer, Option<&'static str>);

    /// Books of buyers 0, 1, ..., each answered as here, for one unit.
    fn books(answers: &[Given]) -> Tally {
        let mut tally = Tally::new().unwrap();
        for (buyer, (answer, flaw)) in answers.iter().enumerate() {
            let (took, at) = (Duration::from_millis(4), Duration::from_millis(500));
            tally.enter(&Answered { buyer, quantity: 1, answer, flaw: *flaw, took, at });
        }
        tally
    }

    fn held(id: u128) -> Given {
        (Answer::Held { id: Uuid::from_u128(id), replayed: false }, None)
    }

    fn judge(answers: &[Given], audit: &Audit) -> Verdict {
        Verdict::new("rush", "vase", &books(answers), audit, Demand { requests: answers.len() as u64, limit: 2 })
    }

    fn audit(stock: u64, held: u64) -> Audit {
        Audit { stock, held, ..Audit::default() }
    }

    const SOLD_OUT: Given = (Answer::SoldOut, None);

    #[test]
    fn books_that_agree_are_good() {
        let verdict = judge(&[held(1), held(2), SOLD_OUT, (Answer::Limited, None)], &audit(2, 2));
        assert!(verdict.good, "{verdict}");
        assert_eq!((verdict.lost, verdict.stranded, verdict.units_sold), (0, 0, 2));
        assert_eq!((verdict.orders_per_second, verdict.answers_per_second), (4.0, 8.0));
        assert!((verdict.order_latency_ms_p99 - 4.0).abs() < 0.01, "{verdict}");
    }

    #[test]
    fn a_paid_order_is_recorded_too() {
        assert!(judge(&[held(1), held(2)], &Audit { confirmed: 1, ..audit(5, 1) }).good);
    }

    #[test]
    fn everything_that_is_wrong_is_found() {
        let repeat = (Answer::Held { id: Uuid::from_u128(2), replayed: true }, Some("a repeat was given another order"));
        let wrong = (Answer::Wrong("409 not_open".into()), None);
        let table: [(&[Given], Audit, &str); 8] = [
            (&[held(1), held(2)], audit(5, 1), "1 units were acknowledged and are not in the ledger"),
            (&[held(1)], audit(5, 2), "1 units are in the ledger and were acknowledged to nobody"),
            (&[held(1), held(2), held(3)], audit(2, 3), "1 units were promised beyond the stock"),
            (&[held(1)], Audit { oversold: 4, ..audit(5, 1) }, "4 units were promised beyond the stock"),
            (&[held(1)], Audit { drift: 1, ..audit(5, 1) }, "the audit cannot explain 1 units"),
            (&[held(1), SOLD_OUT], audit(2, 1), "1 units are left although buyers were told that none is"),
            (&[held(1), repeat], audit(5, 2), "1 x a repeat was given another order"),
            (&[held(1), wrong], audit(5, 1), "1 x 409 not_open"),
        ];
        for (answers, audit, finding) in table {
            let verdict = judge(answers, &audit);
            assert!(!verdict.good && verdict.findings.iter().any(|found| found == finding), "{finding}: {verdict}");
        }
    }

    #[test]
    fn a_run_that_ended_early_is_not_good() {
        let verdict = Verdict::new("rush", "vase", &books(&[held(1)]), &audit(5, 1), Demand { requests: 2, limit: 2 });
        assert!(!verdict.good);
    }

    #[test]
    fn a_buyer_beyond_the_limit_is_an_error_even_if_no_answer_was() {
        let verdict = Verdict::new("rush", "vase", &books(&[held(1)]), &audit(5, 1), Demand { requests: 1, limit: 0 });
        assert_eq!(verdict.errors, 1);
    }
}
