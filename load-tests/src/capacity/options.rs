//! What the search for the capacity can be told.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Durability;

/// What the search for the capacity can be told.
#[derive(Debug, Clone, Args)]
pub struct CapacityOptions {
    /// Where the service is. Default: what `stockade up` left in the folder, else http://127.0.0.1:8080.
    #[arg(long, env = "HOST", value_name = "URL")]
    pub host: Option<String>,
    /// The folder of `stockade up`, for its address and secrets (else STOCKADE_JWT_SECRET, STOCKADE_ADMIN_TOKEN).
    #[arg(long, value_name = "D", default_value = ".stockade")]
    pub dir: PathBuf,
    /// Milliseconds that 99 of 100 answers may take, from the moment at which the request was due.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub bound_ms: u64,
    /// Requests a second of the first step.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub first_rate: u64,
    /// Requests a second beyond which nothing is tried.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub most_rate: u64,
    /// The search ends when the lowest rate that is too much is no more than this above the highest that is not, in percent.
    #[arg(long, value_name = "P", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub close_percent: u64,
    /// How often a rate that does not hold is tried before it counts as too much.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub tries: u32,
    /// Seconds of each step that count.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub step_seconds: u64,
    /// Seconds before that at the same rate, which do not count: connections are made, and caches filled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub warm_seconds: u64,
    /// Units of the item of each step; beyond them orders are refused. Default: a tenth more than there are requests.
    #[arg(long, value_name = "N")]
    pub stock: Option<u64>,
    /// Stock counters of each item.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// When the service acknowledges an order.
    #[arg(long, value_enum, default_value_t = Durability::Recorded)]
    pub durability: Durability,
    /// Connections at most. A request that finds none free waits, and the wait counts.
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// The folder of the chart and the JSON.
    #[arg(long, value_name = "D", default_value = "target/capacity")]
    pub out: PathBuf,
}

impl CapacityOptions {
    /// Short steps against this service, and these arguments.
    #[cfg(test)]
    pub fn for_tests(host: &str, dir: &std::path::Path, arguments: &[&str]) -> Self {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: CapacityOptions,
        }
        let mut line = vec![
            "capacity",
            "--host",
            host,
            "--step-seconds",
            "1",
            "--warm-seconds",
            "0",
            "--dir",
        ];
        line.push(dir.to_str().unwrap());
        line.extend(arguments);
        <Line as clap::Parser>::try_parse_from(line)
            .map(|line| line.options)
            .unwrap()
    }
}
