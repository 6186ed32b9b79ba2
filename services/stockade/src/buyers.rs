//! `stockade buyers`: what the ledger knows about buyers.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use domain::BuyerId;
use ledger::Erased;

use crate::{account, output::write_out, roles, settings::Settings};

/// Erases the names of buyers.
#[derive(Subcommand)]
pub enum BuyersCommand {
    /// Replaces a buyer's name in the orders at archived items by a random one, for good.
    ///
    /// The ids of the orders still follow from the name until a drop deletes them.
    ///
    /// Exit status 0: done; 1: the buyer has held orders, and nothing was changed; 2: an error.
    Erase {
        /// Id of the buyer.
        name: String,
    },
}

/// Runs the command.
pub async fn run(settings: &Settings, command: BuyersCommand) -> Result<ExitCode> {
    let BuyersCommand::Erase { name } = command;
    let buyer = BuyerId::new(name).map_err(|error| anyhow!("NAME: expected {}", error.expected))?;
    let ledger = roles::connect_ledger(settings).await?;
    match ledger.erase_buyer(&buyer, &account::actor()).await? {
        Erased::Done { orders, kept } => {
            write_out(&format!(
                "erased the name from {orders} orders; {kept} orders keep it until their items are archived\n"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Erased::Held { orders } => {
            write_out(&format!("NOT erased: the buyer has {orders} held orders\n"))?;
            Ok(ExitCode::from(1))
        }
    }
}
