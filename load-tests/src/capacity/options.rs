//! The options of the search for the capacity.

use std::path::PathBuf;

use clap::Args;

use crate::options::Durability;

/// The options of the search for the capacity.
#[derive(Debug, Clone, Args)]
pub struct CapacityOptions {
    /// Address of the service. Default: the one that `stockade up` wrote to the folder, or
    /// http://127.0.0.1:8080.
    #[arg(long, env = "HOST", value_name = "URL")]
    pub host: Option<String>,
    /// Folder of `stockade up`, with its address and secrets. STOCKADE_JWT_SECRET and
    /// STOCKADE_ADMIN_TOKEN have precedence.
    #[arg(long, value_name = "D", default_value = ".stockade")]
    pub dir: PathBuf,
    /// Bound for the 99th percentile of the latency from the scheduled time, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub bound_ms: u64,
    /// Requests per second in the first step.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub first_rate: u64,
    /// Highest rate to try, in requests per second.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub most_rate: u64,
    /// The search ends when the lowest unsustained rate is at most this percentage above the
    /// highest sustained one.
    #[arg(long, value_name = "P", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub close_percent: u64,
    /// Number of failed tries after which a rate counts as unsustained.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub tries: u32,
    /// Measured seconds of each step.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub step_seconds: u64,
    /// Seconds at the same rate before the measurement, to open connections and fill caches.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub warm_seconds: u64,
    /// Units of the item of each step. Default: a tenth more than there are requests, so that no
    /// order is refused.
    #[arg(long, value_name = "N")]
    pub stock: Option<u64>,
    /// Number of stock counters of each item.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// When the service acknowledges an order.
    #[arg(long, value_enum, default_value_t = Durability::Recorded)]
    pub durability: Durability,
    /// Maximum number of connections. The time for which a request waits for one counts as latency.
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Folder for the chart and the JSON.
    #[arg(long, value_name = "D", default_value = "target/capacity")]
    pub out: PathBuf,
}

impl CapacityOptions {
    /// Short steps against this service, with these arguments.
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
