//! `chaos --seed 7 --faults 100`: exit status 0 without a violation, 1 with one, 2 if the run itself failed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use chaos::{Fault, Materials, Plan, StageKind};
use clap::{Parser, ValueEnum};

/// Breaks what Stockade runs on, in the middle of a rush, and proves that nothing was lost, oversold or stranded.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// What everything is decided by.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// How many faults.
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// Only these kinds of faults, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Only on these stages, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',')]
    stages: Vec<StageKind>,
    /// Stages at a time. With more than one the times to heal say less.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Where `summary.json` and the logs go. What is there from an earlier run is removed.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match chaos(Cli::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The number of violations.
async fn chaos(cli: Cli) -> Result<usize> {
    let program = program()?;
    make_empty(&cli.out)?;
    let out = cli.out.canonicalize()?;
    let (materials, missing) = Materials::of_this_machine(program, out.clone()).await;
    for fault in missing {
        say(&format!("left out: {fault}"));
    }
    let kinds: Vec<_> = materials
        .faults()
        .into_iter()
        .filter(|fault| cli.only.is_empty() || cli.only.contains(fault))
        .collect();
    let stages = if cli.stages.is_empty() {
        StageKind::value_variants().to_vec()
    } else {
        cli.stages
    };
    let plan = Plan::new(cli.seed, cli.faults, &kinds, &stages);
    ensure!(
        plan.faults() > 0,
        "none of these faults can happen on these stages"
    );
    say(&format!(
        "seed {}, {} faults, {}",
        plan.seed,
        plan.faults(),
        materials.program.display()
    ));
    let report = chaos::run(&plan, &materials, cli.at_once, &say).await;
    report.write(&out)?;
    say(&format!("{report}\n{}", out.join("summary.json").display()));
    Ok(report.violations())
}

/// The one that STOCKADE_BIN names, or the one beside this program.
fn program() -> Result<PathBuf> {
    let named = env::var_os("STOCKADE_BIN").map(PathBuf::from);
    let program = match named {
        Some(program) => program,
        None => env::current_exe()?.with_file_name("stockade"),
    };
    program.canonicalize().with_context(|| {
        format!(
            "{}: build it with `cargo build --release -p stockade`, or set STOCKADE_BIN",
            program.display()
        )
    })
}

fn make_empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

#[expect(clippy::print_stdout, reason = "this is what the program prints")]
fn say(line: &str) {
    println!("{line}");
}
