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
    Items(ItemsArguments),
    /// Lists, exports, shows, cancels and refunds orders of a running service.
    Orders(OrdersArguments),
    /// Places, lists, shows, extends, cancels and refunds carts of a running service.
    Carts(CartsArguments),
    /// Lists the money that must be returned, and records that it was.
    Refunds(RefundsArguments),
    /// Prints who has done what to an item, or to what belongs to no item, newest first.
    Journal(JournalArguments),
    /// Prints the events of a running service.
    Events(EventsArguments),
    /// Lists, adds, tests and removes webhooks of a running service.
    Webhooks(WebhooksArguments),
}

#[derive(Args)]
pub struct ItemsArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: ItemsCommand,
}

#[derive(Args)]
pub struct OrdersArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: OrdersCommand,
}

#[derive(Args)]
pub struct CartsArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: CartsCommand,
}

#[derive(Args)]
pub struct RefundsArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: RefundsCommand,
}

#[derive(Args)]
pub struct EventsArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Args)]
pub struct WebhooksArguments {
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    command: WebhooksCommand,
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
        let Self::Items(ItemsArguments { command, .. }) = self else {
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
    match command {
        ApiCommand::Items(ItemsArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Orders(OrdersArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Carts(CartsArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Refunds(RefundsArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Journal(arguments) => {
            let service = Service::find(&arguments.service, dir, layers)?;
            arguments.run(&service).await?;
        }
        ApiCommand::Events(EventsArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Webhooks(WebhooksArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
