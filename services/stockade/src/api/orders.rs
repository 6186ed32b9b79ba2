//! `stockade orders`.

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};
use client::{OrderState, Request};
use serde_json::Value;
use uuid::Uuid;

use super::{
    service::{Pages, Service},
    table::text,
};
use crate::output::write_out;

const COLUMNS: [&str; 8] = [
    "id",
    "buyer",
    "state",
    "quantity",
    "amount",
    "currency",
    "created_at",
    "expires_at",
];

#[derive(Subcommand)]
pub enum OrdersCommand {
    /// Lists the recorded orders of an item.
    List {
        /// Id of the item.
        item: String,
        /// Only orders in this state: held, confirmed, cancelled, expired, refund_due, refunded,
        /// rejected.
        #[arg(long, value_parser = state)]
        state: Option<OrderState>,
    },
    /// Writes the recorded orders of an item, a line each, for a spreadsheet or another program.
    Export {
        /// Id of the item.
        item: String,
        /// Only orders in this state.
        #[arg(long, value_parser = state)]
        state: Option<OrderState>,
        /// CSV with a header, or a JSON object a line.
        #[arg(long, value_enum, default_value_t = Format::Csv)]
        format: Format,
    },
    /// Shows an order.
    Show {
        /// Id of the order.
        order: Uuid,
    },
    /// Cancels a held order. Its units can be bought again.
    Cancel {
        /// Id of the order.
        order: Uuid,
    },
    /// Has the hold of an order last longer.
    Extend {
        /// Id of the order.
        order: Uuid,
        /// Length of the whole hold in seconds, counted from the creation of the order.
        seconds: u32,
    },
    /// Records that the money of an order was returned. Units that it has can be bought again.
    Refund {
        /// Id of the order.
        order: Uuid,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    Csv,
    Jsonl,
}

fn state(text: &str) -> Result<OrderState> {
    let word = Value::String(text.into());
    serde_json::from_value(word)
        .context("expected held, confirmed, cancelled, expired, refund_due, refunded or rejected")
}

impl OrdersCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        match self {
            Self::List { item, state } => {
                let request = |page: &_| Request::list_item_orders(token, &item, state, page);
                service.list(&COLUMNS, request).await
            }
            Self::Export {
                item,
                state,
                format,
            } => {
                let pages =
                    service.pages(|page| Request::list_item_orders(token, &item, state, page));
                export(pages, format).await
            }
            Self::Show { order } => service.show(&Request::order(token, order)).await,
            Self::Cancel { order } => service.show(&Request::cancel(token, order)).await,
            Self::Extend { order, seconds } => {
                let request = Request::extend_hold(token, order, &seconds.into());
                service.show(&request).await
            }
            Self::Refund { order } => service.show(&Request::refund(token, order)).await,
        }
    }
}

/// The columns of an export, which programs read: they are added to, and never renamed.
const EXPORTED: [&str; 10] = [
    "id",
    "item",
    "buyer",
    "state",
    "quantity",
    "amount",
    "currency",
    "created_at",
    "expires_at",
    "version",
];

/// Writes page by page, so that a sale of millions needs no memory.
async fn export<R: Fn(&client::PageRequest) -> Request>(
    mut pages: Pages<'_, R>,
    format: Format,
) -> Result<()> {
    if matches!(format, Format::Csv) {
        write_out(&csv_line(EXPORTED)?)?;
    }
    while let Some(rows) = pages.next().await? {
        let lines = rows.iter().map(|row| match format {
            Format::Csv => csv_line(EXPORTED.map(|column| text(&row[column]))),
            Format::Jsonl => Ok(format!("{row}\n")),
        });
        write_out(&lines.collect::<Result<String>>()?)?;
    }
    Ok(())
}

fn csv_line<T: AsRef<[u8]>>(fields: [T; EXPORTED.len()]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields)?;
    Ok(String::from_utf8(writer.into_inner()?)?)
}
