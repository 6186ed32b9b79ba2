//! The report of a run: a table for people, and `summary.json` for programs.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::Result;
use reporting::{
    files,
    number::{decimals, rounded},
    statistics::median,
    table::{align_right, ruled},
};
use serde::Serialize;

use crate::{
    fault::{Fault, Topology},
    plan::Plan,
    verdict::Verdict,
};

/// A report round.
pub struct RoundReport {
    /// The topology of its environment.
    pub topology: Topology,
    /// The number of the round.
    pub round: usize,
    /// The injected fault.
    pub fault: Fault,
    /// What was done to which servers or processes.
    pub description: String,
    /// The result.
    pub verdict: Verdict,
}

/// Of so many payments some were returned, or the admin and the provider of the workload did
/// nothing.
const PAYMENTS_MIN: usize = 100;

/// In so many rounds an item was audited by what had changed, where reconcilers audit so. While an item
/// is sold, more of its few orders change between two audits than such an audit may look up.
const CHANGES_ROUNDS_MIN: usize = 10;

/// The report of a run.
pub struct Report {
    seed: u64,
    rounds: Vec<RoundReport>,
    batch_findings: Vec<String>,
}

/// Sums over several rounds.
#[derive(Clone, Debug, Default, Serialize)]
struct Sums {
    faults: usize,
    acknowledged: usize,
    carts: usize,
    payments: usize,
    payments_returned: usize,
    half_sold: usize,
    lost: usize,
    lost_by_level: usize,
    oversold: u64,
    stranded: u64,
    sold_out_judged: usize,
    wrongly_sold_out: u64,
    returns_seen: usize,
    compared_changes: usize,
    deliveries: usize,
    events_lost: usize,
    events_reordered: usize,
    events_altered: usize,
    events: EventSums,
    heal_seconds_p50: Option<f64>,
    heal_seconds_max: Option<f64>,
    violations: usize,
}

/// What became of events, counted for each subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct EventSums {
    sent: usize,
    lost: usize,
    /// Repeats with the same id, which are allowed.
    doubled: usize,
    out_of_order: usize,
}

#[derive(Serialize)]
struct Summary {
    seed: u64,
    #[serde(flatten)]
    sums: Sums,
    by_fault: BTreeMap<Fault, Sums>,
    rounds: Vec<RoundSummary>,
}

#[derive(Serialize)]
struct RoundSummary {
    round: usize,
    stage: Topology,
    fault: Fault,
    story: String,
    acknowledged: usize,
    carts: usize,
    payments: usize,
    events: usize,
    deliveries: usize,
    heal_seconds: Option<f64>,
    findings: Vec<String>,
}

