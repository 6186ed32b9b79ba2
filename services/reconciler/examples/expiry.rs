//! How long it takes until the units of holds that are over at the same time can be bought again:
//! `cargo run --release -p reconciler --example expiry [ORDERS] [sqlite|postgres]`.
//!
//! Starts its own servers. All orders are placed and recorded first, with holds that are over by then; then a reconciler as `serve` runs it is started. The clock
//! runs from its start, so what is measured is one expirer that finds them all due. Exit status 1 if that takes longer than five seconds.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, Quantity, Window};
use futures::{StreamExt, stream};
use ledger::Ledger;
use lock::RedisLockBuilder;
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use stock::{Acknowledge, Ask, InspectionEntries, ItemStock, Outcome, Stock, StockSettings};
use testbed::{Postgres, Redis};
use tokio_util::sync::CancellationToken;

const SEGMENTS: u16 = 8;
const AT_ONCE: usize = 2000;
const WITHIN: Duration = Duration::from_secs(5);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match measure_all().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure_all() -> Result<bool> {
    let orders = std::env::args().nth(1).map_or(Ok(100_000), |orders| orders.parse())?;
    let wanted = std::env::args().nth(2);
    println!("{:>9} {:>9} {:>12} {:>12} {:>12} {:>14}", "ledger", "orders", "ended s", "returned s", "recorded s", "sold again s");
    let mut in_time = true;
    for kind in ["sqlite", "postgres"] {
        if wanted.as_deref().is_none_or(|wanted| wanted == kind) {
            in_time &= measure(kind, orders).await?;
        }
    }
    Ok(in_time)
}

async fn measure(kind: &str, orders: usize) -> Result<bool> {
    let (redis, folder, postgres) = (Redis::start().await?, tempfile::tempdir()?, Postgres::start().await?);
    let url = match kind {
        "sqlite" => format!("sqlite://{}/ledger.db", folder.path().display()),
        _ => postgres.create_database("expiry").await?,
    };
    let ledger = ledger::connect(&url, 8).await?;
    ledger.migrate().await?;
    let stock = Stock::connect(StockSettings::new(redis.url())).await?;
    let item = item(orders)?;
    ledger.create_item(&item).await?;
    stock.open(&item).await?;
    let stop = CancellationToken::new();
    let recorder = tokio::spawn(recorder::run(Arc::clone(&stock), Arc::clone(&ledger), RecorderSettings::default(), stop.clone()));
    place(&stock.item(&item), &item, "first", orders).await?;
    until(async || held(&*ledger, &item).await == Some(orders as u64)).await;
    tokio::time::sleep(Duration::from_secs(u64::from(item.hold_seconds))).await;

    let began = Instant::now();
    let lock = Arc::new(RedisLockBuilder::new(redis.url()).build()?);
    let settings = ReconcilerSettings::default();
    let reconciler = tokio::spawn(reconciler::run(Arc::clone(&stock), Arc::clone(&ledger), lock, settings, stop.clone()));
    let seconds = || began.elapsed().as_secs_f64();
    let [mut ended, mut returned, mut recorded] = [None; 3];
    until(async || {
        ended = ended.or(rows(&*ledger, &item).await.filter(|rows| rows.held == 0).map(|_| seconds()));
        returned = returned.or(available(&stock.item(&item)).await.filter(|units| *units == orders as u64).map(|_| seconds()));
        recorded = recorded.or(rows(&*ledger, &item).await.filter(|rows| rows.available == orders as u64).map(|_| seconds()));
        recorded.is_some() && returned.is_some()
    })
    .await;
    let again = Instant::now();
    place(&stock.item(&item), &item, "second", orders).await?;
    let [ended, returned, recorded] = [ended, returned, recorded].map(Option::unwrap_or_default);
    println!("{kind:>9} {orders:>9} {ended:>12.2} {returned:>12.2} {recorded:>12.2} {:>14.2}", again.elapsed().as_secs_f64());
    stop.cancel();
    recorder.await?;
    reconciler.await?;
    let report = audit::audit(&stock, &*ledger, &item.id).await?.ok_or("the item is gone")?;
    stock.shutdown().await;
    if !report.ok {
        return Err(format!("the audit does not come out: {report:?}").into());
    }
    Ok(Duration::from_secs_f64(returned) <= WITHIN)
}

fn item(orders: usize) -> Result<Item> {
    Ok(Item {
        id: ItemId::new("vase")?,
        title: "Vase".into(),
        stock: orders as u64,
        price_cents: 1,
        currency: "EUR".into(),
        limit_per_buyer: Some(Quantity::ONE),
        segments: SEGMENTS,
        window: Window::default(),
        hold_seconds: 1,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

/// Every buyer a unit.
async fn place(stock: &Arc<ItemStock>, item: &Item, key: &str, orders: usize) -> Result<()> {
    let key = IdempotencyKey::new(key)?;
    let placed = stream::iter(0..orders).map(|n| {
        let (stock, key) = (Arc::clone(stock), &key);
        async move {
            let buyer = BuyerId::new(format!("buyer-{n}"))?;
            let order = OrderId::derive(&item.id, item.id.tag(), &buyer, key);
            let (acknowledge, within) = (Acknowledge::Accepted, Duration::from_secs(60));
            match stock.order(Ask { order, buyer, quantity: Quantity::ONE, acknowledge, within }).await? {
                Outcome::Held { .. } => Ok(()),
                outcome => Err(format!("order {n}: {outcome:?}").into()),
            }
        }
    });
    placed.buffer_unordered(AT_ONCE).collect::<Vec<Result<()>>>().await.into_iter().collect()
}

/// The item's rows, summed up.
struct Rows {
    available: u64,
    held: u64,
}

async fn rows(ledger: &dyn Ledger, item: &Item) -> Option<Rows> {
    let rows = ledger.segments(&item.id).await.ok()?;
    Some(Rows { available: rows.iter().map(|row| row.available).sum(), held: rows.iter().map(|row| row.held).sum() })
}

async fn held(ledger: &dyn Ledger, item: &Item) -> Option<u64> {
    rows(ledger, item).await.map(|rows| rows.held)
}

async fn available(stock: &ItemStock) -> Option<u64> {
    let segments = stock.inspect(InspectionEntries::None).await.ok()?;
    Some(segments.iter().map(|segment| segment.available).sum())
}

async fn until(mut happened: impl AsyncFnMut() -> bool) {
    while !happened().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
