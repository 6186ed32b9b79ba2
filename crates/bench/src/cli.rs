//! The command line, and one run from its first goal to its exit status.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    costs,
    goals::{self, Goal},
    machine::Machine,
    programs,
    report::Report,
    rival::ServeRival,
};

/// What is measured, and how often.
#[derive(Debug, Clone, Args)]
pub struct Bench {
    /// Only these goals, such as P1,P7.
    #[arg(long, value_delimiter = ',', value_name = "GOALS", value_parser = goal_name)]
    pub only: Vec<String>,
    /// How often each figure and its baseline are measured, in turn. The table shows medians.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = repeats)]
    pub repeats: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Orders at once over HTTP. One that is recorded waits for two disks, so it takes more of them to keep the processors busy than a bare answer does; the
    /// ceiling is measured with as many.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Where `results.json` goes.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    pub out: PathBuf,
}

/// Measures every goal beside its baseline, prints one table, and writes `results.json`.
///
/// Exit status 0: every goal is met; 1: one is not, or something drifted or was oversold; 2: an error.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    bench: Bench,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What the processes do that a run starts beside itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Serves orders in another way.
    #[command(hide = true)]
    ServeRival(ServeRival),
}

/// The name as `goals` has it.
fn goal_name(text: &str) -> Result<String, String> {
    let goal = goals::ALL
        .iter()
        .find(|goal| goal.name.eq_ignore_ascii_case(text.trim()));
    goal.map(|goal| goal.name.to_owned()).ok_or_else(|| {
        let names: Vec<_> = goals::ALL.iter().map(|goal| goal.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn repeats(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|repeats| (1..=100).contains(repeats))
        .ok_or_else(|| "expected a number from 1 to 100".to_owned())
}

/// Does what the command line says, or stops in the middle when it is told to: whatever was started is dropped, and so ended and removed.
pub async fn run() -> Result<ExitCode> {
    let Cli { bench, part } = Cli::parse();
    if let Some(Part::ServeRival(rival)) = part {
        return rival.serve().await.map(|()| ExitCode::SUCCESS);
    }
    programs::raise_file_limit();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        done = measure(&bench) => done,
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}

async fn measure(bench: &Bench) -> Result<ExitCode> {
    fs::create_dir_all(&bench.out)
        .with_context(|| format!("--out: {} cannot be made", bench.out.display()))?;
    let mut report = Report::new(Machine::look().await);
    eprintln!("{}", report.machine);
    for goal in bench.goals() {
        eprintln!(
            "{}: {} x {} s of each",
            goal.name, bench.repeats, bench.seconds
        );
        match (goal.measure)(bench).await {
            Ok(measured) => report.add(measured),
            // The others are worth having all the same.
            Err(error) => report.fail(goal.name, &error),
        }
        // What is measured stays, also if the rest is interrupted.
        report.write(&bench.out)?;
    }
    if bench.costs() {
        eprintln!("costs: the processor time of an order, process by process");
        report.costs = costs::measure(bench, report.machine.to_string())
            .await
            .context("costs")?;
        report.write(&bench.out)?;
    }
    report.print(&bench.out);
    Ok(report.exit())
}

impl Bench {
    /// They belong to the orders over HTTP.
    fn costs(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == "P1")
    }

    fn goals(&self) -> impl Iterator<Item = &'static Goal> {
        goals::ALL
            .iter()
            .filter(|goal| self.only.is_empty() || self.only.iter().any(|name| name == goal.name))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Bench, Cli};
    use crate::goals;

    fn bench(arguments: &[&str]) -> Result<Bench, String> {
        let line = std::iter::once("bench").chain(arguments.iter().copied());
        Cli::try_parse_from(line)
            .map(|cli| cli.bench)
            .map_err(|error| error.to_string())
    }

    fn refused(arguments: &[&str]) -> String {
        bench(arguments).unwrap_err()
    }

    #[test]
    fn without_a_word_every_goal_is_measured() {
        let bench = bench(&[]).unwrap();
        assert_eq!(bench.goals().count(), goals::ALL.len());
        assert_eq!(bench.repeats, 3);
    }

    #[test]
    fn goals_are_chosen_by_their_whole_names() {
        let name = goals::ALL[0].name;
        let bench = bench(&["--only", &name.to_lowercase()]).unwrap();
        assert_eq!(
            bench.goals().map(|goal| goal.name).collect::<Vec<_>>(),
            [name]
        );
    }

    #[test]
    fn a_goal_that_nobody_knows_is_refused_with_those_that_there_are() {
        let text = refused(&["--only", "P1,P77"]);
        assert!(
            text.contains("--only") && text.contains("P77") && text.contains("P1"),
            "{text}"
        );
        assert!(refused(&["--only", ""]).contains("--only"));
    }

    #[test]
    fn a_number_that_measures_nothing_is_refused_by_its_flag() {
        for (flag, value) in [
            ("--repeats", "0"),
            ("--repeats", "-1"),
            ("--repeats", "x"),
            ("--seconds", "0"),
            ("--seconds", "0.5"),
        ] {
            let text = refused(&[&format!("{flag}={value}")]);
            assert!(text.contains(flag) && text.contains(value), "{text}");
        }
    }
}
