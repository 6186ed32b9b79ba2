//! `stockade-lab chaos --seed 7 --faults 100`: exit status 0 without a violation, 1 with one, 2 if
//! the run itself failed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::{BrokerKind, EnvConfig, Fault, Plan, Topology};

/// Injects faults into everything that Stockade runs on during a sale, and proves that nothing was
/// lost, oversold or stranded.
#[derive(Debug, Args)]
pub struct Chaos {
    /// Seed of all decisions.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Number of faults.
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// Only these kinds of faults, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Only these topologies of servers, comma-separated.
    #[arg(long, value_enum, value_delimiter = ',')]
    stages: Vec<Topology>,
    /// Number of environments that run concurrently. With more than one, times to heal are not
    /// comparable.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Folder for `summary.json` and the logs. Its old content is deleted.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

/// Runs the faults, prints the report, and writes `summary.json`.
pub async fn chaos(cli: Chaos) -> Result<ExitCode> {
    let program = program()?;
    make_empty(&cli.out)?;
    let out = cli.out.canonicalize()?;
    let (config, missing) = EnvConfig::detect(program, out.clone()).await;
    for fault in missing {
        print(&format!("left out: {fault}"));
    }
    for broker in BrokerKind::ALL {
        if !config.brokers.contains(&broker) {
            print(&format!(
                "left out: the sink {broker}, which this build of stockade does not have"
            ));
        }
    }
    let plan = plan(&cli, &config)?;
    print(&format!(
        "seed {}, {} faults, {}",
        plan.seed,
        plan.faults(),
        config.program.display()
    ));
    let report = crate::run(&plan, &config, cli.at_once, &print).await;
    report.write(&out)?;
    print(&format!("{report}\n{}", out.join("summary.json").display()));
    Ok(ExitCode::from(u8::from(report.violations() > 0)))
}

fn plan(cli: &Chaos, config: &EnvConfig) -> Result<Plan> {
    let is_chosen = |fault: &Fault| cli.only.is_empty() || cli.only.contains(fault);
    let kinds: Vec<_> = config.faults().into_iter().filter(is_chosen).collect();
    let topologies = if cli.stages.is_empty() {
        Topology::value_variants()
    } else {
        &cli.stages
    };
    let plan = Plan::new(cli.seed, cli.faults, &kinds, topologies);
    ensure!(
        plan.faults() > 0,
        "none of these faults can be injected in these topologies (--only, --stages)"
    );
    Ok(plan)
}

/// The program that STOCKADE_BIN names, or the one in the folder of this program.
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

#[expect(clippy::print_stdout, reason = "the report goes to standard output")]
fn print(line: &str) {
    println!("{line}");
}
