//! The command line, and one run from its first goal to its exit status.

use std::{fs, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    baseline::ServeBaseline,
    costs,
    goals::{self, Goal},
    machine::Machine,
    options::Options,
    programs,
    report::Report,
};

/// Measures every goal and its baseline, prints one table, and writes `results.json`.
///
/// Exit status 0: every goal is met; 1: one is not, or something drifted or was oversold; 2: an
/// error.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("only", |only| only.value_parser(goal_name)))]
pub struct BenchArguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Processes that a run starts in addition to its own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Serves orders as one of the baselines does.
    #[command(hide = true)]
    ServeBaseline(ServeBaseline),
}

/// Canonical name of a goal, from a name in any case.
fn goal_name(text: &str) -> Result<String, String> {
    let goal = goals::ALL
        .iter()
        .find(|goal| goal.name.eq_ignore_ascii_case(text.trim()));
    goal.map(|goal| goal.name.to_owned()).ok_or_else(|| {
        let names: Vec<_> = goals::ALL.iter().map(|goal| goal.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Runs the command line.
///
/// SIGINT and SIGTERM drop the measurement, which ends its servers and removes their folders.
pub async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    let BenchArguments { options, part } = arguments;
    if let Some(Part::ServeBaseline(baseline)) = part {
        return baseline.serve().await.map(|()| ExitCode::SUCCESS);
    }
    programs::raise_file_limit();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        done = measure(&options) => done,
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}

async fn measure(options: &Options) -> Result<ExitCode> {
    fs::create_dir_all(&options.out)
        .with_context(|| format!("--out: {} cannot be created", options.out.display()))?;
    let mut report = Report::new(Machine::detect().await);
    eprintln!("{}", report.machine);
    for goal in chosen(options) {
        eprintln!(
            "{}: {} x {} s of each",
            goal.name, options.repeats, options.seconds
        );
        match (goal.measure)(options).await {
            Ok(measured) => report.add(measured),
            // One failed goal does not stop the others.
            Err(error) => report.fail(goal.name, &error),
        }
        // An interrupted run keeps the results that it has.
        report.write(&options.out)?;
    }
    // The costs belong to the orders over HTTP.
    if options.includes("P1") {
        eprintln!("costs: the processor time of an order, process by process");
        report.costs = costs::measure(options, report.machine.to_string())
            .await
            .context("costs")?;
        report.write(&options.out)?;
    }
    report.print(&options.out);
    Ok(report.exit())
}

/// Names of the goals, in the order in which they are measured.
fn chosen(options: &Options) -> impl Iterator<Item = &'static Goal> {
    let is_named = !options.only.is_empty();
    let of_every_run = move |goal: &&Goal| is_named || goal.is_in_every_run();
    let included = goals::ALL.iter().filter(of_every_run);
    included.filter(|goal| options.includes(goal.name))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{BenchArguments, chosen};
    use crate::{
        goals::{self, Goal},
        options::Options,
    };

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: BenchArguments,
    }

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let line = std::iter::once("bench").chain(arguments.iter().copied());
        Cli::try_parse_from(line)
            .map(|cli| cli.arguments.options)
            .map_err(|error| error.to_string())
    }

    fn refused(arguments: &[&str]) -> String {
        parse(arguments).unwrap_err()
    }

    #[test]
    fn a_run_without_options_measures_every_goal_but_growth() {
        let options = parse(&[]).unwrap();
        let names = |goals: &mut dyn Iterator<Item = &'static Goal>| -> Vec<_> {
            goals.map(|goal| goal.name).collect()
        };
        let mut all = names(&mut goals::ALL.iter());
        all.retain(|name| *name != "P12");
        assert_eq!(names(&mut chosen(&options)), all);
        let growth = parse(&["--only", "p12"]).unwrap();
        assert_eq!(names(&mut chosen(&growth)), ["P12"]);
        assert_eq!(options.repeats, 3);
    }

    #[test]
    fn a_goal_is_selected_by_its_whole_name() {
        let name = goals::ALL[0].name;
        let options = parse(&["--only", &name.to_lowercase()]).unwrap();
        assert_eq!(
            chosen(&options).map(|goal| goal.name).collect::<Vec<_>>(),
            [name]
        );
    }

    #[test]
    fn an_unknown_goal_is_refused_with_the_list_of_goals() {
        let text = refused(&["--only", "P1,P77"]);
        assert!(
            text.contains("--only") && text.contains("P77") && text.contains("P1"),
            "{text}"
        );
        assert!(refused(&["--only", ""]).contains("--only"));
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_the_name_of_its_flag() {
        for (flag, value) in [
            ("--repeats", "0"),
            ("--repeats", "-1"),
            ("--repeats", "x"),
            ("--seconds", "0"),
            ("--seconds", "0.5"),
            ("--rate", "0"),
            ("--idle-seconds", "0"),
            ("--ledger", "mysql"),
        ] {
            let text = refused(&[&format!("{flag}={value}")]);
            assert!(text.contains(flag) && text.contains(value), "{text}");
        }
    }
}
