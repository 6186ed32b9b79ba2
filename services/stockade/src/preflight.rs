//! `stockade preflight`: everything that should be true before a sale, as a table with the remedy
//! of what is not. It changes nothing: its dry order is on an item of its own, which it removes.

mod check;
mod ledger;
mod locks;
mod process;
mod redis;
mod rehearsal;
mod sale;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Args, builder::RangedU64ValueParser};
use domain::{Durability, Item, ItemId};

use crate::{output::write_out, settings::Settings};
use check::Checks;

/// Checks everything that should be true before a sale: stores, locks, clocks, limits and keys, and
/// with ITEM the item.
///
/// Exit status 0: no failure, perhaps warnings; 1: a failure; 2: an error.
#[derive(Args)]
pub struct PreflightArguments {
    /// Id of the item that will be sold.
    item: Option<String>,
    /// Buyers that are expected: checks the item's plan, as `stockade plan` computes it.
    #[arg(long, value_name = "N", requires_all = ["item", "seconds"], value_parser = RangedU64ValueParser::<u64>::new().range(1..=Item::MAX_STOCK))]
    buyers: Option<u64>,
    /// Seconds within which they arrive.
    #[arg(long, value_name = "S", requires = "buyers", value_parser = RangedU64ValueParser::<u64>::new().range(1..=31_536_000))]
    seconds: Option<u64>,
    /// The results.json of `make bench` on your machine. Default: built-in costs of another
    /// machine.
    #[arg(long, value_name = "FILE", requires = "buyers")]
    costs: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Prints the checks. Exit status 1 if one failed.
pub async fn preflight(settings: &Settings, arguments: &PreflightArguments) -> Result<ExitCode> {
    let item = arguments.item.as_deref().map(ItemId::new).transpose()?;
    let mut checks = Checks::default();
    let masters = redis::check(settings, &mut checks).await;
    let ledger = ledger::check(settings, &mut checks).await;
    locks::check(settings, &mut checks).await;
    process::check(settings, &mut checks).await;
    if let Some(ledger) = &ledger {
        sale::check_backlog(settings, ledger, &mut checks).await;
    }
    let mut durability = Durability::Recorded;
    if let (Some(item), Some(ledger)) = (&item, &ledger) {
        let known = sale::check_item(settings, ledger, item, &masters, &mut checks).await;
        durability = known.as_ref().map_or(durability, |item| item.durability);
        if let (Some(known), Some(buyers), Some(seconds)) =
            (known, arguments.buyers, arguments.seconds)
        {
            let crowd = sale::Demand { buyers, seconds };
            let is_file = settings
                .database
                .database_url
                .as_deref()
                .is_some_and(|url| url.starts_with("sqlite:"));
            let costs = (arguments.costs.as_deref(), is_file);
            sale::check_plan(&known, crowd, costs, &masters, &mut checks)?;
        }
    }
    if let Some(ledger) = &ledger {
        rehearsal::check(settings, ledger, durability, &mut checks).await;
    }
    if checks.is_empty() {
        bail!("nothing was checked");
    }
    let text = if arguments.json {
        checks.as_json()?
    } else {
        checks.as_table()
    };
    write_out(&format!("{text}\n"))?;
    Ok(ExitCode::from(u8::from(checks.has_failed())))
}
