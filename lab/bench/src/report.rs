//! The table and the JSON.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use anyhow::Result;
use reporting::{
    files,
    number::{percent, significant},
    table::{Table, align_right, ruled, wrap},
};
use serde::Serialize;

use crate::{costs::Costs, goal::Measured, goals, machine::Machine, summary::Summary};

const RESULTS: &str = "results.json";

const COLUMNS: [&str; 14] = [
    "goal", "measured", "figure", "against", "baseline", "unit", "ratio", "spread", "promised",
    "met", "accepted", "rejected", "drift", "oversold",
];
/// Indexes of the text columns.
const WORDS: [usize; 4] = [0, 1, 3, 5];
/// Width of the table when the output is no terminal.
const WIDTH: u16 = 200;

/// Results of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Machine that ran it.
    pub machine: Machine,
    /// Input of `stockade plan --costs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Outcomes by name, `P1` to `P12`.
    #[serde(flatten)]
    goals: BTreeMap<&'static str, Outcome>,
}

/// Outcome of a goal.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Measured {
        title: &'static str,
        /// The goal itself: its first line.
        #[serde(flatten)]
        goal: Box<Summary>,
        /// The further lines.
        lines: Vec<Summary>,
    },
    Failed {
        error: String,
    },
}

impl Report {
    /// An empty report.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            costs: None,
            goals: BTreeMap::new(),
        }
    }

    /// Adds the lines of a goal and logs them.
    pub fn add(&mut self, measured: Measured) {
        let Measured {
            goal: name,
            title,
            lines,
        } = measured;
        let mut lines = lines.into_iter().map(Summary::of);
        let Some(goal) = lines.next() else {
            return self.fail(name, &anyhow::anyhow!("nothing was measured"));
        };
        let lines: Vec<_> = lines.collect();
        for summary in std::iter::once(&goal).chain(&lines) {
            eprintln!("{name}: {}", in_a_line(summary));
        }
        self.goals.insert(
            name,
            Outcome::Measured {
                title,
                goal: Box::new(goal),
                lines,
            },
        );
    }

    /// Adds the error of a goal that could not be measured, and logs it.
    pub fn fail(&mut self, name: &'static str, error: &anyhow::Error) {
        let error = format!("{error:#}");
        eprintln!("{name}: {error}");
        self.goals.insert(name, Outcome::Failed { error });
    }

    /// Writes `results.json`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        files::write("--out", &folder.join(RESULTS), &files::json(self)?)
    }

    /// Prints the table, followed by the setting of each line.
    #[expect(
        clippy::print_stdout,
        reason = "the report is the output of the command"
    )]
    pub fn print(&self, folder: &Path) {
        println!("{}\n\n{}\n", self.machine, self.table());
        for line in self.notes() {
            println!("{line}");
        }
        if let Some(costs) = &self.costs {
            println!("\n{costs}");
        }
        println!("\n{}\n{}", folder.join(RESULTS).display(), self.verdict());
    }

    /// 0: every goal is met; 1: one is not, or a unit is not accounted for; 2: one could not be
    /// measured.
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    fn status(&self) -> u8 {
        let failed = self
            .goals
            .values()
            .any(|outcome| matches!(outcome, Outcome::Failed { .. }));
        match (failed, self.lines().all(|(_, summary)| summary.is_good())) {
            (true, _) => 2,
            (false, false) => 1,
            (false, true) => 0,
        }
    }

    /// Every line, the goal itself first, with the goal's name and title.
    fn lines(&self) -> impl Iterator<Item = ((&'static str, &'static str), &Summary)> {
        let measured = goals::ALL
            .iter()
            .filter_map(|goal| self.goals.get_key_value(goal.name));
        measured.flat_map(|(name, outcome)| {
            let (title, summaries): (_, Vec<_>) = match outcome {
                Outcome::Measured { title, goal, lines } => {
                    (*title, std::iter::once(&**goal).chain(lines).collect())
                }
                Outcome::Failed { .. } => ("", Vec::new()),
            };
            summaries
                .into_iter()
                .map(move |summary| ((*name, title), summary))
        })
    }

    fn table(&self) -> Table {
        let mut table = ruled(COLUMNS);
        wrap(&mut table, |terminal| terminal.unwrap_or(WIDTH));
        for ((name, _), summary) in self.lines() {
            table.add_row(row(name, summary));
        }
        let columns = 0..COLUMNS.len();
        align_right(&mut table, columns.filter(|index| !WORDS.contains(index)));
        table
    }

    /// Settings of all lines, and the errors of goals that could not be measured.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let mut last = "";
        for (
            (name, title),
            Summary {
                measured, setting, ..
            },
        ) in self.lines()
        {
            if name != last {
                notes.push(format!("{name}: {title}"));
                last = name;
            }
            notes.push(format!("  {measured}: {setting}"));
        }
        for (name, outcome) in &self.goals {
            if let Outcome::Failed { error } = outcome {
                notes.push(format!("{name} could not be measured: {error}"));
            }
        }
        notes
    }

    fn verdict(&self) -> String {
        let not_good = self.lines().filter(|(_, summary)| !summary.is_good());
        let names: Vec<_> = not_good
            .map(|((name, _), summary)| format!("{name} ({})", summary.measured))
            .collect();
        match self.status() {
            0 => "every goal is met".to_owned(),
            1 => format!("NOT met: {}", names.join(", ")),
            _ => "NOT everything could be measured".to_owned(),
        }
    }
}

