//! The options of a scenario.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

/// The options of a scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Address of the service. Default: the one that `stockade up` wrote to the folder, or
    /// http://127.0.0.1:8080.
    #[arg(long, env = "HOST", value_name = "URL")]
    pub host: Option<String>,
    /// Folder of `stockade up`, with its address and secrets. STOCKADE_JWT_SECRET and
    /// STOCKADE_ADMIN_TOKEN have precedence.
    #[arg(long, value_name = "D", default_value = ".stockade")]
    pub dir: PathBuf,
    /// Total number of requests, repeats included. Default: 100000.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Duration of the run in seconds, instead of a number of requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Units of each item; of scarce ones of `carts`, a twentieth.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub stock: u64,
    /// Number of items; in a mix, for each return policy. `carts` has eight at least.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub items: u32,
    /// How much more popular some items are than others: the exponent of Zipf's law, from 0 (none)
    /// to 5.
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub item_skew: f64,
    /// Number of buyers. If there are fewer than sessions, buyers return. Default: as many as
    /// sessions, or 100000 with --seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub buyers: Option<u64>,
    /// How much more often some buyers order than others: the exponent of Zipf's law, from 0 (each
    /// in turn) to 5.
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub skew: f64,
    /// Units that one buyer may hold.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Number of stock counters of each item.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// Number of concurrent virtual users, each with a connection.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub users: u32,
    /// Seconds for which an order of `whole-life` or `carts` holds its units.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    hold_seconds: u64,
    /// File for the HTML report. Default: target/SCENARIO/report.html.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// When the service acknowledges an order.
    #[arg(long, value_enum, default_value_t = Durability::Recorded)]
    pub durability: Durability,
    /// Name of the item, which must be new; with several items, the prefix of their names. Default:
    /// the scenario and the time.
    #[arg(long, value_name = "ID")]
    item: Option<String>,
    /// Number of hostile clients beside the virtual users: silent connections, half bodies, answers
    /// that are read in drips or not at all, huge signatures, quantities above the limit, storms of
    /// returns.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub hostile: u32,
    /// The one kind of attack, instead of all: `half bodies`, for example.
    #[arg(long, value_name = "NAME")]
    pub attack: Option<String>,
    /// Connections that the hostile clients keep open together: as many as the service admits.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub hostile_connections: u32,
    /// The hostile clients attack a decoy in this program instead of the service, with so many
    /// connections or requests a second: what they themselves cost the buyers.
    #[arg(long, value_name = "RATE", requires_all = ["attack", "hostile"], value_parser = above_zero)]
    pub decoy: Option<f64>,
    /// Servers fail during the run. Then an outcome that is unknown at first is no error if a
    /// repeat resolves it, a refusal is not final, and the audit may take longer to be at rest.
    #[arg(long)]
    pub outages: bool,
    /// Seed of all decisions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// File for the verdict as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A number above zero.
pub fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

impl Options {
    const REQUESTS: u64 = 100_000;
    const BUYERS_WITH_SECONDS: u64 = 100_000;

    /// Total number of requests.
    pub fn requests(&self) -> u64 {
        if self.seconds.is_some() {
            u64::MAX
        } else {
            self.requests.unwrap_or(Self::REQUESTS)
        }
    }

    /// The number of requests that the run must reach, if it is given.
    pub fn requests_due(&self) -> Option<u64> {
        self.seconds.is_none().then(|| self.requests())
    }

    /// An upper bound for the number of sessions. Each sends at least one request, except the last
    /// session of each virtual user, which may start when the budget is spent.
    pub fn sessions(&self) -> u64 {
        self.requests().saturating_add(u64::from(self.users))
    }

    /// Number of buyers.
    pub fn buyers(&self) -> u64 {
        let default = if self.seconds.is_some() {
            Self::BUYERS_WITH_SECONDS
        } else {
            self.sessions()
        };
        self.buyers.unwrap_or(default)
    }

    /// How long an order of `whole-life` or `carts` holds its units.
    pub fn hold(&self) -> Duration {
        Duration::from_secs(self.hold_seconds)
    }

    /// The file for the report of this scenario.
    pub fn report(&self, scenario: &str) -> PathBuf {
        self.report
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("target/{scenario}/report.html")))
    }

    /// The name, or prefix of names, of the items of this scenario.
    pub fn name(&self, scenario: &str) -> String {
        self.item.clone().unwrap_or_else(|| new_name(scenario))
    }

    /// Options for single orders, as the search for the capacity sends them.
    pub fn of_orders(
        requests: u64,
        stock: u64,
        limit: u32,
        segments: u16,
        durability: Durability,
    ) -> Self {
        Self {
            host: None,
            dir: PathBuf::new(),
            requests: Some(requests),
            seconds: None,
            stock,
            items: 1,
            item_skew: 0.0,
            buyers: None,
            skew: 0.0,
            limit,
            segments,
            users: 1,
            hold_seconds: 0,
            report: None,
            durability,
            item: None,
            hostile: 0,
            attack: None,
            hostile_connections: CONNECTIONS,
            decoy: None,
            outages: false,
            seed: 1,
            json: None,
        }
    }

    /// The defaults, with these arguments.
    #[cfg(test)]
    pub fn for_tests(arguments: &[&str]) -> Self {
        use clap::FromArgMatches;

        let command = Self::augment_args(clap::Command::new("rush").no_binary_name(true));
        Self::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
    }
}

/// A name that no item has yet, from the time.
pub fn new_name(scenario: &str) -> String {
    format!(
        "{scenario}-{}",
        Timestamp::now().strftime("%Y%m%d-%H%M%S-%3f")
    )
}

/// The bound of connections that `scripts/load.sh hostile` gives its service.
pub const CONNECTIONS: u32 = 2048;

/// When the service acknowledges an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the ledger has recorded it (201).
    Recorded,
    /// When Redis has it (202).
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

impl From<Durability> for client::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Recorded => Self::Recorded,
            Durability::Accepted => Self::Accepted,
        }
    }
}
