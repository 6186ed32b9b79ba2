//! After the sessions: waits for holds to expire, and tests whether the remaining units can be
//! bought.
//!
//! If units return, an item may have been sold out earlier and still have units left. They are
//! stranded only if they cannot be bought, so new buyers try to.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::Result;
use client::{Audit, NewOrder, OrderState};
use futures::future::join_all;
use reqwest::Client;
use tokio::time::sleep;

use crate::{
    action::{Action, Call},
    admin::Admin,
    history::{AcknowledgedOrder, History},
    items::SaleItem,
    outcome::Outcome,
    sale::Sale,
};

/// Limit for acknowledged orders to reach the ledger, and for expired holds to end.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same after servers have failed: segments are repaired first.
const SETTLE_TIMEOUT_AFTER_OUTAGES: Duration = Duration::from_secs(120);

/// Units that cannot be bought for this long are stranded.
const STRANDED_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit for a request of a new buyer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Number of concurrent new buyers.
const BUYERS_MAX: usize = 128;

/// An item after the run.
#[derive(Debug)]
pub struct Closed {
    /// The number of the item.
    pub item: usize,
    /// The item.
    pub sale_item: SaleItem,
    /// The last audit.
    pub audit: Audit,
    /// Units that exist but cannot be bought.
    pub stranded: u64,
    /// Units that were bought to test that they can be.
    pub swept: u64,
}

/// Settles every item.
pub async fn close(sale: &Sale, admin: &Admin) -> Result<Vec<Closed>> {
    let mut closed = Vec::new();
    for (item, sale_item) in sale.items.iter() {
        closed.push(close_item(sale, admin, item, sale_item).await?);
    }
    Ok(closed)
}

async fn close_item(
    sale: &Sale,
    admin: &Admin,
    item: usize,
    sale_item: &SaleItem,
) -> Result<Closed> {
    let audit = wait_for_holds(sale, admin, item, sale_item).await?;
    let reported_sold_out = sale.history().reported_sold_out.contains(&item);
    let mut closed = Closed {
        item,
        sale_item: sale_item.clone(),
        audit,
        stranded: 0,
        swept: 0,
    };
    if reported_sold_out && sale.units_return(item) {
        sweep(sale, admin, &mut closed).await?;
        closed.audit = wait_for_holds(sale, admin, item, sale_item).await?;
    } else if reported_sold_out {
        // The stock only falls, so units that are left now were left when the item was reported as
        // sold out.
        closed.stranded = sale_item.stock.saturating_sub(
            sale.history()
                .units(item)
                .max(closed.audit.held + closed.audit.confirmed),
        );
    }
    Ok(closed)
}

/// The audit when no unit is on its way, and all expiring holds have ended.
async fn wait_for_holds(
    sale: &Sale,
    admin: &Admin,
    item: usize,
    sale_item: &SaleItem,
) -> Result<Audit> {
    if sale.outages {
        let timeout = SETTLE_TIMEOUT_AFTER_OUTAGES;
        let is_repaired = |audit: &Audit| audit.ok;
        admin
            .audit_when(&sale_item.id, timeout, is_repaired)
            .await?;
    }
    if !sale_item.policy.expires() {
        return admin.audit(&sale_item.id, SETTLE_TIMEOUT).await;
    }
    let audit = admin
        .audit_when(
            &sale_item.id,
            sale_item.longest_hold() + SETTLE_TIMEOUT,
            |audit| audit.held == 0,
        )
        .await?;
    if audit.held == 0 {
        sale.history().expire_holds(item);
    }
    Ok(audit)
}

/// Buys the remaining units until none is left or none can be bought.
async fn sweep(sale: &Sale, admin: &Admin, closed: &mut Closed) -> Result<()> {
    let client = Client::builder().timeout(REQUEST_TIMEOUT).build()?;
    let (mut progress, mut next_buyer) = (Instant::now(), sale.buyers.count());
    let remaining = closed.audit.available;
    // Short holds expire while this loop runs, and their units return. Each unit is bought once.
    while closed.swept < remaining {
        let left = admin
            .audit(&closed.sale_item.id, SETTLE_TIMEOUT)
            .await?
            .available
            .min(remaining - closed.swept);
        if left == 0 {
            return Ok(());
        }
        let buyers =
            next_buyer..next_buyer + usize::try_from(left).unwrap_or(BUYERS_MAX).min(BUYERS_MAX);
        next_buyer = buyers.end;
        let bought = buy(sale, &client, closed.item, buyers).await;
        if bought > 0 {
            closed.swept += bought;
            progress = Instant::now();
        } else if progress.elapsed() > STRANDED_TIMEOUT {
            closed.stranded = left;
            return Ok(());
        } else {
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// New buyers order one unit each. Returns how many succeeded.
async fn buy(sale: &Sale, client: &Client, item: usize, buyers: Range<usize>) -> u64 {
    let item_id = &sale.items.get(item).id;
    let calls: Vec<_> = buyers.map(|buyer| order(buyer, item, item_id)).collect();
    let settled = join_all(calls.iter().map(|call| sale.send(client, call))).await;
    let mut history = sale.history();
    calls
        .iter()
        .zip(&settled)
        .filter(|(call, settled)| record(&mut history, call, &settled.last.outcome))
        .count() as u64
}

fn order(buyer: usize, item: usize, item_id: &str) -> Call {
    Call {
        buyer,
        item,
        action: Action::Order(NewOrder::new(item_id, 1)),
    }
}

/// Records the outcome of a new buyer without counting the request. Returns whether it placed an
/// order.
fn record(history: &mut History, call: &Call, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Held { id, .. } => {
            let order = AcknowledgedOrder {
                buyer: call.buyer,
                item: call.item,
                quantity: 1,
                state: OrderState::Held,
            };
            history.orders.insert(*id, order).is_none()
        }
        // The sold-out cache of the service may lag behind the audit.
        Outcome::SoldOut => false,
        other => {
            let error = other.error().map_or_else(
                || format!("after the run: {other:?}"),
                |error| format!("after the run: {error}"),
            );
            *history.errors.entry(error).or_default() += 1;
            false
        }
    }
}
