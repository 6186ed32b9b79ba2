//! `stockade items`: operations on items, directly on the stores.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use domain::ItemId;
use reconciler::Archived;

use crate::{item_lock, output::write_out, roles, settings::Settings};

/// The journal's name for who runs the command.
const ACTOR: &str = "cli";

/// Ends the sale of an item for good.
#[derive(Subcommand)]
pub enum ItemsCommand {
    /// Archives a closed item for good: writes its final audit down and removes its keys from Redis.
    ///
    /// Orders of the item are answered from the ledger from then on.
    ///
    /// Exit status 0: the item is archived; 1: it cannot be archived yet, and the output says what
    /// is open; 2: an error.
    Archive {
        /// Id of the item.
        item: String,
    },
}

/// Runs the command.
pub async fn run(settings: &Settings, command: ItemsCommand) -> Result<ExitCode> {
    let ItemsCommand::Archive { item } = command;
    archive(settings, &ItemId::new(item)?).await
}

async fn archive(settings: &Settings, item: &ItemId) -> Result<ExitCode> {
    let ledger = roles::connect_ledger(settings).await?;
    let stock = roles::open_stock(settings).await?;
    let lock = item_lock::open(settings).await?;
    let archived = reconciler::archive_once(stock, ledger, lock, item, ACTOR)
        .await?
        .with_context(|| format!("there is no item {item}"))?;
    match archived {
        Archived::Done => {
            write_out(&format!("{item}: archived\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Archived::Refused(reasons) => {
            let reasons = reasons.join("; ");
            write_out(&format!("{item}: NOT archived: {reasons}\n"))?;
            Ok(ExitCode::from(1))
        }
        Archived::Locked => bail!("another process holds the lock of {item}, try again"),
    }
}
