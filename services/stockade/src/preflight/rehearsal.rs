//! A dry order: the scripts of a real order take a unit of an item that only this check knows, and
//! the ledger records it in a transaction that is rolled back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::ledger::Ledger;
use ::stock::{Outcome, Stock};
use anyhow::{Context, Result, ensure};
use domain::{Durability, Item, ItemId, ItemState, Window};
use uuid::Uuid;

use super::check::{Checks, Status};
use crate::{roles, settings::Settings};

const PART: &str = "dry order";
/// An order that takes longer than this on an idle system is late in a rush.
const WARN: Duration = Duration::from_millis(100);

/// How long each step took.
struct Times {
    redis: Duration,
    ledger: Duration,
}

/// Places a dry order with the durability of the item that will be sold.
pub(super) async fn check(
    settings: &Settings,
    ledger: &Arc<dyn Ledger>,
    durability: Durability,
    checks: &mut Checks,
) {
    match rehearse(settings, &**ledger, durability).await {
        Ok(times) => {
            add_time("Redis takes it", times.redis, checks);
            add_time("the ledger records it", times.ledger, checks);
        }
        Err(error) => {
            let remedy = "no order could be placed: see the checks of Redis and the ledger";
            checks.add(PART, "placed", Status::Fail, format!("{error:#}"), remedy);
        }
    }
}

fn add_time(check: &'static str, time: Duration, checks: &mut Checks) {
    let status = if time > WARN {
        Status::Warn
    } else {
        Status::Ok
    };
    let found = format!("in {:.1} ms", time.as_secs_f64() * 1000.0);
    let remedy = "an order takes long on an idle system: look at the disk and at the network";
    checks.add(PART, check, status, found, remedy);
}

async fn rehearse(
    settings: &Settings,
    ledger: &dyn Ledger,
    durability: Durability,
) -> Result<Times> {
    let item = shadow(durability)?;
    let stock: Arc<Stock> = roles::open_stock(settings).await?;
    let begun = Instant::now();
    let rehearsed = stock.rehearse(&item).await;
    let redis = begun.elapsed();
    stock.shutdown().await;
    let rehearsed = rehearsed.context("Redis")?;
    let outcome = rehearsed.outcome;
    let is_held = matches!(
        outcome,
        Outcome::Held {
            replayed: false,
            ..
        }
    );
    ensure!(is_held, "Redis answered {outcome:?}, expected a held order");
    let begun = Instant::now();
    let recorded = ledger
        .rehearse(&item, rehearsed.entries)
        .await
        .context("ledger")?;
    ensure!(
        recorded.held == 1 && recorded.rejected.is_empty(),
        "the ledger would have recorded {} held orders, expected 1",
        recorded.held
    );
    Ok(Times {
        redis,
        ledger: begun.elapsed(),
    })
}

/// An item that no ledger has and no buyer can name.
fn shadow(durability: Durability) -> Result<Item> {
    Ok(Item {
        id: ItemId::new(format!("preflight-{}", Uuid::new_v4().simple()))?,
        title: "A dry order".into(),
        stock: 1,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: None,
        segments: 1,
        window: Window::default(),
        hold_seconds: 60,
        max_hold_seconds: 60,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}
