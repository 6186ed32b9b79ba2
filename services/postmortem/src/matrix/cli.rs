//! `stockade locks compare`: every lock under the same faults and the same load.
//!
//! Exit status: 0 every lock kept what it promises; 1 one did not; 2 something else went wrong.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    contestant::Contestant,
    fault::Fault,
    load::Load,
    report::{html, json, markdown, table, words_for},
    run::{self, Audience, Matrix, Plan},
};
use crate::actor::Program;

/// About locks in general.
#[derive(Debug, Subcommand)]
pub enum Locks {
    /// Runs every lock on real servers under the same faults and the same load, and prints what became of what it protects, and what it costs.
    ///
    /// Exit status 0: every lock kept what it promises; 1: one did not; 2: an error.
    Compare(Compare),
}

/// What is compared.
#[derive(Debug, Args)]
pub struct Compare {
    /// Which faults: of pause, failover, restart, clock, partition, lost-answer, kill. Default: all. `off`: none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = fault)]
    faults: Vec<Choice<Fault>>,
    /// What is measured: of alone, contended, messages, wakeups. Default: all. `off`: nothing.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = load)]
    load: Vec<Choice<Load>>,
    /// Which locks. Default: all. A wrong name says which there are.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = backend)]
    backends: Vec<Contestant>,
    /// For how many seconds each lock is measured, alone and again contended.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds, conflicts_with = "quick", allow_negative_numbers = true)]
    seconds: Duration,
    /// Measure for half a second only.
    #[arg(long)]
    quick: bool,
    /// Write a page (locks.html) and locks.json into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Put the tables into these documents, between the marks that they have.
    #[arg(long, value_name = "FILE", hide = true)]
    markdown: Vec<PathBuf>,
    /// Print JSON, not tables.
    #[arg(long)]
    json: bool,
}

/// One of several, or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice<T> {
    One(T),
    Off,
}

fn fault(text: &str) -> Result<Choice<Fault>, String> {
    choice(text, &Fault::ALL, Fault::name)
}

fn load(text: &str) -> Result<Choice<Load>, String> {
    choice(text, &Load::ALL, Load::name)
}

fn backend(text: &str) -> Result<Contestant, String> {
    find(text, &Contestant::ALL, Contestant::name)
        .ok_or_else(|| format!("expected {}", names(&Contestant::ALL, Contestant::name)))
}

fn choice<T: Copy>(
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Choice<T>, String> {
    if text == "off" {
        return Ok(Choice::Off);
    }
    find(text, all, name)
        .map(Choice::One)
        .ok_or_else(|| format!("expected {}, or off alone", names(all, name)))
}

fn find<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
    all.iter().copied().find(|item| name(*item) == text)
}

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    all.iter()
        .map(|item| name(*item))
        .collect::<Vec<_>>()
        .join(", ")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds from 0.1 to 600".into())
}

/// Those that were asked for, in their own order; all, if none was named.
fn chosen<T: Copy + PartialEq>(option: &str, choices: &[Choice<T>], all: &[T]) -> Result<Vec<T>> {
    ensure!(
        !choices.contains(&Choice::Off) || choices.len() == 1,
        "{option}: off stands alone"
    );
    if choices.is_empty() {
        return Ok(all.to_vec());
    }
    Ok(all
        .iter()
        .copied()
        .filter(|item| choices.contains(&Choice::One(*item)))
        .collect())
}

/// Does what the command line says. `actor` is how this program is told to be an actor.
pub async fn locks(command: Locks, actor: Vec<OsString>) -> Result<ExitCode> {
    let Locks::Compare(arguments) = command;
    let plan = arguments.plan(actor)?;
    let progress = Progress::new();
    let matrix = run::compare(plan, &progress).await?;
    progress.bar.finish_and_clear();
    arguments.show(&matrix)?;
    let broken = matrix.broken_promises();
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("not as promised: {}", broken.join("; "));
    Ok(ExitCode::from(1))
}

impl Compare {
    fn plan(&self, actor: Vec<OsString>) -> Result<Plan> {
        let faults = chosen("--faults", &self.faults, &Fault::ALL)?;
        let loads = chosen("--load", &self.load, &Load::ALL)?;
        ensure!(
            !faults.is_empty() || !loads.is_empty(),
            "--faults off, --load off: nothing is left to compare"
        );
        for file in &self.markdown {
            fs::metadata(file).with_context(|| format!("--markdown {}", file.display()))?;
        }
        let named = |contestant: &Contestant| {
            self.backends.is_empty() || self.backends.contains(contestant)
        };
        let contestants = Contestant::ALL.into_iter().filter(named).collect();
        let each = if self.quick {
            Duration::from_millis(500)
        } else {
            self.seconds
        };
        let program = Program {
            path: std::env::current_exe()?,
            arguments: actor,
        };
        Ok(Plan {
            contestants,
            faults,
            loads,
            each,
            program,
        })
    }

    fn show(&self, matrix: &Matrix) -> Result<()> {
        let json = json::json(matrix)?;
        say(if self.json {
            json.clone()
        } else {
            table::tables(matrix)
        });
        if let Some(folder) = &self.report {
            write(folder, "locks.json", &json)?;
            write(folder, "locks.html", &html::page(matrix))?;
            if !self.json {
                say(format!("report: {}", folder.join("locks.html").display()));
            }
        }
        for file in &self.markdown {
            let document = fs::read_to_string(file)?;
            let replaced = markdown::replaced(&document, matrix, &self.command(), &words_for(file));
            fs::write(
                file,
                replaced.with_context(|| format!("--markdown {}", file.display()))?,
            )?;
        }
        Ok(())
    }

    /// What a reader types to see the same.
    fn command(&self) -> String {
        let mut command = "stockade locks compare".to_owned();
        let mut words = std::env::args()
            .skip_while(|word| word != "compare")
            .skip(1);
        while let Some(word) = words.next() {
            if word == "--markdown" || word == "--report" {
                words.next();
            } else if !word.starts_with("--markdown=") && !word.starts_with("--report=") {
                command = format!("{command} {word}");
            }
        }
        command
    }
}

fn write(folder: &Path, file: &str, text: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("--report {}", folder.display()))?;
    let file = folder.join(file);
    fs::write(&file, text).with_context(|| file.display().to_string())
}

/// A bar that hides itself where nobody watches.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style =
            ProgressStyle::with_template("{bar:20} {pos} of {len} trials, {elapsed}  {wide_msg}");
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("\u{2501}\u{2578}\u{2500}"),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }
}

impl Audience for Progress {
    fn done(&self, trials: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(trials as u64);
    }

    fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program prints")]
fn say(text: String) {
    println!("{text}");
}
