//! `stockade-lab postmortem`: lists the cases, runs them, writes the reports.
//!
//! Exit status: 0 if every verdict is the expected one, 1 if one is not, 2 for any other error.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use reporting::files::{command, write};

use crate::{
    actor::{Role, act},
    case::{Case, VariantInfo},
    catalogue, engine,
    pace::Pace,
    program::Program,
    report,
    run::{CaseRun, Observer, Runner, VariantRun},
    what_if::WhatIf,
};

/// Replays oversell post-mortems on real servers: the variant that failed, and each remedy.
/// Without a case it lists the cases.
#[derive(Debug, Args)]
pub struct Postmortem {
    /// Names of the cases to run.
    #[arg(value_name = "CASE", conflicts_with = "all")]
    cases: Vec<String>,
    /// Runs all cases.
    #[arg(long)]
    all: bool,
    /// Ratio of scenario time to real time, from 1 (real time) to 100. A variant with an unexpected
    /// verdict is run once more at a quarter of the speed.
    #[arg(long, default_value = "20", allow_negative_numbers = true)]
    speed: Pace,
    /// Writes a page (index.html) and results.json into this directory.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Writes the cases as a Markdown document.
    #[arg(long, value_name = "FILE", hide = true)]
    markdown: Option<PathBuf>,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// What if there were N buyers?
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    buyers: Option<u32>,
    /// What if there were this many units in stock?
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: Option<u64>,
    /// What if the dependency stalled for this long (scenario time)?
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    stall: Option<Duration>,
    /// What if the lock had this lease (scenario time)?
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    lease: Option<Duration>,
    /// What if N processes sold?
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    instances: Option<u32>,
}

/// Arguments of this program as an actor of a case. Not for users.
#[derive(Debug, Args)]
pub struct ActorArguments {
    /// Role of the actor.
    role: Role,
    /// Port on which the runner listens.
    port: u16,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds from 0.1 to 3600".into())
}

/// Runs this process as an actor until its role has ended.
pub async fn actor(arguments: ActorArguments) -> Result<ExitCode> {
    act(arguments.role, arguments.port)
        .await
        .map(|()| ExitCode::SUCCESS)
}

