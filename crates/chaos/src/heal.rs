//! How long it takes until everything is well again.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    book::Offer,
    shop::{Reply, Shop},
};

/// An item that is never sold out, to see whether orders can be placed.
pub const PROBE: &str = "probe";
const SEGMENTS: u32 = 6;
/// Fresh buyers, so that every segment is somebody's home.
const BUYERS: usize = 8;
/// An order that takes longer is no sign of health.
const ORDER_WITHIN: Duration = Duration::from_millis(700);
/// If it takes longer it will not happen.
const HEALED_WITHIN: Duration = Duration::from_secs(40);
const AGAIN_AFTER: Duration = Duration::from_millis(25);

/// Opens the item.
pub async fn open_probe(shop: &Shop) -> Result<()> {
    let item = json!({ "id": PROBE, "stock": 1_000_000, "segments": SEGMENTS, "hold_seconds": 2 });
    shop.create(&item)
        .await
        .done("opening the probe")
        .map(|_| ())
}

/// Waits until fresh orders are placed on every segment and the audits come out; returns how long after `over` that was, or what was
/// still not well.
pub async fn until_well(
    shop: &Arc<Shop>,
    offers: &[Arc<Offer>],
    over: Instant,
    round: usize,
) -> Result<Duration, String> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let Err(why) = is_well(shop, offers, &format!("{round}-{attempt}")).await else {
            return Ok(over.elapsed());
        };
        if over.elapsed() > HEALED_WITHIN {
            return Err(format!("not well after {HEALED_WITHIN:?}: {why}"));
        }
        sleep(AGAIN_AFTER).await;
    }
}

async fn is_well(shop: &Arc<Shop>, offers: &[Arc<Offer>], name: &str) -> Result<(), String> {
    orders_are_placed(shop, name).await?;
    for item in offers.iter().map(|offer| &*offer.item).chain([PROBE]) {
        match shop.audit(item).await {
            Reply::Done(audit) if audit.ok => {}
            Reply::Done(audit) => return Err(format!("the audit of {item} says {}", audit.text)),
            other => return Err(format!("the audit of {item}: {other:?}")),
        }
    }
    Ok(())
}

async fn orders_are_placed(shop: &Arc<Shop>, name: &str) -> Result<(), String> {
    let mut orders = JoinSet::new();
    for number in 0..BUYERS {
        let buyer = shop
            .buyer(format!("probe-{name}-{number}"))
            .map_err(|error| error.to_string())?;
        let shop = Arc::clone(shop);
        orders.spawn(
            async move { timeout(ORDER_WITHIN, shop.place(&buyer, PROBE, "probe", 1)).await },
        );
    }
    for reply in orders.join_all().await {
        match reply {
            Ok(Reply::Done(_)) => {}
            Ok(other) => return Err(format!("a fresh order: {other:?}")),
            Err(_) => return Err(format!("a fresh order took longer than {ORDER_WITHIN:?}")),
        }
    }
    Ok(())
}
