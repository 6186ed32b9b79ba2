//! Commands for a running service: they call its API, as a shop's back office would.
//!
//! | file | content |
//! |---|---|
//! | `service` | which service, the admin's token, and how answers are printed |
//! | `items` | lists, shows, creates and changes items |
//! | `waves` | shows and changes units that are added later |
//! | `apply` | makes items as a file describes them |
//! | `orders` | lists, exports, shows, cancels and refunds orders |
//! | `carts` | places, lists, shows and ends carts |
//! | `refunds` | lists the money to return, and notes that it was returned |
//! | `journal` | prints who has done what |
//! | `events` | prints events as they happen |
//! | `webhooks` | lists, adds, tests and removes webhooks |
//! | `table` | prints answers as tables |

mod apply;
mod carts;
mod events;
mod items;
mod journal;
mod orders;
mod refunds;
mod service;
mod table;
mod waves;
mod webhooks;

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::settings::Layers;
use carts::CartsCommand;
use events::EventsCommand;
use items::ItemsCommand;
use journal::JournalArguments;
use orders::OrdersCommand;
use refunds::RefundsCommand;
use service::{Service, ServiceArguments};
use webhooks::WebhooksCommand;

/// Commands for a running service.
#[derive(Subcommand)]
pub enum ApiCommand {
    /// Lists, shows, creates and changes items of a running service.
    Items(Arguments<ItemsCommand>),
    /// Lists, exports, shows, cancels and refunds orders of a running service.
    Orders(Arguments<OrdersCommand>),
    /// Places, lists, shows, extends, cancels and refunds carts of a running service.
    Carts(Arguments<CartsCommand>),
    /// Lists the money that must be returned, and records that it was.
    Refunds(Arguments<RefundsCommand>),
    /// Prints who has done what to an item, or to what belongs to no item, newest first.
    Journal(JournalArguments),
    /// Prints the events of a running service.
    Events(Arguments<EventsCommand>),
    /// Lists, adds, tests and removes webhooks of a running service.
    Webhooks(Arguments<WebhooksCommand>),
}

// Its documentation would stand in the help, in place of that of the command.
#[derive(Args)]
pub struct Arguments<C: Subcommand> {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: C,
}

/// Commands for items that need the stores instead of a service, with the item.
pub enum OnTheStores {
    Archive(String),
    Drop {
        item: String,
        after_days: Option<u32>,
    },
}

impl ApiCommand {
    /// The command, if it needs the stores instead of a service.
    pub fn on_the_stores(&self) -> Option<OnTheStores> {
        let Self::Items(Arguments { command, .. }) = self else {
            return None;
        };
        match command {
            ItemsCommand::Archive { item } => Some(OnTheStores::Archive(item.clone())),
            ItemsCommand::Drop { item, after } => Some(OnTheStores::Drop {
                item: item.clone(),
                after_days: *after,
            }),
            _ => None,
        }
    }
}

/// Runs the command.
pub async fn run(command: ApiCommand, dir: &Path, layers: &Layers) -> Result<ExitCode> {
    let find = |service: &ServiceArguments| Service::find(service, dir, layers);
    match command {
        ApiCommand::Items(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
        ApiCommand::Orders(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
        ApiCommand::Carts(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
        ApiCommand::Refunds(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
        ApiCommand::Journal(arguments) => {
            let service = find(&arguments.service)?;
            arguments.run(&service).await?;
        }
        ApiCommand::Events(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
        ApiCommand::Webhooks(Arguments { service, command }) => {
            command.run(&find(&service)?).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
