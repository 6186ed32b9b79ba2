//! `stockade-lab locks compare`: every lock under the same faults and the same load.
//!
//! Exit status 0: every lock kept its promises; 1: a lock broke a promise; 2: an error.

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
use postmortem::program::Program;
use reporting::files::write;

use crate::{
    backend::Backend,
    comparison::{self, Comparison, Plan, Progress},
    contender,
    fault::Fault,
    load::Load,
    report::{html, json, labels_for, markdown, table},
};

/// Duration of each load measurement with `--quick`.
const QUICK_LOAD_DURATION: Duration = Duration::from_millis(500);

/// Commands about locks.
#[derive(Debug, Subcommand)]
pub enum Locks {
    /// Runs every lock on real servers under the same faults and the same load, and prints what
    /// happened to the protected data and what the lock costs.
    ///
    /// Exit status 0: every lock kept its promises; 1: a lock broke a promise; 2: an error.
    Compare(Compare),
    /// Runs one contender of an experiment in this process.
    #[command(hide = true, name = contender::ROLE)]
    Contender {
        /// Port on which the experiment listens.
        port: u16,
    },
}

/// What to compare, and how to show it.
#[derive(Debug, Args)]
pub struct Compare {
    /// Faults: of pause, failover, restart, clock, partition, lost-answer, kill. Default: all.
    /// `off`: none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = fault)]
    faults: Vec<Choice<Fault>>,
    /// Loads: of alone, contended, messages, wakeups. Default: all. `off`: none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = load)]
    load: Vec<Choice<Load>>,
    /// Locks. Default: all. An unknown name prints the list.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = backend)]
    backends: Vec<Backend>,
    /// Seconds to measure each lock alone, and again contended.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds, conflicts_with = "quick", allow_negative_numbers = true)]
    seconds: Duration,
    /// Measure for half a second only.
    #[arg(long)]
    quick: bool,
    /// Write a page (locks.html) and locks.json into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Replace the tables in these documents, between their marks.
    #[arg(long, value_name = "FILE", hide = true)]
    markdown: Vec<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// An item of a list option.
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

fn backend(text: &str) -> Result<Backend, String> {
    find(text, &Backend::ALL, Backend::name)
        .ok_or_else(|| format!("expected {}", names(&Backend::ALL, Backend::name)))
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
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a number of seconds from 0.1 to 600".into())
}

/// The chosen items, in the order of `all`. No choice means all of them.
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

/// Runs a command. `prefix` are the arguments with which this program reaches these commands.
pub async fn locks(command: Locks, prefix: Vec<OsString>) -> Result<ExitCode> {
    match command {
        Locks::Compare(arguments) => arguments.compare(prefix).await,
        Locks::Contender { port } => contender::run(port).await.map(|()| ExitCode::SUCCESS),
    }
}

impl Compare {
    async fn compare(self, prefix: Vec<OsString>) -> Result<ExitCode> {
        let plan = self.plan(prefix)?;
        let progress = Bar::new();
        let comparison = comparison::compare(plan, &progress).await?;
        progress.bar.finish_and_clear();
        self.show(&comparison)?;
        let broken = comparison.broken_promises();
        if broken.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("broken promises: {}", broken.join("; "));
        Ok(ExitCode::from(1))
    }

    fn plan(&self, prefix: Vec<OsString>) -> Result<Plan> {
        let faults = chosen("--faults", &self.faults, &Fault::ALL)?;
        let loads = chosen("--load", &self.load, &Load::ALL)?;
        ensure!(
            !faults.is_empty() || !loads.is_empty(),
            "--faults off, --load off: nothing is left to compare"
        );
        for file in &self.markdown {
            fs::metadata(file).with_context(|| format!("--markdown {}", file.display()))?;
        }
        let mut backends = Backend::ALL.to_vec();
        backends.retain(|backend| self.backends.is_empty() || self.backends.contains(backend));
        let load_duration = if self.quick {
            QUICK_LOAD_DURATION
        } else {
            self.seconds
        };
        let program = Program {
            path: std::env::current_exe()?,
            arguments: prefix,
        };
        Ok(Plan {
            backends,
            faults,
            loads,
            load_duration,
            program,
        })
    }

    fn show(&self, comparison: &Comparison) -> Result<()> {
        let json = json::json(comparison)?;
        if self.json {
            print(&json);
        } else {
            print(&table::tables(comparison));
        }
        if let Some(folder) = &self.report {
            let page = folder.join("locks.html");
            write("--report", &folder.join("locks.json"), &json)?;
            write("--report", &page, &html::page(comparison))?;
            if !self.json {
                print(&format!("report: {}", page.display()));
            }
        }
        for file in &self.markdown {
            self.replace_tables(file, comparison)
                .with_context(|| format!("--markdown {}", file.display()))?;
        }
        Ok(())
    }

    fn replace_tables(&self, file: &Path, comparison: &Comparison) -> Result<()> {
        let document = fs::read_to_string(file)?;
        let command = command(std::env::args());
        let document = markdown::replaced(&document, comparison, &command, &labels_for(file))?;
        Ok(fs::write(file, document)?)
    }
}

/// The command that reproduces the tables: the present one without the options that only say where
/// the tables go.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut command = "stockade-lab locks compare".to_owned();
    let mut arguments = arguments.skip_while(|word| word != "compare").skip(1);
    while let Some(word) = arguments.next() {
        if word == "--markdown" || word == "--report" {
            arguments.next();
        } else if !word.starts_with("--markdown=") && !word.starts_with("--report=") {
            command = format!("{command} {word}");
        }
    }
    command
}

/// A progress bar. It hides itself if the output is no terminal.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template(
            "{bar:20} {pos} of {len} experiments, {elapsed}  {wide_msg}",
        );
        bar.set_style(
            style
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("\u{2501}\u{2578}\u{2500}"),
        );
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }
}

impl Progress for Bar {
    fn experiments(&self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
    }

    fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

#[expect(clippy::print_stdout, reason = "the program prints its results")]
fn print(text: &str) {
    println!("{text}");
}
