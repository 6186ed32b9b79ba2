//! The command line.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    capacity::{self, CapacityOptions},
    mix::Mix,
    run, scenarios,
};

/// Crowds of buyers against a running service.
#[derive(Parser)]
#[command(name = "load-tests", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Many buyers: most order one unit, some repeat their request, some want two, some exceed the limit.
    Rush(Options),
    /// Clients that do not wait for the answer, and make the same request again, on several connections at once.
    RetryStorm(Options),
    /// Buyers who try to get more than the limit: one order after another, all at once, too much in one.
    LimitAbusers(Options),
    /// People who look at the item and poll their orders.
    WindowShoppers(Options),
    /// Orders that are paid, cancelled, left until their hold is over, and paid too late.
    WholeLife(Options),
    /// Sold out, and then units are given back and bought by others.
    Returns(Options),
    /// Several of these at once.
    Run {
        /// The scenarios and how many of their buyers come: rush=60,retry-storm=20,returns=20.
        #[arg(long, value_name = "NAME=WEIGHT,...")]
        mix: Mix,
        #[command(flatten)]
        options: Options,
    },
    /// The highest rate of orders at which the service answers in time: an open loop, step by step.
    Capacity(CapacityOptions),
}

impl Command {
    async fn run(self) -> Result<bool> {
        let (mix, options) = match self {
            Self::Rush(options) => (Mix::of(&scenarios::RUSH), options),
            Self::RetryStorm(options) => (Mix::of(&scenarios::RETRY_STORM), options),
            Self::LimitAbusers(options) => (Mix::of(&scenarios::LIMIT_ABUSERS), options),
            Self::WindowShoppers(options) => (Mix::of(&scenarios::WINDOW_SHOPPERS), options),
            Self::WholeLife(options) => (Mix::of(&scenarios::WHOLE_LIFE), options),
            Self::Returns(options) => (Mix::of(&scenarios::RETURNS), options),
            Self::Run { mix, options } => (mix, options),
            Self::Capacity(options) => return capacity::run(&options).await,
        };
        run::run(&mix, &options).await
    }
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
    /// Requests in all, repeats included. Default: 100000.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Seconds after which no more requests are made, instead of a number of requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Units of each item.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub stock: u64,
    /// Items; in a mix, of each shelf.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub items: u32,
    /// How much more popular some items are than others: the exponent of Zipf's law, from 0 (none) to 5.
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub item_skew: f64,
    /// Different buyers; if there are too few for the requests, they come again. Default: so many that nobody does, or 100000 with --seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub buyers: Option<u64>,
    /// How much more often some buyers come than others: the exponent of Zipf's law, from 0 (each in turn) to 5.
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub skew: f64,
    /// Units that one buyer may hold.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Stock counters of each item.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// Buyers at once, each with a connection.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub users: u32,
    /// Seconds for which an order of `whole-life` holds its units.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    hold_seconds: u64,
    /// Where to write the HTML report. Default: target/SCENARIO/report.html.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// When the service acknowledges an order.
    #[arg(long, value_enum, default_value_t = Durability::Recorded)]
    pub durability: Durability,
    /// The item, which must be new; of several, what their names begin with. Default: the scenario and the time.
    #[arg(long, value_name = "ID")]
    item: Option<String>,
    /// What decides which buyer is of which kind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where to write the verdict as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Options {
    const REQUESTS: u64 = 100_000;
    const BUYERS_OF_A_DURATION: u64 = 100_000;

    /// Requests in all.
    pub fn requests(&self) -> u64 {
        if self.seconds.is_some() {
            u64::MAX
        } else {
            self.requests.unwrap_or(Self::REQUESTS)
        }
    }

    /// The number of requests that must have been made in the end, if it is given.
    pub fn requests_due(&self) -> Option<u64> {
        self.seconds.is_none().then(|| self.requests())
    }

    /// No more visits than that. One makes a request at least, unless it comes when all have been made, which may be everybody's last.
    pub fn visits(&self) -> u64 {
        self.requests().saturating_add(u64::from(self.users))
    }

    /// Different buyers.
    pub fn buyers(&self) -> u64 {
        let everybody = if self.seconds.is_some() {
            Self::BUYERS_OF_A_DURATION
        } else {
            self.visits()
        };
        self.buyers.unwrap_or(everybody)
    }

    /// How long an order of `whole-life` holds its units.
    pub fn hold(&self) -> Duration {
        Duration::from_secs(self.hold_seconds)
    }

    /// Where the report of this scenario goes.
    pub fn report(&self, scenario: &str) -> PathBuf {
        self.report
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("target/{scenario}/report.html")))
    }

    /// What the items of this scenario are called.
    pub fn name(&self, scenario: &str) -> String {
        self.item.clone().unwrap_or_else(|| new_name(scenario))
    }

    /// So many orders for so many units, and nothing else.
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
            seed: 1,
            json: None,
        }
    }

    /// The defaults, and these arguments.
    #[cfg(test)]
    pub fn for_tests(arguments: &[&str]) -> Self {
        let line = ["load-tests", "rush"].iter().chain(arguments);
        match Cli::try_parse_from(line).map(|cli| cli.command).unwrap() {
            Command::Rush(options) => options,
            _ => unreachable!("the line says rush"),
        }
    }
}

/// A name that no item has yet.
pub fn new_name(scenario: &str) -> String {
    format!(
        "{scenario}-{}",
        Timestamp::now().strftime("%Y%m%d-%H%M%S-%3f")
    )
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
    let good = Cli::parse().command.run().await?;
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Cli, Options};

    #[test]
    fn every_scenario_is_a_subcommand_of_its_own() {
        for scenario in crate::scenario::ALL {
            assert!(
                Cli::try_parse_from(["load-tests", scenario.name]).is_ok(),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn a_wrong_option_is_named_with_what_was_expected() {
        let mix = ["load-tests", "run", "--mix", "hush=3"];
        for (arguments, expected) in [
            (&["--requests", "0"][..], ["--requests", "0 is not in 1.."]),
            (
                &["--requests", "5", "--seconds", "5"],
                ["--requests", "--seconds"],
            ),
            (&["--items", "5000"], ["--items", "1..=1000"]),
            (&["--hold-seconds", "1"], ["--hold-seconds", "2..=3600"]),
            (&["--durability", "maybe"], ["--durability", "recorded"]),
        ] {
            let line = ["load-tests", "whole-life"].iter().chain(arguments);
            let error = Cli::try_parse_from(line).err().unwrap().to_string();
            assert!(
                expected.iter().all(|part| error.contains(part)),
                "{arguments:?}: {error}"
            );
        }
        for (option, value, expected) in [
            ("--bound-ms", "0", "1..=10000"),
            ("--first-rate", "fast", "invalid digit"),
            ("--durability", "x", "accepted"),
        ] {
            let error = Cli::try_parse_from(["load-tests", "capacity", option, value])
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.contains(option) && error.contains(expected),
                "{error}"
            );
        }
        let error = Cli::try_parse_from(mix).err().unwrap().to_string();
        assert!(
            error.contains("--mix") && error.contains("retry-storm"),
            "{error}"
        );
    }

    #[test]
    fn a_duration_has_no_number_of_requests() {
        let options = Options::for_tests(&["--seconds", "5"]);
        assert_eq!((options.requests_due(), options.buyers()), (None, 100_000));
        let options = Options::for_tests(&["--requests", "50", "--users", "4"]);
        assert_eq!((options.requests_due(), options.buyers()), (Some(50), 54));
    }
}
