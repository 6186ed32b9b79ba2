//! `stockade items`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::{
    Durability, IdempotencyKey, ItemPatch, ItemState, NewItem, Request, StockChange, Wave,
};
use domain::GivenTime;
use serde_json::Value;

use super::{
    apply,
    service::Service,
    waves::{WavesCommand, wave},
};

const COLUMNS: [&str; 7] = [
    "id",
    "title",
    "state",
    "stock",
    "held",
    "confirmed",
    "opens_at",
];

#[derive(Subcommand)]
pub enum ItemsCommand {
    /// Lists all items, with the units that the ledger has recorded.
    List,
    /// Shows an item and its segments.
    Show {
        /// Id of the item.
        item: String,
    },
    /// Creates an item, which sells from then on, or from --opens-at.
    Create(Box<NewItemArguments>),
    /// Has an item sell.
    Open {
        /// Id of the item.
        item: String,
    },
    /// Has an item sell no more for now.
    Pause {
        /// Id of the item.
        item: String,
    },
    /// Changes the price of an item, for orders to come. Orders that exist keep theirs.
    Price {
        /// Id of the item.
        item: String,
        /// Price of one unit in the currency's smallest unit.
        price: u64,
    },
    /// Ends the sale of an item.
    Close {
        /// Id of the item.
        item: String,
    },
    /// Archives a closed item for good: writes its final audit down and removes its keys from
    /// Redis.
    ///
    /// It works on the stores, as `audit` and `reconcile` do, and needs no running service. Orders
    /// of the item are answered from the ledger from then on.
    ///
    /// Exit status 0: the item is archived; 1: it cannot be archived yet, and the output says what
    /// is open; 2: an error.
    Archive {
        /// Id of the item.
        item: String,
    },
    /// Drops an archived item: deletes its orders, carts, transfers, journal and events for good.
    ///
    /// First it exports them, reads the export again and compares it with the ledger. The item and
    /// its final audit stay. It works on the ledger and needs no running service. A drop that was
    /// interrupted is continued by the next one, or by a reconciler. The exports are in
    /// STOCKADE_DROP_EXPORTS, or in the folder `exports` of --dir.
    ///
    /// Exit status 0: the item is dropped; 1: it is not archived, not for long enough, or money of
    /// its orders is to be returned; 2: an error.
    Drop {
        /// Id of the item.
        item: String,
        /// Only if the item was archived at least this many days ago.
        #[arg(long, value_name = "DAYS")]
        after: Option<u32>,
    },
    /// Adds units to an item.
    Add(Units),
    /// Withdraws units from an item: this many, or as many as are unsold.
    Withdraw(Units),
    /// Shows and changes the units that are added to an item later.
    #[command(subcommand)]
    Waves(WavesCommand),
    /// Makes items as a TOML file describes them, and says what it changed.
    ///
    /// A second run changes nothing. Fields that the file leaves out stay as they are; title,
    /// currency, segments, hold and durability of an existing item cannot change.
    Apply {
        /// The file, with a table `[[items]]` for each item.
        file: PathBuf,
        /// Say what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Args)]
pub struct NewItemArguments {
    /// Id of the item: 1 to 64 letters, digits, `-`, `_` and `.`.
    item: String,
    /// Units to sell.
    #[arg(long, value_name = "UNITS")]
    stock: u64,
    /// What buyers read. Default: the id.
    #[arg(long)]
    title: Option<String>,
    /// Price of one unit in the currency's smallest unit. Default: 0.
    #[arg(long, value_name = "AMOUNT")]
    price: Option<u64>,
    /// Three capital letters (ISO 4217). Default: USD.
    #[arg(long)]
    currency: Option<String>,
    /// Units that one buyer may hold or own. Default: no limit.
    #[arg(long, value_name = "UNITS")]
    limit_per_buyer: Option<u32>,
    /// Shares of the stock. Default: chosen by the number of Redis masters and the stock.
    #[arg(long, value_name = "N")]
    segments: Option<u16>,
    /// When the sale begins, such as 2026-11-27T10:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    opens_at: Option<GivenTime>,
    /// When the sale ends. Default: never.
    #[arg(long, value_name = "TIME")]
    closes_at: Option<GivenTime>,
    /// Seconds for which an order holds its units. Default: 900.
    #[arg(long, value_name = "SECONDS")]
    hold_seconds: Option<u32>,
    /// Seconds up to which a hold can be extended. Default: --hold-seconds, so that none can.
    #[arg(long, value_name = "SECONDS")]
    max_hold_seconds: Option<u32>,
    /// Units that one order may ask for. Default: no limit.
    #[arg(long, value_name = "UNITS")]
    max_per_order: Option<u32>,
    /// Units that are added later, such as 2027-01-01T10:00:00Z=500; repeat it for several.
    #[arg(long = "wave", value_name = "TIME=UNITS", value_parser = wave)]
    waves: Vec<Wave>,
    /// When an order is acknowledged: recorded (default), replicated or accepted.
    #[arg(long, value_parser = durability)]
    durability: Option<Durability>,
}

#[derive(Args)]
pub struct Units {
    /// Id of the item.
    item: String,
    /// Number of units.
    units: u64,
    /// Identifies the change: a repeat with the same key changes nothing. Default: a random key.
    #[arg(long)]
    key: Option<String>,
}

fn durability(text: &str) -> Result<Durability, String> {
    serde_json::from_value(Value::String(text.into()))
        .map_err(|_| "expected recorded, replicated or accepted".into())
}

impl From<NewItemArguments> for NewItem {
    fn from(arguments: NewItemArguments) -> Self {
        Self {
            id: arguments.item,
            stock: arguments.stock,
            title: arguments.title,
            price: arguments.price,
            currency: arguments.currency,
            limit_per_buyer: arguments.limit_per_buyer,
            segments: arguments.segments,
            opens_at: arguments.opens_at.map(|time| time.0),
            closes_at: arguments.closes_at.map(|time| time.0),
            hold_seconds: arguments.hold_seconds,
            max_hold_seconds: arguments.max_hold_seconds,
            max_per_order: arguments.max_per_order,
            waves: arguments.waves,
            durability: arguments.durability,
        }
    }
}

impl ItemsCommand {
    pub async fn run(self, service: &Service) -> Result<()> {
        let token = &service.token;
        let state = async |item: &str, state| {
            let request = Request::set_state(token, item, state, None);
            service.show(&request).await
        };
        match self {
            Self::List => {
                service
                    .list(&COLUMNS, |page| Request::list_items(token, page))
                    .await
            }
            Self::Show { item } => service.show(&Request::item(&item, Some(token))).await,
            Self::Create(item) => {
                let item = NewItem::from(*item);
                service.show(&Request::create_item(token, &item)).await
            }
            Self::Open { item } => state(&item, ItemState::Open).await,
            Self::Pause { item } => state(&item, ItemState::Paused).await,
            Self::Price { item, price } => {
                let patch = ItemPatch::default().price(price);
                let request = Request::patch_item(token, &item, &patch, None);
                service.show(&request).await
            }
            Self::Close { item } => state(&item, ItemState::Closed).await,
            Self::Archive { .. } | Self::Drop { .. } => {
                unreachable!("the command line archives and drops on the stores")
            }
            Self::Add(units) => units.change(service, StockChange::add).await,
            Self::Withdraw(units) => units.change(service, StockChange::withdraw).await,
            Self::Waves(command) => command.run(service).await,
            Self::Apply { file, dry_run } => apply::apply(service, &file, dry_run).await,
        }
    }
}

impl Units {
    async fn change(self, service: &Service, change: fn(u64) -> StockChange) -> Result<()> {
        let change = change(self.units);
        let change = match self.key {
            Some(key) => change.with_key(IdempotencyKey::new(key)?),
            None => change,
        };
        let request = Request::change_stock(&service.token, &self.item, &change);
        service.show(&request).await
    }
}
