//! The command line.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::rush;

/// Crowds of buyers against a running service.
#[derive(Parser)]
#[command(name = "load-tests", version)]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Many buyers, one item: most order one unit, some repeat their request, some want two, some exceed the limit.
    Rush(Options),
}

/// What a scenario can be told.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Where the service is. Default: what `stockade up` left in the folder, else http://127.0.0.1:8080.
    #[arg(long, env = "HOST", value_name = "URL")]
    pub host: Option<String>,
    /// The folder of `stockade up`, for its address and secrets (else STOCKADE_JWT_SECRET, STOCKADE_ADMIN_TOKEN).
    #[arg(long, value_name = "D", default_value = ".stockade")]
    pub dir: PathBuf,
    /// Order requests in all, repeats included.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,
    /// Units of the item.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub stock: u64,
    /// Different buyers; if there are too few for the requests, they come again. Default: so many that nobody does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub buyers: Option<u64>,
    /// Units that one buyer may hold.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Stock counters of the item.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// Buyers at once, each with a connection.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub users: u32,
    /// Where to write the HTML report.
    #[arg(long, value_name = "FILE", default_value = "target/rush/report.html")]
    pub report: PathBuf,
    /// When the service acknowledges an order.
    #[arg(long, value_enum, default_value_t = Durability::Recorded)]
    pub durability: Durability,
    /// The item, which must be new. Default: rush- and the time.
    #[arg(long, value_name = "ID")]
    pub item: Option<String>,
    /// What decides which buyer is of which kind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where to write the verdict as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// When the service acknowledges an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The ledger has it: 201.
    Recorded,
    /// Redis has it: 202.
    Accepted,
}

impl Durability {
    /// The status of an acknowledged order.
    pub fn status(self) -> u16 {
        match self {
            Self::Recorded => 201,
            Self::Accepted => 202,
        }
    }
}

/// Does what the command line says.
pub async fn run() -> Result<ExitCode> {
    let Scenario::Rush(options) = Cli::parse().scenario;
    let good = rush::run(&options).await?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
