//! The options of a run, which every goal receives. `cli` adds the parsing of goal names.

use std::{fmt, path::PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

/// What is measured, how often and for how long.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Measure only these goals, such as P1,P7.
    #[arg(long, value_delimiter = ',', value_name = "GOALS")]
    pub only: Vec<String>,
    /// How often each figure and its baseline are measured, alternating. The table shows medians.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = repeats)]
    pub repeats: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Concurrent HTTP connections, one order in flight on each.
    ///
    /// A recorded order waits for two disks. Keeping the processors busy therefore takes more
    /// connections than a bare handler needs; the ceiling is measured with the same number.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Folder for `results.json`.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    pub out: PathBuf,
    /// Sizes of P12.
    #[command(flatten)]
    pub growth: GrowthOptions,
}

/// How far P12 lets items and orders grow, and how it measures them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of P12")]
pub struct GrowthOptions {
    /// Most items, once open and once closed and settled. The steps are 0, a twentieth, a quarter
    /// and all of them; 0 leaves items out.
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub items: u64,
    /// Most orders of the hot item. The steps are 0, a hundredth, a tenth and all of them; 0 leaves
    /// orders out.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=50_000_000))]
    pub orders: u64,
    /// Most holds that expire together. The steps are a hundredth, a tenth and all of them, and then
    /// a tenth in carts; 0 leaves expiry out.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=50_000_000))]
    pub holds: u64,
    /// Items that get a wave at one moment; 0 leaves waves out.
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub waves: u64,
    /// Series of items and orders that are measured, comma-separated. Holds and waves have none.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = SeriesKind::value_variants().to_vec(), value_name = "SERIES")]
    pub series: Vec<SeriesKind>,
    /// Orders per second of the open loop.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rate: u64,
    /// Seconds for which the idle processor time is counted.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle_seconds: u64,
    /// Seconds between a start and that: the service looks at every open item once after its start, and
    /// after a minute at whether its audit stands.
    #[arg(long, default_value_t = 75, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub settle_seconds: u64,
    /// Ledgers, measured one after the other, comma-separated.
    #[arg(long = "ledger", value_enum, value_delimiter = ',', default_values_t = [LedgerKind::Postgres], value_name = "LEDGERS")]
    pub ledgers: Vec<LedgerKind>,
}

/// What grows in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
    /// Items on sale, each with a paid order.
    OpenItems,
    /// The same, closed: nothing of them is left to do.
    ClosedItems,
    /// Paid orders of the hot item.
    Orders,
    /// Such orders, with all items beside them, of which one half is open and the other closed.
    OrdersAndItems,
}

impl fmt::Display for SeriesKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenItems => "open items",
            Self::ClosedItems => "closed items",
            Self::Orders => "orders of the hot item",
            Self::OrdersAndItems => "orders of the hot item, with all items",
        })
    }
}

impl GrowthOptions {
    /// Most of what grows. 0: there is no such series.
    pub fn size(&self, series: SeriesKind) -> u64 {
        match series {
            _ if !self.series.contains(&series) => 0,
            SeriesKind::OpenItems | SeriesKind::ClosedItems => self.items,
            SeriesKind::OrdersAndItems if self.items == 0 => 0,
            SeriesKind::Orders | SeriesKind::OrdersAndItems => self.orders,
        }
    }
}

/// The database of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerKind {
    /// A server of its own.
    Postgres,
    /// A file, and part of the service's process.
    Sqlite,
}

impl fmt::Display for LedgerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
        })
    }
}

impl Options {
    /// Whether the run measures the goal of this name. Without `--only` it measures all of them.
    pub fn includes(&self, goal: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == goal)
    }
}

fn repeats(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|repeats| (1..=100).contains(repeats))
        .ok_or_else(|| "expected a number from 1 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::{GrowthOptions, SeriesKind};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        growth: GrowthOptions,
    }

    /// The size of each series.
    fn sizes(arguments: &str) -> Vec<u64> {
        let words = ["bench"].into_iter().chain(arguments.split_whitespace());
        let Cli { growth } = Cli::parse_from(words);
        let all = SeriesKind::value_variants().iter();
        all.map(|series| growth.size(*series)).collect()
    }

    #[test]
    fn a_series_is_measured_if_it_is_named_and_has_a_size() {
        for (arguments, expected) in [
            ("--items 5 --orders 9", [5, 5, 9, 9]),
            ("--items 0 --orders 9", [0, 0, 9, 0]),
            (
                "--items 5 --orders 9 --series closed-items,orders-and-items",
                [0, 5, 0, 9],
            ),
        ] {
            assert_eq!(sizes(arguments), expected, "{arguments}");
        }
    }
}