/// Executes the command. `actor` holds the arguments that start this program as an actor.
pub async fn postmortem(arguments: Postmortem, actor: Vec<OsString>) -> Result<ExitCode> {
    let cases = arguments.cases()?;
    if cases.is_empty() {
        ensure!(
            !arguments.json && arguments.report.is_none(),
            "--json and --report: name a case, or use --all"
        );
        print(&list());
        return Ok(ExitCode::SUCCESS);
    }
    let runs = arguments.run(&cases, actor).await?;
    arguments.write(&runs)?;
    Ok(if runs.iter().all(CaseRun::is_as_expected) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

impl Postmortem {
    fn cases(&self) -> Result<Vec<Case>> {
        let changed = self.what_if().changed();
        if self.all {
            ensure!(
                changed.is_empty(),
                "{}: only for cases that are named",
                changed.first().map_or("", |knob| knob.flag())
            );
            return Ok(catalogue::all());
        }
        let cases = self
            .cases
            .iter()
            .map(|name| catalogue::find(name).with_context(|| unknown(name)));
        let cases = cases.collect::<Result<Vec<_>>>()?;
        for case in &cases {
            for knob in &changed {
                ensure!(
                    case.knobs.contains(knob),
                    "{}: the case `{}` has no such parameter",
                    knob.flag(),
                    case.name
                );
            }
        }
        Ok(cases)
    }

    async fn run(&self, cases: &[Case], actor: Vec<OsString>) -> Result<Vec<CaseRun>> {
        let program = Program {
            path: std::env::current_exe()?,
            arguments: actor,
        };
        let runner = Runner::new(self.speed, self.what_if(), program, engine::program()?);
        let progress = Progress::new(cases);
        let mut runs = Vec::new();
        for case in cases {
            let run = runner.run(case, &progress).await?;
            let is_hidden = progress.bar.is_hidden();
            progress.bar.suspend(|| self.report_case(&run, is_hidden));
            runs.push(run);
        }
        progress.bar.finish_and_clear();
        Ok(runs)
    }

    fn what_if(&self) -> WhatIf {
        let (stock, stall, lease) = (self.stock, self.stall, self.lease);
        let (buyers, instances) = (
            self.buyers.map(|n| n as usize),
            self.instances.map(|n| n as usize),
        );
        WhatIf {
            buyers,
            stock,
            stall,
            lease,
            instances,
        }
    }

    /// Prints the table of a case. With `--json` the standard output carries JSON only, so a line
    /// goes to the standard error if there is no progress bar.
    fn report_case(&self, run: &CaseRun, is_hidden: bool) {
        if !self.json {
            print(&format!("{}\n", report::table::table(run)));
        } else if is_hidden {
            let verdict = match &run.skipped {
                Some(why) => format!("SKIPPED: {why}"),
                None if run.is_as_expected() => "as expected".into(),
                None => "not as expected".into(),
            };
            eprintln!("{}: {verdict}", run.case);
        }
    }

    fn write(&self, runs: &[CaseRun]) -> Result<()> {
        let json = report::json::json(runs)?;
        if self.json {
            print(&json);
        }
        if let Some(folder) = &self.report {
            let page = folder.join("index.html");
            write("--report", &folder.join("results.json"), &json)?;
            write("--report", &page, &report::html::page(runs))?;
            if !self.json {
                print(&format!("report: {}", page.display()));
            }
        }
        if let Some(file) = &self.markdown {
            let command = command(std::env::args().skip(1));
            write(
                "--markdown",
                file,
                &report::markdown::document(runs, &command),
            )?;
        }
        let unexpected = runs.iter().filter(|run| !run.is_as_expected());
        let unexpected: Vec<_> = unexpected.map(|run| run.case).collect();
        if !unexpected.is_empty() {
            eprintln!("not as expected: {}", unexpected.join(", "));
        }
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = catalogue::all().iter().map(|case| case.name).collect();
    format!("there is no case `{name}`; there are {}", names.join(", "))
}

fn list() -> String {
    let cases = catalogue::all();
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let lines = cases
        .iter()
        .map(|case| format!("{:width$}  {}", case.name, case.scenario.title));
    format!(
        "{}\n\n`stockade-lab postmortem CASE` runs one, \
         `stockade-lab postmortem --all --report out/` runs all",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// A progress bar that shows the current variant, and the verdicts of the case so far. It is hidden
/// where the standard error is no terminal.
struct Progress {
    bar: ProgressBar,
    /// Signs of the verdicts of the current case.
    verdicts: Mutex<String>,
}

impl Progress {
    fn new(cases: &[Case]) -> Self {
        let variants: usize = cases.iter().map(|case| case.variants.len()).sum();
        let bar = ProgressBar::new(variants as u64);
        let style =
            ProgressStyle::with_template("{bar:20} {pos} of {len} variants, {elapsed}  {wide_msg}");
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("\u{2501}\u{2578}\u{2500}"),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            bar,
            verdicts: Mutex::default(),
        }
    }

    fn verdicts(&self) -> MutexGuard<'_, String> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Progress {
    fn begins(&self, case: &Case, variant: &VariantInfo) {
        let first = case.variants.first();
        let is_first = first.is_some_and(|first| first.info.name == variant.name);
        let mut verdicts = self.verdicts();
        if is_first {
            verdicts.clear();
        }
        self.bar
            .set_message(format!("{} {verdicts}\u{25b8} {}", case.name, variant.name));
    }

    fn ended(&self, case: &Case, variant: &VariantRun) {
        let mut verdicts = self.verdicts();
        verdicts.push_str(if variant.measurements.holds() {
            "\u{2713}"
        } else {
            "\u{2717}"
        });
        self.bar.set_message(format!("{} {verdicts}", case.name));
        self.bar.inc(1);
    }
}

#[expect(clippy::print_stdout, reason = "the output of the command")]
fn print(text: &str) {
    println!("{text}");
}
