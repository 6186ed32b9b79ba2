//! `stockade postmortem`: lists the cases, plays them, writes the report.
//!
//! Exit status: 0 every case showed what its story says; 1 one did not; 2 something else went wrong.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    actor::{Program, Role, act},
    case::{Case, Way},
    catalogue, engine,
    pace::Pace,
    report,
    run::{Audience, Played, PlayedWay, Run},
    what_if::WhatIf,
};

/// Replays oversell post-mortems on real servers: the way that failed, and each remedy. Without a case it lists them.
#[derive(Debug, Args)]
pub struct Postmortem {
    /// Which cases.
    #[arg(value_name = "CASE", conflicts_with = "all")]
    cases: Vec<String>,
    /// All of them.
    #[arg(long)]
    all: bool,
    /// How much faster than the story: 1 is the real thing. What is not as told at first is told once more at a quarter of it.
    #[arg(long, default_value = "20", allow_negative_numbers = true)]
    speed: Pace,
    /// Write a page (index.html) and results.json into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the cases as a Markdown document.
    #[arg(long, value_name = "FILE", hide = true)]
    markdown: Option<PathBuf>,
    /// Print JSON, not tables.
    #[arg(long)]
    json: bool,
    /// What if so many wanted to buy?
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    buyers: Option<u32>,
    /// What if there were so many units?
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stock: Option<u64>,
    /// What if it stalled for so many seconds (of the story)?
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    stall: Option<Duration>,
    /// What if the lock were given for so many seconds (of the story)?
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    lease: Option<Duration>,
    /// What if so many processes sold?
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    instances: Option<u32>,
}

/// What this program is when it plays a part. Not for users.
#[derive(Debug, Args)]
pub struct ActorArguments {
    /// Which part.
    role: Role,
    /// Where the play listens.
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

/// Is an actor until it is done.
pub async fn actor(arguments: ActorArguments) -> Result<ExitCode> {
    act(arguments.role, arguments.port)
        .await
        .map(|()| ExitCode::SUCCESS)
}

/// Does what the command line says. `actor` is how this program is told to be an actor.
pub async fn postmortem(arguments: Postmortem, actor: Vec<OsString>) -> Result<ExitCode> {
    let cases = arguments.cases()?;
    if cases.is_empty() {
        ensure!(
            !arguments.json && arguments.report.is_none(),
            "--json and --report: name a case, or say --all"
        );
        say(&list());
        return Ok(ExitCode::SUCCESS);
    }
    let program = Program {
        path: std::env::current_exe()?,
        arguments: actor,
    };
    let run = Run::new(
        arguments.speed,
        arguments.what_if(),
        program,
        engine::program()?,
    );
    let progress = Progress::new(&cases);
    let mut played = Vec::new();
    for case in &cases {
        let seen = run.play(case.as_ref(), &progress).await?;
        let is_unwatched = progress.bar.is_hidden();
        progress.bar.suspend(|| arguments.tell(&seen, is_unwatched));
        played.push(seen);
    }
    progress.bar.finish_and_clear();
    arguments.show(&played)?;
    Ok(if played.iter().all(Played::is_as_told) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

impl Postmortem {
    fn cases(&self) -> Result<Vec<Box<dyn Case>>> {
        if self.all {
            let changed = self.what_if().changed();
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
            for knob in self.what_if().changed() {
                if !case.knobs().contains(&knob) {
                    bail!(
                        "{}: the case `{}` has nothing that it would change",
                        knob.flag(),
                        case.name()
                    );
                }
            }
        }
        Ok(cases)
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

    /// What is said of a case when it was played. Where JSON is wanted there is nothing else on the standard output.
    fn tell(&self, seen: &Played, is_unwatched: bool) {
        if !self.json {
            say(&format!("{}\n", report::table::table(seen)));
        } else if is_unwatched {
            eprintln!(
                "{}: {}",
                seen.case,
                if seen.is_as_told() {
                    "as told"
                } else {
                    "not as told"
                }
            );
        }
    }

    fn show(&self, played: &[Played]) -> Result<()> {
        let json = report::json::json(played)?;
        if self.json {
            say(&json);
        }
        if let Some(folder) = &self.report {
            write(folder, "results.json", &json)?;
            write(folder, "index.html", &report::html::page(played))?;
            if !self.json {
                say(&format!("report: {}", folder.join("index.html").display()));
            }
        }
        if let Some(file) = &self.markdown {
            let command: Vec<_> = std::env::args().skip(1).collect();
            let command = format!(
                "stockade postmortem {}",
                command.join(" ").trim_start_matches("postmortem ")
            );
            fs::write(file, report::markdown::document(played, &command))
                .with_context(|| file.display().to_string())?;
        }
        let differ: Vec<_> = played
            .iter()
            .filter(|case| !case.is_as_told())
            .map(|case| case.case)
            .collect();
        if !differ.is_empty() {
            eprintln!("not as told: {}", differ.join(", "));
        }
        Ok(())
    }
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("--report {}", folder.display()))?;
    let file = folder.join(file);
    fs::write(&file, text).with_context(|| file.display().to_string())
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = catalogue::all().iter().map(|case| case.name()).collect();
    format!("there is no case `{name}`; there are {}", names.join(", "))
}

fn list() -> String {
    let cases = catalogue::all();
    let width = cases
        .iter()
        .map(|case| case.name().len())
        .max()
        .unwrap_or(0);
    let lines = cases
        .iter()
        .map(|case| format!("{:width$}  {}", case.name(), case.story().title));
    format!(
        "{}\n\n`stockade postmortem CASE` plays one, `stockade postmortem --all --report out/` all",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// A bar that says what is played, and what was seen of the case so far. It hides itself where nobody watches.
struct Progress {
    bar: ProgressBar,
    /// Of the ways of the case that is played now.
    seen: Mutex<String>,
}

impl Progress {
    fn new(cases: &[Box<dyn Case>]) -> Self {
        let ways: usize = cases.iter().map(|case| case.ways().len()).sum();
        let bar = ProgressBar::new(ways as u64);
        let style =
            ProgressStyle::with_template("{bar:20} {pos} of {len} ways, {elapsed}  {wide_msg}");
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("\u{2501}\u{2578}\u{2500}"),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            bar,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Audience for Progress {
    fn begins(&self, case: &dyn Case, way: &Way) {
        let is_first = case
            .ways()
            .first()
            .is_some_and(|first| first.name == way.name);
        let mut seen = self.seen();
        if is_first {
            seen.clear();
        }
        self.bar
            .set_message(format!("{} {seen}\u{25b8} {}", case.name(), way.name));
    }

    fn ended(&self, case: &dyn Case, way: &PlayedWay) {
        let mut seen = self.seen();
        seen.push_str(if way.evidence.holds() {
            "\u{2713}"
        } else {
            "\u{2717}"
        });
        self.bar.set_message(format!("{} {seen}", case.name()));
        self.bar.inc(1);
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program prints")]
fn say(text: &str) {
    println!("{text}");
}
