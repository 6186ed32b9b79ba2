//! Measures how long it takes until the units of holds that expire at the same time can be bought
//! again: `cargo run --release -p reconciler --example expiry [ORDERS] [sqlite|postgres]`.
//!
//! Starts its own servers. First it places and records all orders with short holds, and waits until
//! these have expired. Then it starts a reconciler with the settings of `serve`. The clock runs
//! from that start, so the first figure is one expirer that finds all holds due. The second figure
//! is how late a hold ends among as many open ones. Exit status 1 if the first takes longer than
//! five seconds, or the second longer than one second.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, OrderState, Quantity,
    Window,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use ledger::Ledger;
use lock::RedisLockBuilder;
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use stock::{
    Acknowledge, InspectionEntries, ItemStock, Outcome, Reservation, Stock, StockSettings,
};
use testbed::{Postgres, Redis};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SEGMENTS: u16 = 8;
const ORDER_CONCURRENCY: usize = 2000;
/// Number of holds that expire one after the other among open ones.
const ENDING: usize = 200;
const EXPIRY_TIME_MAX: Duration = Duration::from_secs(5);

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
    let orders = std::env::args()
        .nth(1)
        .map_or(Ok(100_000), |orders| orders.parse())?;
    let wanted = std::env::args().nth(2);
    println!(
        "{:>9} {:>9} {:>12} {:>12} {:>12} {:>14}",
        "ledger", "orders", "ended s", "returned s", "recorded s", "sold again s"
    );
    let kinds = || {
        ["sqlite", "postgres"]
            .into_iter()
            .filter(|kind| wanted.as_deref().is_none_or(|wanted| wanted == *kind))
    };
    let mut in_time = true;
    for kind in kinds() {
        in_time &= measure(kind, orders).await?;
    }
    println!(
        "\n{:>9} {:>9} {:>12} {:>12}",
        "ledger", "open", "late p50 s", "late max s"
    );
    for kind in kinds() {
        in_time &= measure_among_open(kind, orders).await?;
    }
    Ok(in_time)
}

async fn measure(kind: &str, orders: usize) -> Result<bool> {
    let scene = Scene::open(kind).await?;
    let (stock, ledger) = (&scene.stock, &scene.ledger);
    let item = scene.offer("vase", orders, 1).await?;
    place(&stock.item(&item), &item, "first", orders).await?;
    until(async || held(&**ledger, &item).await == Some(orders as u64)).await;
    tokio::time::sleep(Duration::from_secs(u64::from(item.hold_seconds))).await;

    let began = Instant::now();
    let reconciler = scene.reconcile()?;
    let seconds = || began.elapsed().as_secs_f64();
    let [mut ended, mut returned, mut recorded] = [None; 3];
    until(async || {
        ended = ended.or(rows(&**ledger, &item)
            .await
            .filter(|rows| rows.held == 0)
            .map(|_| seconds()));
        returned = returned.or(available(&stock.item(&item))
            .await
            .filter(|units| *units == orders as u64)
            .map(|_| seconds()));
        recorded = recorded.or(rows(&**ledger, &item)
            .await
            .filter(|rows| rows.available == orders as u64)
            .map(|_| seconds()));
        recorded.is_some() && returned.is_some()
    })
    .await;
    let again = Instant::now();
    place(&stock.item(&item), &item, "second", orders).await?;
    let [ended, returned, recorded] = [ended, returned, recorded].map(Option::unwrap_or_default);
    println!(
        "{kind:>9} {orders:>9} {ended:>12.2} {returned:>12.2} {recorded:>12.2} {:>14.2}",
        again.elapsed().as_secs_f64()
    );
    scene.close(reconciler, &[item]).await?;
    Ok(Duration::from_secs_f64(returned) <= EXPIRY_TIME_MAX)
}