fn row(name: &str, summary: &Summary) -> [String; COLUMNS.len()] {
    [
        name.to_owned(),
        summary.measured.clone(),
        significant(summary.figure),
        summary.against.clone(),
        significant(summary.baseline),
        summary.unit.to_owned(),
        significant(summary.ratio),
        percent(summary.spread),
        summary.goal.clone(),
        if summary.met { "yes" } else { "NO" }.to_owned(),
        summary.accepted.to_string(),
        summary.rejected.to_string(),
        summary.drift.to_string(),
        summary.oversold.to_string(),
    ]
}

fn in_a_line(summary: &Summary) -> String {
    let numbers = [summary.figure, summary.baseline, summary.ratio];
    let ([figure, baseline, ratio], spread) = (numbers.map(significant), percent(summary.spread));
    let Summary {
        measured,
        against,
        unit,
        goal,
        ..
    } = summary;
    format!(
        "{measured} {figure}, {against} {baseline} {unit}: {ratio} (promised {goal}; spread {spread})"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Report;
    use crate::{
        goal::{Bound, Measured},
        machine::Machine,
        summary::samples::line,
    };

    fn report() -> Report {
        let mut report = Report::new(Machine::default());
        let lines = vec![
            line(
                Bound::AtLeast(0.6),
                &[(70.0, 100.0), (60.0, 100.0), (80.0, 100.0)],
            ),
            line(Bound::None, &[(1.0, 2.0)]),
        ];
        report.add(Measured {
            goal: "P1",
            title: "recorded orders over HTTP",
            lines,
        });
        report
    }

    fn json(report: &Report) -> Value {
        let folder = tempfile::tempdir().unwrap();
        report.write(folder.path()).unwrap();
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("results.json")).unwrap())
            .unwrap()
    }

    #[test]
    fn the_results_have_the_goal_on_top_and_its_further_lines_below() {
        let results = json(&report());
        let p1 = &results["P1"];
        assert_eq!(
            (&p1["ratio"], &p1["figure"], &p1["baseline"]),
            (&json!(0.7), &json!(70.0), &json!(100.0))
        );
        assert_eq!(
            (
                &p1["accepted"],
                &p1["rejected"],
                &p1["drift"],
                &p1["oversold"]
            ),
            (&json!(30), &json!(3), &json!(0), &json!(0))
        );
        assert_eq!(
            (&p1["goal"], &p1["met"], &p1["unit"]),
            (&json!(">= 0.6"), &json!(true), &json!("orders/s"))
        );
        assert!(p1["spread"].is_f64() && p1["setting"].is_string());
        assert_eq!(p1["samples"].as_array().unwrap().len(), 3);
        assert_eq!(
            (
                p1["lines"].as_array().unwrap().len(),
                &p1["lines"][0]["ratio"]
            ),
            (1, &json!(0.5))
        );
        assert!(results["machine"].is_object());
    }

    #[test]
    fn the_exit_status_is_0_only_if_every_goal_is_met() {
        let mut report = report();
        assert_eq!(report.status(), 0);
        report.add(Measured {
            goal: "P2",
            title: "",
            lines: vec![line(Bound::AtLeast(0.9), &[(1.0, 2.0)])],
        });
        assert_eq!(report.status(), 1);
        assert!(report.verdict().contains("P2"));
    }

    #[test]
    fn a_missed_bound_of_a_further_line_and_drift_fail_the_run() {
        let mut report = report();
        let lines = vec![
            line(Bound::None, &[(1.0, 1.0)]),
            line(Bound::AtLeast(20.0), &[(1.0, 1.0)]),
        ];
        report.add(Measured {
            goal: "P2",
            title: "",
            lines,
        });
        assert_eq!(report.status(), 1);
        let mut drifted = line(Bound::None, &[(1.0, 1.0)]);
        drifted.samples[0].drift = 1;
        report.add(Measured {
            goal: "P2",
            title: "",
            lines: vec![drifted],
        });
        assert_eq!(report.status(), 1);
    }

    #[test]
    fn a_goal_that_cannot_be_measured_is_an_error_and_the_other_goals_are_reported() {
        let mut report = report();
        report.fail("P5", &anyhow::anyhow!("no wrk").context("P5"));
        report.add(Measured {
            goal: "P6",
            title: "",
            lines: Vec::new(),
        });
        assert_eq!(report.status(), 2);
        let results = json(&report);
        assert_eq!(results["P5"]["error"], "P5: no wrk");
        assert!(results["P6"]["error"].is_string() && results["P1"]["ratio"].is_f64());
        assert!(report.notes().iter().any(|note| note.contains("no wrk")));
    }

    #[test]
    fn every_line_is_a_row_with_accepted_and_rejected_orders() {
        let report = report();
        let table = report.table().to_string();
        assert_eq!(report.table().row_count(), 2);
        for text in ["P1", "0.70", ">= 0.6", "29 %", "yes", " 30 ", " 3 "] {
            assert!(table.contains(text), "{text} is not in\n{table}");
        }
        assert!(
            report
                .notes()
                .iter()
                .any(|note| note.contains("wrk, 512 connections"))
        );
    }
}
