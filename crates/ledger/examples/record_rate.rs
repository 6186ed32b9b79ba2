//! How many orders a second `record` moves into a database: `cargo run --release -p ledger --example record_rate DATABASE_URL`.
//!
//! Eight segments, one claim per transaction that takes all of them; once from one task and once from two that have four each. The
//! database's contents grow: give it an empty one.
#![allow(clippy::print_stdout)]

use std::{error::Error, process::ExitCode, time::Instant};

use domain::{BuyerId, Change, Durability, Entry, EntryId, Item, ItemId, ItemState, OrderId, Quantity, SegmentKey, TakenOrder, Window};
use ledger::{Ledger, SegmentReplay};

const SEGMENTS: u16 = 8;
/// As the order services batch them.
const ORDERS_PER_ENTRY: usize = 128;
const SECONDS: f64 = 3.0;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        println!("usage: record_rate DATABASE_URL");
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
    println!("{:>8} {:>6} {:>12} {:>10} {:>10}", "orders", "tasks", "orders/s", "ms median", "ms max");
    for batch in [100, 1000, 5000] {
        for tasks in [1, 2] {
            let item = create(&*ledger, &format!("rate-{}-{batch}-{tasks}", std::process::id())).await?;
            let began = Instant::now();
            let runs = (0..tasks).map(|task| {
                let (ledger, item) = (std::sync::Arc::clone(&ledger), item.clone());
                let segments = (task..SEGMENTS).step_by(usize::from(tasks)).collect();
                tokio::spawn(async move { record_for_a_while(&*ledger, &item, segments, batch).await })
            });
            let mut times = Vec::new();
            for run in runs.collect::<Vec<_>>() {
                times.extend(run.await??);
            }
            let orders = times.len() * batch;
            let rate = orders as f64 / began.elapsed().as_secs_f64();
            times.sort_unstable_by(f64::total_cmp);
            println!("{batch:>8} {tasks:>6} {rate:>12.0} {:>10.2} {:>10.2}", times[times.len() / 2], times[times.len() - 1]);
        }
    }
    Ok(())
}

async fn create(ledger: &dyn Ledger, name: &str) -> Result<Item> {
    let item = Item {
        id: ItemId::new(name)?,
        title: name.into(),
        stock: Item::MAX_STOCK,
        price_cents: 1,
        currency: "EUR".into(),
        limit_per_buyer: None,
        segments: SEGMENTS,
        window: Window::default(),
        hold_seconds: 60,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    };
    ledger.create_item(&item).await?;
    Ok(item)
}

/// Milliseconds of each transaction. Making up the orders is included, as the recorder's decoding would be.
async fn record_for_a_while(ledger: &dyn Ledger, item: &Item, segments: Vec<u16>, batch: usize) -> Result<Vec<f64>> {
    let wanted: Vec<_> = segments.into_iter().map(|segment| SegmentKey { item: item.id.clone(), segment }).collect();
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        let claim = ledger.claim(&wanted, wanted.len()).await?.ok_or("somebody else records here")?;
        let each = batch / claim.rows().len();
        let replays = claim.rows().iter().map(|row| replay(item, row, each, times.len())).collect::<Result<_>>()?;
        claim.record(replays).await?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

fn replay(item: &Item, row: &ledger::SegmentRow, orders: usize, round: usize) -> Result<SegmentReplay> {
    let mut id = row.checkpoint.unwrap_or_default();
    let mut next = || {
        id = EntryId { ms: id.ms + 1, seq: 0 };
        id
    };
    let mut entries = Vec::new();
    if row.checkpoint.is_none() {
        entries.push(Entry { id: next(), fingerprint: 1, change: Change::Opened { units: row.allocated, epoch: 1 } });
    }
    let taken: Vec<_> = (0..orders).map(|n| order(item, row.key.segment, round, n)).collect::<Result<_>>()?;
    let expires_at = jiff::Timestamp::now();
    for orders in taken.chunks(ORDERS_PER_ENTRY) {
        entries.push(Entry { id: next(), fingerprint: 2, change: Change::Taken { expires_at, orders: orders.to_vec() } });
    }
    Ok(SegmentReplay { row: row.clone(), entries })
}

/// Ids are as good as random behind the tag, as those of real orders are.
fn order(item: &Item, segment: u16, round: usize, n: usize) -> Result<TakenOrder> {
    let mut bytes = *uuid::Uuid::new_v4().as_bytes();
    bytes[..4].copy_from_slice(&item.id.tag().0.to_be_bytes());
    Ok(TakenOrder { id: OrderId::from_bytes(bytes), buyer: BuyerId::new(format!("buyer-{segment}-{round}-{n}"))?, quantity: Quantity::ONE })
}
