//! After the crowd has gone: holds end, units come back, and whatever is left is bought to see that it can be.
//!
//! Where units return, "sold out" may have been true when it was said and units may be left all the same. They are stranded only if nobody can
//! buy them, so new buyers try.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future::join_all;
use reqwest::{Client, header::HeaderValue};
use tokio::time::sleep;

use crate::{
    admin::{Admin, Audit},
    answer::Answer,
    items::OnSale,
    sale::Sale,
    scenario::Shelf,
    tally::{Acknowledged, Tally},
    wish::{Asked, State, Wish},
};

/// How long what was acknowledged may take to be seen in the ledger, and an end of a hold to be made.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long nobody may get a unit that the service says is there.
const STRANDED_AFTER: Duration = Duration::from_secs(10);

/// Buyers at once.
const BUYERS_MOST: usize = 128;

/// An item when all is over.
#[derive(Debug)]
pub struct Closed {
    /// Its number.
    pub item: usize,
    /// The item.
    pub on_sale: OnSale,
    /// What the service says.
    pub audit: Audit,
    /// Units that nobody could buy although they are there.
    pub stranded: u64,
    /// Units that were bought to see that they can be.
    pub swept: u64,
}

/// Looks after every item.
pub async fn close(sale: &Sale, admin: &Admin) -> Result<Vec<Closed>> {
    let mut closed = Vec::new();
    for (item, on_sale) in sale.items.iter() {
        closed.push(close_item(sale, admin, item, on_sale).await?);
    }
    Ok(closed)
}

async fn close_item(sale: &Sale, admin: &Admin, item: usize, on_sale: &OnSale) -> Result<Closed> {
    let audit = wait_for_holds(sale, admin, item, on_sale).await?;
    let told_sold_out = sale.tally().told_sold_out.contains(&item);
    let mut closed = Closed {
        item,
        on_sale: on_sale.clone(),
        audit,
        stranded: 0,
        swept: 0,
    };
    if told_sold_out && on_sale.shelf.returns() {
        sweep(sale, admin, &mut closed).await?;
        closed.audit = wait_for_holds(sale, admin, item, on_sale).await?;
    } else if told_sold_out {
        // The stock only falls, so what is left now was there when somebody was told that nothing is.
        closed.stranded = on_sale.stock.saturating_sub(
            sale.tally()
                .units(item)
                .max(closed.audit.held + closed.audit.confirmed),
        );
    }
    Ok(closed)
}

/// The audit when everything is at rest; where holds end, when all have ended.
async fn wait_for_holds(
    sale: &Sale,
    admin: &Admin,
    item: usize,
    on_sale: &OnSale,
) -> Result<Audit> {
    if on_sale.shelf != Shelf::Expiring {
        return admin.audit(&on_sale.id, PATIENCE).await;
    }
    let audit = admin
        .audit_when(&on_sale.id, on_sale.hold + PATIENCE, |audit| {
            audit.held == 0
        })
        .await?;
    if audit.held == 0 {
        sale.tally().end_holds(item);
    }
    Ok(audit)
}

/// Buys what is left, until nothing is or nobody can.
async fn sweep(sale: &Sale, admin: &Admin, closed: &mut Closed) -> Result<()> {
    let client = Client::builder().timeout(Duration::from_secs(15)).build()?;
    let (mut progress, mut next_buyer) = (Instant::now(), sale.crowd.buyers());
    let at_first = closed.audit.available;
    // Where holds end soon, what was bought here comes back while we buy: each unit once is enough.
    while closed.swept < at_first {
        let left = admin
            .audit(&closed.on_sale.id, PATIENCE)
            .await?
            .available
            .min(at_first - closed.swept);
        if left == 0 {
            return Ok(());
        }
        let buyers = next_buyer
            ..next_buyer
                + usize::try_from(left)
                    .unwrap_or(BUYERS_MOST)
                    .min(BUYERS_MOST);
        next_buyer = buyers.end;
        let bought = buy(sale, &client, closed.item, buyers).await;
        if bought > 0 {
            closed.swept += bought;
            progress = Instant::now();
        } else if progress.elapsed() > STRANDED_AFTER {
            closed.stranded = left;
            return Ok(());
        } else {
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// New buyers, each of one unit; says how many got one.
async fn buy(sale: &Sale, client: &Client, item: usize, buyers: Range<usize>) -> u64 {
    let asked: Vec<_> = buyers.map(|buyer| order(buyer, item)).collect();
    let settled = join_all(asked.iter().map(|asked| sale.ask(client, asked))).await;
    let mut tally = sale.tally();
    asked
        .iter()
        .zip(&settled)
        .filter(|(asked, settled)| enter(&mut tally, asked, &settled.last.answer))
        .count() as u64
}

fn order(buyer: usize, item: usize) -> Asked {
    Asked {
        buyer,
        item,
        wish: Wish::Order {
            key: HeaderValue::from_static("closing"),
            quantity: 1,
        },
    }
}

/// Enters what a new buyer was answered; these requests are none of the crowd's. Says whether it was an order.
fn enter(tally: &mut Tally, asked: &Asked, answer: &Answer) -> bool {
    match answer {
        Answer::Held { id, .. } => {
            let order = Acknowledged {
                buyer: asked.buyer,
                item: asked.item,
                quantity: 1,
                state: State::Held,
            };
            tally.orders.insert(*id, order).is_none()
        }
        // The audit may be ahead of the service's hint for a moment.
        Answer::SoldOut => false,
        other => {
            let error = other.error().map_or_else(
                || format!("at the closing: {other:?}"),
                |error| format!("at the closing: {error}"),
            );
            *tally.errors.entry(error).or_default() += 1;
            false
        }
    }
}
