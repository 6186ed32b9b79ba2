//! `stockade plan`: computes the number of machines for a sale, and its bottleneck.
//!
//! It contacts no server and reads no setting. `arithmetic.rs` has the formulas; the costs come
//! from `costs.rs` or from a run of `make bench`.

mod arithmetic;
mod costs;
mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use domain::{Durability, Item};

use crate::output::write_out;
use arithmetic::{Crowd, Machines, Plan};
use costs::Costs;

/// One year. Sums stay far from the limits of their types.
const SECONDS_MAX: u64 = 31_536_000;

const EXAMPLES: &str = "\
Columns: `work` is the peak load of a part per second, `cost` the processor time of one order or refusal, `busy` their product in cores, `needed` the number \
of machines at the headroom. There are at most as many orders as units; later buyers are refused in process, without Redis or SQL. The figures hold for the \
machine on which the costs were measured: measure yours with `make bench`, and pass its results.json as --costs.

Exit status: 0 planned; 2 an argument is invalid.

Examples:
  stockade plan --buyers 1000000 --stock 10000 --seconds 60
  stockade plan --buyers 5000000 --stock 5000000 --seconds 10 --cores-per-service 8
  stockade plan --buyers 100000 --stock 1000 --seconds 10 --costs target/bench/results.json --json";

/// Computes how many order services, Redis masters, segments and recorders a sale needs, and its
/// bottleneck.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArguments {
    /// Number of buyers.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..=Item::MAX_STOCK))]
    buyers: u64,
    /// Units for sale, one per buyer.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..=Item::MAX_STOCK))]
    stock: u64,
    /// Seconds within which the buyers arrive and must be served.
    #[arg(long, value_name = "S", value_parser = RangedU64ValueParser::<u64>::new().range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Requests of a buyer who gets nothing, retries and reloads included.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1000))]
    tries_per_buyer: u64,
    /// When an order is acknowledged.
    #[arg(long, value_enum, default_value_t = Level::Recorded)]
    durability: Level,
    /// Cores of each order service.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1024))]
    cores_per_service: u64,
    /// Planned utilization of a core: 0.5 is half of the time.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    headroom: f64,
    /// Database of the ledger.
    #[arg(long, value_enum, default_value_t = LedgerKind::Postgres)]
    ledger: LedgerKind,
    /// The results.json of `make bench` on your machine. Default: built-in costs of another
    /// machine.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// When an order is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// The script has run.
    Accepted,
    /// The ledger has it.
    Recorded,
    /// The script has run and replicas have confirmed it.
    Replicated,
}

/// What the ledger is.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LedgerKind {
    /// A server.
    Postgres,
    /// A file.
    Sqlite,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a number above 0 and at most 1, such as 0.5".into()),
    }
}

/// Prints the plan.
pub fn plan(arguments: &PlanArguments) -> Result<ExitCode> {
    let costs = arguments
        .costs
        .as_deref()
        .map_or_else(|| Ok(Costs::built_in()), Costs::read)?;
    let plan = Plan::of(&arguments.crowd(), &arguments.machines(&costs));
    let text = if arguments.json {
        serde_json::to_string_pretty(&table::json(&plan, &costs))?
    } else {
        table::table(&plan, &costs)
    };
    write_out(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What a sale needs, for the checks before it.
pub struct Needs {
    pub services: u64,
    pub masters: u64,
    pub recorders: u64,
    pub segments: u64,
    /// Bytes of all orders in Redis.
    pub redis_bytes: f64,
    /// Whether the ledger is too slow.
    pub ledger_is_too_slow: bool,
}

/// The plan of an item's sale, with the defaults of `stockade plan`.
pub fn needs(
    item: &Item,
    (buyers, seconds): (u64, u64),
    (costs, ledger_is_a_file): (Option<&Path>, bool),
) -> Result<Needs> {
    let costs = costs.map_or_else(|| Ok(Costs::built_in()), Costs::read)?;
    let arguments = PlanArguments {
        buyers,
        stock: item.stock.max(1),
        seconds,
        tries_per_buyer: 3,
        durability: match item.durability {
            Durability::Accepted => Level::Accepted,
            Durability::Recorded => Level::Recorded,
            Durability::Replicated => Level::Replicated,
        },
        cores_per_service: 2,
        headroom: 0.5,
        ledger: if ledger_is_a_file {
            LedgerKind::Sqlite
        } else {
            LedgerKind::Postgres
        },
        costs: None,
        json: false,
    };
    let plan = Plan::of(&arguments.crowd(), &arguments.machines(&costs));
    Ok(Needs {
        services: plan.services(),
        masters: plan.redis.needed(),
        recorders: plan.recorder.needed(),
        segments: plan.segments,
        redis_bytes: plan.redis_bytes,
        ledger_is_too_slow: plan.ledger_is_too_slow(),
    })
}

impl PlanArguments {
    fn crowd(&self) -> Crowd {
        Crowd {
            buyers: self.buyers,
            stock: self.stock,
            seconds: self.seconds,
            tries: self.tries_per_buyer,
        }
    }

    fn machines(&self, costs: &Costs) -> Machines {
        let service_us = match self.durability {
            Level::Recorded => costs.service_us_per_recorded_order,
            Level::Accepted | Level::Replicated => costs.service_us_per_accepted_order,
        };
        let ledger = match self.ledger {
            LedgerKind::Postgres => (
                costs.postgres_us_per_order,
                costs.postgres_orders_per_second_max,
            ),
            LedgerKind::Sqlite => (
                costs.sqlite_us_per_order,
                costs.sqlite_orders_per_second_max,
            ),
        };
        Machines {
            service_us,
            refusal_us: costs.service_us_per_refusal,
            redis_us: costs.redis_us_per_order,
            recorder_us: costs.recorder_us_per_order,
            ledger_us: ledger.0,
            ledger_most: ledger.1,
            ledger_is_a_file: self.ledger == LedgerKind::Sqlite,
            redis_bytes: costs.redis_bytes_per_order,
            cores_per_service: self.cores_per_service,
            headroom: self.headroom,
        }
    }
}
