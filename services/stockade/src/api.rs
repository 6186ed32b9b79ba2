//! Commands for a running service: they call its API, as a shop's back office would.
//!
//! | file | content |
//! |---|---|
//! | `service` | which service, the admin's token, and how answers are printed |
//! | `items` | lists, shows, creates and changes items |
//! | `apply` | makes items as a file describes them |
//! | `orders` | lists, exports, shows, cancels and refunds orders |
//! | `events` | prints events as they happen |
//! | `webhooks` | lists, adds, tests and removes webhooks |
//! | `table` | prints answers as tables |

mod apply;
mod events;
mod items;
mod orders;
mod service;
mod table;
mod webhooks;

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::settings::Layers;
use events::EventsCommand;
use items::ItemsCommand;
use orders::OrdersCommand;
use service::{Service, ServiceArguments};
use webhooks::WebhooksCommand;

/// Commands for a running service.
#[derive(Subcommand)]
pub enum ApiCommand {
    /// Lists, shows, creates and changes items of a running service.
    Items(ItemsArguments),
    /// Lists, exports, shows, cancels and refunds orders of a running service.
    Orders(OrdersArguments),
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

impl ApiCommand {
    /// The item of `items archive`, which needs the stores instead of a service.
    pub fn item_to_archive(&self) -> Option<String> {
        match self {
            Self::Items(ItemsArguments {
                command: ItemsCommand::Archive { item },
                ..
            }) => Some(item.clone()),
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
        ApiCommand::Events(EventsArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
        ApiCommand::Webhooks(WebhooksArguments { service, command }) => {
            command.run(&Service::find(&service, dir, layers)?).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