impl Report {
    /// A report without rounds.
    pub fn new(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            rounds: Vec::new(),
            batch_findings: Vec::new(),
        }
    }

    /// Adds another part of the same run.
    pub fn merge(&mut self, other: Self) {
        self.rounds.extend(other.rounds);
        self.rounds.sort_by_key(|report| report.round);
        self.batch_findings.extend(other.batch_findings);
    }

    /// Adds a round.
    pub fn add(&mut self, report: RoundReport) {
        self.rounds.push(report);
    }

    /// Adds a finding about a whole batch.
    pub fn add_batch_finding(&mut self, finding: String) {
        self.batch_findings.push(finding);
    }

    /// Adds a finding for each promise of which a run of this length must have seen more. One round
    /// may see no payment returned, and no audit of what has changed.
    pub fn judge_what_was_seen(&mut self) {
        let all = self.sums(|_| true);
        if all.payments >= PAYMENTS_MIN && all.payments_returned == 0 {
            let finding = format!(
                "too little seen: none of {} payments was returned",
                all.payments
            );
            self.add_batch_finding(finding);
        }
        let by_changes = self.sums(|report| report.topology.audits_changes());
        if by_changes.faults >= CHANGES_ROUNDS_MIN && by_changes.compared_changes == 0 {
            let finding = format!(
                "too little seen: in {} rounds no audit has compared what had changed",
                by_changes.faults
            );
            self.add_batch_finding(finding);
        }
    }

    /// Number of rounds with a violation, plus findings about whole batches.
    pub fn violations(&self) -> usize {
        self.sums(|_| true).violations + self.batch_findings.len()
    }

    /// Descriptions of all violations.
    pub fn findings(&self) -> Vec<String> {
        let round_findings = self.rounds.iter().flat_map(|report| {
            report.verdict.findings.iter().map(|finding| {
                format!(
                    "round {} ({}, {}): {finding}",
                    report.round, report.fault, report.description
                )
            })
        });
        round_findings
            .chain(self.batch_findings.iter().cloned())
            .collect()
    }

    /// Writes `summary.json`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let by_fault = self
            .faults()
            .into_iter()
            .map(|fault| (fault, self.sums(|report| report.fault == fault)))
            .collect();
        let rounds = self.rounds.iter().map(RoundSummary::new).collect();
        let mut sums = self.sums(|_| true);
        sums.violations = self.violations();
        let summary = Summary {
            seed: self.seed,
            sums,
            by_fault,
            rounds,
        };
        files::write("--out", &dir.join("summary.json"), &files::json(&summary)?)
    }

    fn faults(&self) -> Vec<Fault> {
        Fault::ALL
            .into_iter()
            .filter(|fault| self.rounds.iter().any(|report| report.fault == *fault))
            .collect()
    }

    fn sums(&self, which: impl Fn(&RoundReport) -> bool) -> Sums {
        let mut sums = Sums::default();
        let mut healed = Vec::new();
        for report in self.rounds.iter().filter(|report| which(report)) {
            let verdict = &report.verdict;
            sums.faults += 1;
            sums.acknowledged += verdict.acknowledged;
            sums.carts += verdict.carts;
            sums.payments += verdict.payments;
            sums.payments_returned += verdict.payments_returned;
            sums.half_sold += verdict.half_sold;
            sums.lost += verdict.lost;
            sums.lost_by_level += verdict.lost_by_level;
            sums.oversold += verdict.oversold;
            sums.stranded += verdict.stranded;
            sums.sold_out_judged += verdict.sold_out_judged;
            sums.wrongly_sold_out += verdict.wrongly_sold_out;
            sums.returns_seen += verdict.returns_seen;
            sums.compared_changes += verdict.compared_changes;
            sums.deliveries += verdict.deliveries;
            sums.events_lost += verdict.events_lost;
            sums.events_reordered += verdict.events_reordered;
            sums.events_altered += verdict.events_altered;
            sums.events.add(verdict);
            sums.violations += usize::from(!verdict.is_good());
            healed.extend(verdict.healed_after.map(|time| time.as_secs_f64()));
        }
        let most = healed.iter().copied().reduce(f64::max);
        sums.heal_seconds_p50 = most.map(|_| seconds(median(&healed)));
        sums.heal_seconds_max = most.map(seconds);
        sums
    }
}

impl EventSums {
    fn add(&mut self, verdict: &Verdict) {
        self.sent += verdict.events_sent;
        self.lost += verdict.events_lost;
        self.doubled += verdict.events_doubled;
        self.out_of_order += verdict.events_reordered;
    }
}

impl RoundSummary {
    fn new(report: &RoundReport) -> Self {
        Self {
            round: report.round,
            stage: report.topology,
            fault: report.fault,
            story: report.description.clone(),
            acknowledged: report.verdict.acknowledged,
            carts: report.verdict.carts,
            payments: report.verdict.payments,
            events: report.verdict.events,
            deliveries: report.verdict.deliveries,
            heal_seconds: report
                .verdict
                .healed_after
                .map(|time| seconds(time.as_secs_f64())),
            findings: report.verdict.findings.clone(),
        }
    }
}

/// Rounds to milliseconds, because polling is no more exact.
fn seconds(seconds: f64) -> f64 {
    rounded(seconds, 1000.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = ruled([
            "fault",
            "times",
            "acknowledged",
            "carts",
            "half sold",
            "lost",
            "oversold",
            "stranded",
            "deliveries",
            "events wrong",
            "heal p50, s",
            "heal max, s",
        ]);
        for fault in self.faults() {
            table.add_row(row(
                &fault.to_string(),
                &self.sums(|report| report.fault == fault),
            ));
        }
        let all = self.sums(|_| true);
        table.add_row(row("all", &all));
        let columns = 1..table.column_count();
        align_right(&mut table, columns);
        writeln!(f, "{table}")?;
        let Sums {
            lost_by_level,
            sold_out_judged,
            wrongly_sold_out,
            returns_seen,
            compared_changes,
            ..
        } = all;
        writeln!(
            f,
            "{wrongly_sold_out} of {sold_out_judged} refusals as sold out were wrong; the units of {returns_seen} orders came back."
        )?;
        writeln!(
            f,
            "Of {compared_changes} items a reconciler has compared what had changed since their last full audit."
        )?;
        writeln!(
            f,
            "Redis lost {lost_by_level} orders of durability `accepted` or `replicated` in failovers, which these levels allow."
        )?;
        match self.violations() {
            0 => write!(f, "seed {}: no violation", self.seed),
            violations => write!(f, "seed {}: {violations} VIOLATIONS", self.seed),
        }
    }
}

