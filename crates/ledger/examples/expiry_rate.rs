//! Measures how many orders a database can expire and return each second: `cargo run --release -p
//! ledger --example expiry_rate DATABASE_URL`. The database must be empty.
//!
//! A hundred thousand holds over eight segments expire at the same moment. The measurement covers
//! the work of the expiry (find a batch of due orders, make the transitions) and of the recorder
//! after the segments have released the units.
#![allow(clippy::print_stdout)]

use std::{collections::BTreeMap, error::Error, process::ExitCode, time::Instant};

use domain::{
    BuyerId, Change, Durability, Entry, EntryId, Item, ItemId, ItemState, OrderId, OrderState,
    Quantity, SegmentKey, TakenOrder, Window,
};
use jiff::Timestamp;
use ledger::{Ledger, PendingReturn, SegmentReplay, SegmentRow, Transition};

const SEGMENTS: u16 = 8;
const ORDERS: usize = 100_000;
const BATCH: usize = 5000;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        println!("usage: expiry_rate DATABASE_URL");
        return ExitCode::FAILURE;
    };
    match measure(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(url: &str) -> Result<()> {
    let ledger = ledger::connect(url, 4).await?;
    ledger.migrate().await?;
    let item = create(&*ledger).await?;
    let wanted: Vec<_> = (0..SEGMENTS)
        .map(|segment| SegmentKey {
            item: item.id.clone(),
            segment,
        })
        .collect();
    fill(&*ledger, &wanted).await?;
    println!(
        "{:>10} {:>8} {:>10} {:>10} {:>12}",
        "", "orders", "s", "ms max", "orders/s"
    );
    let mut clock = Clock::start("expire");
    while clock.lap(expire(&*ledger).await?) {}
    let mut clock = Clock::start("return");
    while clock.lap(return_units(&*ledger, &wanted).await?) {}
    Ok(())
}

/// Prints the rate of each phase when it has finished.
struct Clock {
    what: &'static str,
    began: Instant,
    lap: Instant,
    slowest: f64,
    orders: usize,
}

impl Clock {
    fn start(what: &'static str) -> Self {
        let now = Instant::now();
        Self {
            what,
            began: now,
            lap: now,
            slowest: 0.0,
            orders: 0,
        }
    }

    fn lap(&mut self, orders: usize) -> bool {
        self.orders += orders;
        self.slowest = self.slowest.max(self.lap.elapsed().as_secs_f64() * 1000.0);
        self.lap = Instant::now();
        if orders == 0 {
            let seconds = self.began.elapsed().as_secs_f64();
            println!(
                "{:>10} {:>8} {seconds:>10.2} {:>10.1} {:>12.0}",
                self.what,
                self.orders,
                self.slowest,
                self.orders as f64 / seconds
            );
        }
        orders > 0
    }
}

async fn create(ledger: &dyn Ledger) -> Result<Item> {
    let item = Item {
        id: ItemId::new(format!("expiry-{}", std::process::id()))?,
        title: "expiry".into(),
        stock: Item::MAX_STOCK,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: None,
        segments: SEGMENTS,
        window: Window::default(),
        hold_seconds: 60,
        max_hold_seconds: 60,
        max_per_order: None,
        waves: Vec::new(),
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    };
    ledger.create_item(&item).await?;
    Ok(item)
}

fn next(row: &SegmentRow) -> EntryId {
    EntryId {
        ms: row.checkpoint.unwrap_or_default().ms + 1,
        seq: 0,
    }
}

/// Records all orders in one transaction.
async fn fill(ledger: &dyn Ledger, wanted: &[SegmentKey]) -> Result<()> {
    let claim = ledger
        .claim(wanted, wanted.len())
        .await?
        .ok_or("another recorder has claimed a segment: the database must be empty and unused")?;
    let replays = claim.rows().iter().map(|row| {
        let opened = Entry {
            id: EntryId { ms: 1, seq: 0 },
            fingerprint: 1,
            change: Change::Opened {
                units: row.allocated,
                epoch: 1,
            },
        };
        let orders = (0..ORDERS / usize::from(SEGMENTS))
            .map(|n| order(&row.key, n))
            .collect::<Result<_>>()?;
        let change = Change::Taken {
            expires_at: Timestamp::now(),
            orders,
        };
        Ok(SegmentReplay {
            row: row.clone(),
            entries: vec![
                opened,
                Entry {
                    id: EntryId { ms: 2, seq: 0 },
                    fingerprint: 2,
                    change,
                },
            ],
        })
    });
    let replays = replays.collect::<Result<_>>()?;
    claim.record(replays).await?;
    Ok(())
}

/// Ids are pseudo-random behind the tag, like those of real orders.
fn order(segment: &SegmentKey, n: usize) -> Result<TakenOrder> {
    let mut bytes = *uuid::Uuid::new_v4().as_bytes();
    bytes[..4].copy_from_slice(&segment.item.tag().0.to_be_bytes());
    let buyer = BuyerId::new(format!("buyer-{}-{n}", segment.segment))?;
    Ok(TakenOrder {
        id: OrderId::from_bytes(bytes).reacquire(0),
        buyer,
        quantity: Quantity::ONE,
    })
}

async fn expire(ledger: &dyn Ledger) -> Result<usize> {
    let due = ledger.due(None, Timestamp::now(), BATCH).await?;
    let steps: Vec<_> = due
        .into_iter()
        .map(|order| Transition {
            order,
            to: OrderState::Expired,
            payment: None,
        })
        .collect();
    let made = if steps.is_empty() {
        Vec::new()
    } else {
        ledger.transition(&steps).await?
    };
    Ok(made.into_iter().flatten().count())
}

async fn return_units(ledger: &dyn Ledger, wanted: &[SegmentKey]) -> Result<usize> {
    let mut by_segment: BTreeMap<SegmentKey, Vec<TakenOrder>> = BTreeMap::new();
    for PendingReturn {
        id,
        segment,
        buyer,
        quantity,
    } in ledger
        .pending_returns(None, Timestamp::now(), BATCH)
        .await?
    {
        by_segment.entry(segment).or_default().push(TakenOrder {
            id,
            buyer,
            quantity,
        });
    }
    let orders = by_segment.values().map(Vec::len).sum();
    if orders > 0 {
        let claim = ledger.claim(wanted, wanted.len()).await?.ok_or(
            "another recorder has claimed a segment: the database must be empty and unused",
        )?;
        let replays = claim.rows().iter().filter_map(|row| {
            let change = Change::Released {
                orders: by_segment.remove(&row.key)?,
            };
            Some(SegmentReplay {
                row: row.clone(),
                entries: vec![Entry {
                    id: next(row),
                    fingerprint: 3,
                    change,
                }],
            })
        });
        let replays: Vec<_> = replays.collect();
        claim.record(replays).await?;
    }
    Ok(orders)
}
