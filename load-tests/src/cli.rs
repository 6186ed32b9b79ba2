//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    capacity::{self, CapacityOptions},
    hostile::{self, ComparisonOptions},
    mix::Mix,
    options::Options,
    run, scenarios,
    storm::{self, StormOptions},
};

/// Virtual users against a running service, and a verdict about its promises.
#[derive(Parser)]
#[command(name = "load-tests", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A flash sale: most buyers order one unit; some repeat their request, order two, or exceed
    /// the limit.
    Rush(Options),
    /// Clients that do not wait for responses, and retry on several connections concurrently.
    RetryStorm(Options),
    /// Buyers who try to exceed the limit: one order after another, concurrently, and with one
    /// order.
    LimitAbusers(Options),
    /// Visitors who show the item and poll their orders.
    WindowShoppers(Options),
    /// Orders that are paid, cancelled, left until their hold expires, or paid too late.
    WholeLife(Options),
    /// Units that return after the item has sold out, and are bought by others.
    Returns(Options),
    /// Carts of several items, some of them scarce: all lines or none.
    Carts(Options),
    /// Several scenarios concurrently.
    Run {
        /// The scenarios with their weights: rush=60,retry-storm=20,returns=20.
        #[arg(long, value_name = "NAME=WEIGHT,...")]
        mix: Mix,
        #[command(flatten)]
        options: Options,
    },
    /// The highest rate of orders at which the service responds in time, measured with an open
    /// loop.
    Capacity(CapacityOptions),
    /// The same rush without and with hostile clients, and with ones that attack a decoy,
    /// alternately: what they cost the buyers, and how much of that is the service's.
    Hostile(ComparisonOptions),
    /// The same rush without and with a storm of returns to an item that sold out to a crowd of a
    /// million buyers, alternately.
    Storm(StormOptions),
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
            Self::Carts(options) => (Mix::of(&scenarios::CARTS), options),
            Self::Run { mix, options } => (mix, options),
            Self::Capacity(options) => return capacity::run(&options).await,
            Self::Hostile(options) => return hostile::compare(&options).await,
            Self::Storm(options) => return storm::compare(&options).await,
        };
        run::run(&mix, &options).await
    }
}

/// Runs the command line.
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
    fn every_scenario_is_a_subcommand() {
        for scenario in crate::scenarios::ALL {
            assert!(
                Cli::try_parse_from(["load-tests", scenario.name]).is_ok(),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn an_invalid_option_is_named_with_what_was_expected() {
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
            (&["--decoy", "900"], ["--attack", "NAME"]),
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
        let error = Cli::try_parse_from(["load-tests", "storm", "--crowd", "99"]);
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("--crowd") && error.contains("100..=5000000"),
            "{error}"
        );
        let error = Cli::try_parse_from(mix).err().unwrap().to_string();
        assert!(
            error.contains("--mix") && error.contains("retry-storm"),
            "{error}"
        );
    }

    #[test]
    fn a_run_with_a_duration_has_no_number_of_requests() {
        let options = Options::for_tests(&["--seconds", "5"]);
        assert_eq!((options.requests_due(), options.buyers()), (None, 100_000));
        let options = Options::for_tests(&["--requests", "50", "--users", "4"]);
        assert_eq!((options.requests_due(), options.buyers()), (Some(50), 54));
    }
}
