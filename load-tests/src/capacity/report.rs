//! The report of the search: a table, a chart and JSON.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use reporting::{
    files::{json, write},
    table::{Table, align_right, ruled},
};
use serde::Serialize;

use super::{chart, options::CapacityOptions, step::Step};
use crate::options::Durability;

const COLUMNS: [&str; 11] = [
    "rate/s",
    "completed/s",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "accepted",
    "refused",
    "errors",
    "outstanding",
    "driver late p99 ms",
    "sustained",
];

/// The report of the search.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Bound for the 99th percentile of the latency, in milliseconds.
    pub bound_ms: u64,
    /// Measured seconds of each step.
    pub step_seconds: u64,
    /// When the service acknowledged an order.
    pub durability: Durability,
    /// The highest sustained rate, in requests per second.
    pub highest_rate: Option<u64>,
    /// All steps, in the order in which they ran.
    pub steps: Vec<Step>,
}

impl Report {
    /// A report without steps.
    pub fn new(options: &CapacityOptions) -> Self {
        let CapacityOptions {
            bound_ms,
            step_seconds,
            durability,
            ..
        } = *options;
        Self {
            bound_ms,
            step_seconds,
            durability,
            highest_rate: None,
            steps: Vec::new(),
        }
    }

    /// Writes `capacity.svg` and `capacity.json`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let chart = chart::draw(&self.last_of_each_rate(), self.bound_ms, self.highest_rate);
        write("--out", &folder.join("capacity.svg"), &chart)?;
        write("--out", &folder.join("capacity.json"), &json(self)?)
    }

    /// Prints the table and the conclusion. Returns whether a rate was found and every audit is
    /// good.
    #[expect(clippy::print_stdout, reason = "the report goes to standard output")]
    pub fn print(&self, folder: &Path) -> bool {
        println!("{}", self.table());
        println!("{}", self.conclusion());
        let findings = self.findings();
        for finding in &findings {
            println!("  {finding}");
        }
        println!(
            "chart and figures: {}",
            folder.join("capacity.svg").display()
        );
        let good = findings.is_empty() && self.highest_rate.is_some();
        println!("{}", if good { "GOOD" } else { "NOT GOOD" });
        good
    }

    fn by_rate(&self) -> Vec<&Step> {
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.rate);
        steps
    }

    /// The last try of each rate, because a line of the chart has one point for each rate.
    fn last_of_each_rate(&self) -> Vec<&Step> {
        let by_rate: BTreeMap<_, _> = self.steps.iter().map(|step| (step.rate, step)).collect();
        by_rate.into_values().collect()
    }

    fn table(&self) -> Table {
        let mut table = ruled(COLUMNS);
        for step in self.by_rate() {
            table.add_row(row(step));
        }
        align_right(&mut table, 0..COLUMNS.len());
        table
    }

    fn conclusion(&self) -> String {
        let orders: u64 = self.steps.iter().map(|step| step.accepted).sum();
        let audits = format!(
            "audited: {} items, {orders} measured orders",
            self.steps.len()
        );
        let found = match self.highest_rate {
            Some(rate) => format!(
                "{rate} requests/s is the highest sustained rate: p99 within {} ms, no errors, no backlog",
                self.bound_ms
            ),
            None => format!(
                "no rate is sustained: p99 within {} ms, no errors, no backlog",
                self.bound_ms
            ),
        };
        match self.lowest_failed() {
            Some(step) if step.driver_late => format!(
                "{found}\nabove it the driver itself was late (p99 {:.1} ms at {}/s): the service may sustain more\n{audits}",
                step.lateness_ms_p99, step.rate
            ),
            Some(_) => format!("{found}\n{audits}"),
            None => format!(
                "{found}\nno rate failed: the service may sustain more than --most-rate\n{audits}"
            ),
        }
    }

    /// The last try of the lowest failed rate.
    fn lowest_failed(&self) -> Option<&Step> {
        self.last_of_each_rate()
            .into_iter()
            .find(|step| !step.sustained)
    }

    fn findings(&self) -> Vec<String> {
        self.steps
            .iter()
            .flat_map(|step| {
                step.findings
                    .iter()
                    .map(|finding| format!("{}: {finding}", step.item))
            })
            .collect()
    }
}