fn row(name: &str, sums: &Sums) -> Vec<String> {
    vec![
        name.to_owned(),
        sums.faults.to_string(),
        sums.acknowledged.to_string(),
        sums.carts.to_string(),
        sums.half_sold.to_string(),
        sums.lost.to_string(),
        sums.oversold.to_string(),
        sums.stranded.to_string(),
        sums.deliveries.to_string(),
        (sums.events_lost + sums.events_reordered + sums.events_altered).to_string(),
        decimals(sums.heal_seconds_p50, 2),
        decimals(sums.heal_seconds_max, 2),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Report, RoundReport};
    use crate::{
        fault::{Fault, Topology},
        plan::Plan,
        verdict::Verdict,
    };

    fn summary(report: &Report) -> Value {
        let folder = tempfile::tempdir().unwrap();
        report.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_summary_has_the_events_of_all_stages() {
        let plan = Plan::new(7, 1, &[Fault::BrokerKilled], &[Topology::Events]);
        let mut report = Report::new(&plan);
        assert_eq!(
            summary(&report)["events"],
            json!({ "sent": 0, "lost": 0, "doubled": 0, "out_of_order": 0 })
        );
        let verdict = Verdict {
            events: 100,
            deliveries: 310,
            events_sent: 300,
            events_doubled: 12,
            events_lost: 2,
            events_reordered: 1,
            ..Verdict::default()
        };
        let stages = [Topology::Events, Topology::Cluster, Topology::Embedded];
        for (round, topology) in (1..).zip(stages) {
            report.add(RoundReport {
                topology,
                round,
                fault: if round == 1 {
                    Fault::BrokerKilled
                } else {
                    Fault::PublisherKilled
                },
                description: String::new(),
                verdict: verdict.clone(),
            });
        }
        let summary = summary(&report);
        assert_eq!(
            summary["events"],
            json!({ "sent": 900, "lost": 6, "doubled": 36, "out_of_order": 3 })
        );
        assert_eq!(
            summary["by_fault"]["broker-killed"]["events"],
            json!({ "sent": 300, "lost": 2, "doubled": 12, "out_of_order": 1 })
        );
        // What programs have read so far stays.
        assert_eq!(
            (
                &summary["deliveries"],
                &summary["events_lost"],
                &summary["events_reordered"]
            ),
            (&json!(930), &json!(6), &json!(3))
        );
        assert_eq!(summary["rounds"][1]["stage"], "cluster");
        assert_eq!(summary["rounds"][1]["events"], 100);
        assert_eq!(summary["violations"], 3);
    }

    /// The violations of so many equal rounds.
    fn violations(topology: Topology, rounds: usize, verdict: &Verdict) -> usize {
        let kinds = [Fault::EverythingKilled];
        let mut report = Report::new(&Plan::new(7, 1, &kinds, &[topology]));
        for round in 1..=rounds {
            report.add(RoundReport {
                topology,
                round,
                fault: Fault::EverythingKilled,
                description: String::new(),
                verdict: verdict.clone(),
            });
        }
        report.judge_what_was_seen();
        report.violations()
    }

    #[test]
    fn a_long_run_without_a_returned_payment_is_not_good() {
        let violations = |payments, payments_returned| {
            let verdict = Verdict {
                payments,
                payments_returned,
                ..Verdict::default()
            };
            violations(Topology::Embedded, 2, &verdict)
        };
        assert_eq!(violations(50, 0), 1);
        assert_eq!(violations(49, 0), 0, "too short to say");
        assert_eq!(violations(50, 1), 0);
    }

    #[test]
    fn a_long_run_without_an_audit_of_what_has_changed_is_not_good() {
        let violations = |topology, rounds, compared_changes| {
            let verdict = Verdict {
                compared_changes,
                ..Verdict::default()
            };
            violations(topology, rounds, &verdict)
        };
        assert_eq!(violations(Topology::Server, 10, 0), 1);
        assert_eq!(violations(Topology::Server, 9, 0), 0, "too short to say");
        assert_eq!(violations(Topology::Embedded, 10, 1), 0);
        assert_eq!(
            violations(Topology::Cluster, 10, 0),
            0,
            "all orders are read there"
        );
    }
}
