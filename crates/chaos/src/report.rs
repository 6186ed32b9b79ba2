//! What came of a run: a table for people, a file for programs.

use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use crate::{
    fault::{Fault, StageKind},
    judge::Verdict,
    plan::Plan,
};

/// A round that has been judged.
pub struct Judged {
    /// Where.
    pub stage: StageKind,
    /// Which.
    pub round: usize,
    /// What was broken.
    pub fault: Fault,
    /// How exactly.
    pub story: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a run.
pub struct Report {
    seed: u64,
    rounds: Vec<Judged>,
    at_the_end: Vec<String>,
}

/// Numbers over some rounds.
#[derive(Clone, Debug, Default, Serialize)]
struct Sums {
    faults: usize,
    acknowledged: usize,
    lost: usize,
    lost_by_level: usize,
    oversold: u64,
    stranded: u64,
    heal_seconds_p50: Option<f64>,
    heal_seconds_max: Option<f64>,
    violations: usize,
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
    stage: StageKind,
    fault: Fault,
    story: String,
    acknowledged: usize,
    heal_seconds: Option<f64>,
    findings: Vec<String>,
}

impl Report {
    /// Of nothing yet.
    pub fn new(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            rounds: Vec::new(),
            at_the_end: Vec::new(),
        }
    }

    /// Adds another part of the same run.
    pub fn take_in(&mut self, other: Self) {
        self.rounds.extend(other.rounds);
        self.rounds.sort_by_key(|judged| judged.round);
        self.at_the_end.extend(other.at_the_end);
    }

    /// Adds a round.
    pub fn add(&mut self, judged: Judged) {
        self.rounds.push(judged);
    }

    /// Adds what was wrong when a leg was over.
    pub fn at_the_end(&mut self, finding: String) {
        self.at_the_end.push(finding);
    }

    /// How many rounds were not as they should be.
    pub fn violations(&self) -> usize {
        self.sums(|_| true).violations + self.at_the_end.len()
    }

    /// Everything that was found, in words.
    pub fn findings(&self) -> Vec<String> {
        let of_rounds = self.rounds.iter().flat_map(|judged| {
            judged.verdict.findings.iter().map(|finding| {
                format!(
                    "round {} ({}, {}): {finding}",
                    judged.round, judged.fault, judged.story
                )
            })
        });
        of_rounds.chain(self.at_the_end.iter().cloned()).collect()
    }

    /// Writes `summary.json`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let by_fault = self
            .kinds()
            .into_iter()
            .map(|fault| (fault, self.sums(|judged| judged.fault == fault)))
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
        std::fs::write(
            dir.join("summary.json"),
            serde_json::to_string_pretty(&summary)? + "\n",
        )?;
        Ok(())
    }

    fn kinds(&self) -> Vec<Fault> {
        Fault::ALL
            .into_iter()
            .filter(|fault| self.rounds.iter().any(|judged| judged.fault == *fault))
            .collect()
    }

    fn sums(&self, which: impl Fn(&Judged) -> bool) -> Sums {
        let mut sums = Sums::default();
        let mut healed = Vec::new();
        for judged in self.rounds.iter().filter(|judged| which(judged)) {
            let verdict = &judged.verdict;
            sums.faults += 1;
            sums.acknowledged += verdict.acknowledged;
            sums.lost += verdict.lost;
            sums.lost_by_level += verdict.lost_by_level;
            sums.oversold += verdict.oversold;
            sums.stranded += verdict.stranded;
            sums.violations += usize::from(!verdict.is_good());
            healed.extend(verdict.healed_after);
        }
        healed.sort_unstable();
        sums.heal_seconds_p50 = healed.get(healed.len() / 2).map(seconds);
        sums.heal_seconds_max = healed.last().map(seconds);
        sums
    }
}

impl RoundSummary {
    fn new(judged: &Judged) -> Self {
        Self {
            round: judged.round,
            stage: judged.stage,
            fault: judged.fault,
            story: judged.story.clone(),
            acknowledged: judged.verdict.acknowledged,
            heal_seconds: judged.verdict.healed_after.as_ref().map(seconds),
            findings: judged.verdict.findings.clone(),
        }
    }
}

/// Milliseconds are as exact as it gets.
fn seconds(duration: &Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        let header = [
            "fault",
            "times",
            "acknowledged",
            "lost",
            "oversold",
            "stranded",
            "heal p50, s",
            "heal max, s",
        ];
        table.load_style(UTF8_FULL_CONDENSED).set_header(header);
        for fault in self.kinds() {
            table.add_row(row(
                &fault.to_string(),
                &self.sums(|judged| judged.fault == fault),
            ));
        }
        let all = self.sums(|_| true);
        table.add_row(row("all", &all));
        for column in 1..header.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{table}")?;
        let Sums { lost_by_level, .. } = all;
        writeln!(
            f,
            "{lost_by_level} orders of level `accepted` or `replicated` went with what Redis lost in a failover, as those levels say."
        )?;
        match self.violations() {
            0 => write!(f, "seed {}: no violation", self.seed),
            violations => write!(f, "seed {}: {violations} VIOLATIONS", self.seed),
        }
    }
}

fn row(name: &str, sums: &Sums) -> Vec<String> {
    let heal = |seconds: Option<f64>| {
        seconds.map_or_else(|| "-".into(), |seconds| format!("{seconds:.2}"))
    };
    vec![
        name.to_owned(),
        sums.faults.to_string(),
        sums.acknowledged.to_string(),
        sums.lost.to_string(),
        sums.oversold.to_string(),
        sums.stranded.to_string(),
        heal(sums.heal_seconds_p50),
        heal(sums.heal_seconds_max),
    ]
}