fn row(step: &Step) -> [String; COLUMNS.len()] {
    [
        step.rate.to_string(),
        format!("{:.0}", step.achieved),
        format!("{:.1}", step.latency_ms_p50),
        format!("{:.1}", step.latency_ms_p99),
        format!("{:.1}", step.latency_ms_p999),
        step.accepted.to_string(),
        step.refused.to_string(),
        step.errors.to_string(),
        step.outstanding_max.to_string(),
        format!(
            "{:.1}{}",
            step.lateness_ms_p99,
            if step.driver_late { " !" } else { "" }
        ),
        if step.sustained { "yes" } else { "no" }.to_owned(),
    ]
}

/// Steps for tests.
#[cfg(test)]
pub mod samples {
    use super::Step;

    /// A step at this rate with this p99 in milliseconds.
    pub fn step(rate: u64, p99: f64) -> Step {
        Step {
            item: format!("capacity-{rate}"),
            rate,
            achieved: 1.0,
            latency_ms_p50: p99 / 4.0,
            latency_ms_p99: p99,
            latency_ms_p999: p99 * 2.0,
            latency_ms_max: p99 * 3.0,
            lateness_ms_p99: 0.1,
            driver_late: false,
            outstanding_max: 7,
            accepted: rate,
            refused: 0,
            errors: 0,
            sustained: p99 <= 50.0,
            findings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, samples::step};
    use crate::options::Durability;

    fn report() -> Report {
        let steps = vec![step(500, 4.0), step(2_000, 400.0), step(1_000, 9.0)];
        Report {
            bound_ms: 50,
            step_seconds: 5,
            durability: Durability::Recorded,
            highest_rate: Some(1_000),
            steps,
        }
    }

    #[test]
    fn the_table_is_in_the_order_of_the_rates() {
        let table = report().table().to_string();
        let at = |text: &str| table.find(text).unwrap();
        assert!(
            at(" 500 ") < at(" 1000 ") && at(" 1000 ") < at(" 2000 "),
            "{table}"
        );
    }

    #[test]
    fn a_late_driver_is_reported_as_such() {
        let mut report = report();
        assert!(!report.conclusion().contains("driver"));
        report.steps[1].driver_late = true;
        report.steps[1].lateness_ms_p99 = 80.0;
        assert!(
            report
                .conclusion()
                .contains("the driver itself was late (p99 80.0 ms at 2000/s)"),
            "{}",
            report.conclusion()
        );
        report.steps.remove(1);
        assert!(report.conclusion().contains("no rate failed"));
    }

    #[test]
    fn a_rate_that_was_sustained_in_a_second_try_has_not_failed() {
        let mut report = report();
        report.steps.insert(0, step(500, 90.0));
        assert_eq!(report.lowest_failed().map(|step| step.rate), Some(2_000));
        assert_eq!(report.table().row_count(), 4, "every try is shown");
    }

    #[test]
    fn an_audit_finding_or_no_rate_is_not_good() {
        let folder = tempfile::tempdir().unwrap();
        assert!(report().print(folder.path()));
        let mut found = report();
        found.steps[0]
            .findings
            .push("the audit cannot account for 1 units".into());
        assert_eq!(
            found.findings(),
            ["capacity-500: the audit cannot account for 1 units"]
        );
        assert!(!found.print(folder.path()));
        assert!(
            !Report {
                highest_rate: None,
                ..report()
            }
            .print(folder.path())
        );
    }

    #[test]
    fn chart_and_figures_are_written() {
        let folder = tempfile::tempdir().unwrap();
        report().write(&folder.path().join("new")).unwrap();
        let json = std::fs::read_to_string(folder.path().join("new/capacity.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["highest_rate"], &json["steps"][2]["rate"]),
            (&1_000.into(), &1_000.into())
        );
        assert!(
            std::fs::read_to_string(folder.path().join("new/capacity.svg"))
                .unwrap()
                .starts_with("<svg")
        );
    }
}
