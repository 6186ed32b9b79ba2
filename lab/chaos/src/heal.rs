//! Measures how long the service takes to recover from a fault.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use client::{NewItem, NewOrder};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    api::Api,
    history::SaleItem,
    plan::{Health, Round},
};

/// An item that never sells out, to test whether orders can be placed.
pub const PROBE: &str = "probe";
const SEGMENTS: u16 = 6;
/// Number of new buyers for each test: enough to reach every segment as a home segment.
const BUYERS: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Creates the probe item.
pub async fn create_probe(api: &Api) -> Result<()> {
    let item = NewItem {
        segments: Some(SEGMENTS),
        hold_seconds: Some(2),
        ..NewItem::new(PROBE, 1_000_000)
    };
    let created = api.admin.create_item(&item).await;
    created.map(drop).context("creating the probe item")
}

/// Waits until new orders are placed on every segment and all audits are correct. Returns the time
/// since `fault_end`, or what was still wrong at the timeout.
pub async fn wait_until_healthy(
    api: &Api,
    items: &[Arc<SaleItem>],
    fault_end: Instant,
    round: &Round,
) -> Result<Duration, String> {
    let Health {
        order_within,
        healed_within,
        ..
    } = round.health;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let name = format!("{}-{attempt}", round.number);
        let Err(reason) = check_health(api, items, &name, order_within).await else {
            return Ok(fault_end.elapsed());
        };
        if fault_end.elapsed() > healed_within {
            return Err(format!("not healthy after {healed_within:?}: {reason}"));
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn check_health(
    api: &Api,
    items: &[Arc<SaleItem>],
    name: &str,
    order_within: Duration,
) -> Result<(), String> {
    check_orders(api, name, order_within).await?;
    for item in items.iter().map(|item| &*item.id).chain([PROBE]) {
        match api.admin.audit(item).await {
            Ok(audit) if audit.ok => {}
            Ok(audit) => return Err(format!("the audit of {item} is not ok: {audit:?}")),
            Err(error) => return Err(format!("the audit of {item}: {error}")),
        }
    }
    Ok(())
}

/// Each new buyer places an order with a single request.
async fn check_orders(api: &Api, name: &str, order_within: Duration) -> Result<(), String> {
    let mut orders = JoinSet::new();
    for number in 0..BUYERS {
        let buyer = api.buyer(&format!("probe-{name}-{number}"));
        orders.spawn(async move {
            let order = NewOrder::new(PROBE, 1);
            timeout(order_within, buyer.place(&order)).await
        });
    }
    for result in orders.join_all().await {
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(format!("a new order: {error}")),
            Err(_) => return Err(format!("a new order took longer than {order_within:?}")),
        }
    }
    Ok(())
}