/// Among many open holds, some expire from time to time. Prints how late these end, median and
/// maximum, in seconds.
async fn measure_among_open(kind: &str, orders: usize) -> Result<bool> {
    let scene = Scene::open(kind).await?;
    let (open, ending) = (
        scene.offer("open", orders, 3600).await?,
        scene.offer("ending", ENDING, 2).await?,
    );
    place(&scene.stock.item(&open), &open, "open", orders).await?;
    until(async || held(&*scene.ledger, &open).await == Some(orders as u64)).await;
    let reconciler = scene.reconcile()?;
    let sold = scene.stock.item(&ending);
    let mut placed = Vec::new();
    for n in 0..ENDING {
        placed.push(place_one(&sold, &ending, "ending", n).await?);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut late = Vec::new();
    for (order, expires_at) in placed {
        until(async || {
            scene
                .ledger
                .order(order)
                .await
                .is_ok_and(|order| order.is_some_and(|order| order.state == OrderState::Expired))
        })
        .await;
        late.push(Timestamp::now().duration_since(expires_at).as_secs_f64());
    }
    late.sort_by(f64::total_cmp);
    println!(
        "{kind:>9} {orders:>9} {:>12.2} {:>12.2}",
        late[ENDING / 2],
        late[ENDING - 1]
    );
    scene.close(reconciler, &[open, ending]).await?;
    Ok(late[ENDING - 1] <= 1.0)
}

/// Servers, a ledger, a stock, and a recorder.
struct Scene {
    redis: Redis,
    ledger: Arc<dyn Ledger>,
    stock: Arc<Stock>,
    stop: CancellationToken,
    recorder: JoinHandle<()>,
    _postgres: Postgres,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn open(kind: &str) -> Result<Self> {
        let (redis, folder, postgres) = (
            Redis::start().await?,
            tempfile::tempdir()?,
            Postgres::start().await?,
        );
        let url = match kind {
            "sqlite" => format!("sqlite://{}/ledger.db", folder.path().display()),
            _ => postgres.create_database("expiry").await?,
        };
        let ledger = ledger::connect(&url, 8).await?;
        ledger.migrate().await?;
        let stock = Stock::connect(StockSettings::new(redis.url())).await?;
        let stop = CancellationToken::new();
        let recorder = tokio::spawn(recorder::run(
            Arc::clone(&stock),
            Arc::clone(&ledger),
            RecorderSettings::default(),
            stop.clone(),
        ));
        Ok(Self {
            redis,
            ledger,
            stock,
            stop,
            recorder,
            _postgres: postgres,
            _folder: folder,
        })
    }

    async fn offer(&self, id: &str, orders: usize, hold_seconds: u32) -> Result<Item> {
        let item = item(id, orders, hold_seconds)?;
        self.ledger.create_item(&item).await?;
        self.stock.open(&item).await?;
        Ok(item)
    }

    fn reconcile(&self) -> Result<JoinHandle<()>> {
        let lock = Arc::new(RedisLockBuilder::new(self.redis.url()).build()?);
        let (stock, ledger, settings) = (
            Arc::clone(&self.stock),
            Arc::clone(&self.ledger),
            ReconcilerSettings::default(),
        );
        Ok(tokio::spawn(reconciler::run(
            stock,
            ledger,
            lock,
            settings,
            self.stop.clone(),
        )))
    }

    /// Stops the services and audits the items.
    async fn close(self, reconciler: JoinHandle<()>, items: &[Item]) -> Result<()> {
        self.stop.cancel();
        self.recorder.await?;
        reconciler.await?;
        for item in items {
            let report = audit::audit(&self.stock, &*self.ledger, &item.id)
                .await?
                .ok_or("the item is gone")?;
            if !report.ok {
                return Err(format!("the audit failed: {report:?}").into());
            }
        }
        self.stock.shutdown().await;
        Ok(())
    }
}

fn item(id: &str, orders: usize, hold_seconds: u32) -> Result<Item> {
    Ok(Item {
        id: ItemId::new(id)?,
        title: id.into(),
        stock: orders as u64,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: Some(Quantity::ONE),
        segments: SEGMENTS,
        window: Window::default(),
        hold_seconds,
        max_hold_seconds: hold_seconds,
        max_per_order: None,
        waves: Vec::new(),
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

/// Places an order for one unit for every buyer.
async fn place(stock: &Arc<ItemStock>, item: &Item, key: &str, orders: usize) -> Result<()> {
    let placed = stream::iter(0..orders).map(|n| place_one(stock, item, key, n));
    placed
        .buffer_unordered(ORDER_CONCURRENCY)
        .map(|placed| placed.map(drop))
        .collect::<Vec<Result<()>>>()
        .await
        .into_iter()
        .collect()
}

/// Places an order for one unit, and returns its id and when its hold expires.
async fn place_one(
    stock: &Arc<ItemStock>,
    item: &Item,
    key: &str,
    n: usize,
) -> Result<(OrderId, Timestamp)> {
    let buyer = BuyerId::new(format!("buyer-{n}"))?;
    let order = OrderId::derive(&item.id, item.id.tag(), &buyer, &IdempotencyKey::new(key)?);
    let (acknowledge, within) = (Acknowledge::Accepted, Duration::from_secs(60));
    match stock
        .order(Reservation {
            order,
            buyer,
            quantity: Quantity::ONE,
            acknowledge,
            within,
        })
        .await?
    {
        Outcome::Held { expires_at, .. } => Ok((order, expires_at)),
        outcome => Err(format!("order {n}: {outcome:?}").into()),
    }
}

/// Sums over the item's rows.
struct Rows {
    available: u64,
    held: u64,
}

async fn rows(ledger: &dyn Ledger, item: &Item) -> Option<Rows> {
    let rows = ledger.segments(&item.id).await.ok()?;
    Some(Rows {
        available: rows.iter().map(|row| row.available).sum(),
        held: rows.iter().map(|row| row.held).sum(),
    })
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
