//! The options of a run, which every goal receives. `cli` adds the parsing of goal names.

use std::path::PathBuf;

use clap::Args;

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
