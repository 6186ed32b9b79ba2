//! Measures what the drop of an old sale costs the orders of another one:
//! `cargo run --release -p reconciler --example drop [ORDERS] [sqlite|postgres] [RATE]`.
//!
//! Starts its own servers. It places and records the orders of an old sale, lets their holds
//! expire, closes and archives it. Then it places orders of a running sale at a fixed rate, open
//! loop, and waits for each until it is recorded: first in quiet, then beside the drop, until the
//! drop has ended. It prints both distributions in milliseconds, and how long the drop took.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, Quantity, Window,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use ledger::{Changed, ItemChange, Ledger};
use lock::RedisLockBuilder;
use reconciler::{Archived, Dropped, ReconcilerSettings, archive_once, drop_once};
use recorder::RecorderSettings;
use stock::{Acknowledge, ItemStock, Outcome, Reservation, Stock, StockSettings};
use testbed::{Postgres, Redis};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

const SEGMENTS: u16 = 8;
const ORDER_CONCURRENCY: usize = 2000;
const QUIET: Duration = Duration::from_secs(20);
/// Units of the running sale: more than any drop leaves time to sell.
const RUNNING_UNITS: usize = 10_000_000;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match measure_all().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure_all() -> Result<()> {
    let argument = |n| std::env::args().nth(n);
    let orders = argument(1).map_or(Ok(500_000), |orders| orders.parse())?;
    let wanted = argument(2);
    let rate: u32 = argument(3).map_or(Ok(200), |rate| rate.parse())?;
    println!(
        "{:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>9}",
        "ledger", "orders", "drop s", "p50", "p99", "highest", "p50", "p99", "highest"
    );
    println!("{:>28} {:>26} {:>26}", "", "in quiet, ms", "beside it, ms");
    for kind in ["sqlite", "postgres"] {
        if wanted.as_deref().is_none_or(|wanted| wanted == kind) {
            measure(kind, orders, rate).await?;
        }
    }
    Ok(())
}

async fn measure(kind: &str, orders: usize, rate: u32) -> Result<()> {
    let scene = Scene::open(kind).await?;
    let old = scene.offer("old", orders, 1).await?;
    let running = scene.offer("running", RUNNING_UNITS, 3600).await?;
    let reconciler = scene.reconcile()?;
    place(&scene.stock.item(&old), &old, orders).await?;
    scene.archive(&old).await?;
    let sold = scene.stock.item(&running);
    let quiet = CancellationToken::new();
    let ends = async {
        tokio::time::sleep(QUIET).await;
        quiet.cancel();
    };
    let (before, ()) = tokio::join!(sell(&sold, &running, "quiet", rate, &quiet), ends);
    let (began, over) = (Instant::now(), CancellationToken::new());
    let drops = async {
        let folder = tempfile::tempdir()?;
        let dropped = drop_once(
            &*scene.ledger,
            &old.id,
            Timestamp::MAX,
            "bench",
            folder.path(),
        )
        .await;
        over.cancel();
        Ok::<_, Box<dyn Error + Send + Sync>>((dropped?, began.elapsed()))
    };
    let (beside, dropped) = tokio::join!(sell(&sold, &running, "beside", rate, &over), drops);
    let (dropped, took) = dropped?;
    let is_whole = |dropped: &Dropped| matches!(dropped, Dropped::Done { orders: gone, .. } if *gone == orders as u64);
    if !dropped.as_ref().is_some_and(is_whole) {
        return Err(format!("the drop ended otherwise: {dropped:?}").into());
    }
    println!(
        "{kind:>9} {orders:>9} {:>8.1} {} {}",
        took.as_secs_f64(),
        shown(before?),
        shown(beside?)
    );
    scene.close(reconciler, &[running, old]).await
}

/// Places orders at the rate until `end`, each for a buyer of its own. Returns how long each took,
/// from the moment at which it was due, in milliseconds.
async fn sell(
    stock: &Arc<ItemStock>,
    item: &Item,
    key: &'static str,
    rate: u32,
    end: &CancellationToken,
) -> Result<Vec<f64>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    let mut orders = JoinSet::new();
    for n in 0.. {
        let due = tokio::select! {
            due = ticks.tick() => due,
            () = end.cancelled() => break,
        };
        let (stock, item) = (Arc::clone(stock), item.clone());
        orders.spawn(async move {
            place_one(&stock, &item, key, n, Acknowledge::Recorded).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(due.elapsed().as_secs_f64() * 1000.0)
        });
    }
    let mut times = Vec::new();
    while let Some(order) = orders.join_next().await {
        times.push(order??);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The median, the 99th percentile and the highest of sorted times.
fn shown(times: Vec<f64>) -> String {
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        let place = (last as f64 * share).round() as usize;
        times.get(place).copied().unwrap_or_default()
    };
    format!("{:>8.1} {:>8.1} {:>9.1}", at(0.5), at(0.99), at(1.0))
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
            _ => postgres.create_database("drop").await?,
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

    /// Waits until all orders of the item have ended and are recorded, closes it and archives it.
    async fn archive(&self, item: &Item) -> Result<()> {
        let held = async || {
            let rows = self.ledger.segments(&item.id).await?;
            Ok::<_, ledger::LedgerError>(rows.iter().map(|row| row.available).sum::<u64>())
        };
        while held().await? < item.stock {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let change = ItemChange {
            state: Some(ItemState::Closed),
            ..ItemChange::default()
        };
        let changed = self.ledger.change_item(&item.id, &change, None, "bench");
        let Changed::Item(closed) = changed.await? else {
            return Err("the old item cannot be closed".into());
        };
        self.stock.configure(&closed).await?;
        loop {
            let lock = Arc::new(RedisLockBuilder::new(self.redis.url()).build()?);
            let (stock, ledger) = (Arc::clone(&self.stock), Arc::clone(&self.ledger));
            match archive_once(stock, ledger, lock, &item.id, "bench").await? {
                Some(Archived::Done) => return Ok(()),
                None => return Err("the old item is gone".into()),
                Some(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Stops the services and audits the items.
    async fn close(self, reconciler: JoinHandle<()>, items: &[Item]) -> Result<()> {
        self.stop.cancel();
        self.recorder.await?;
        reconciler.await?;
        for item in items {
            let report = audit::full_report(&self.stock, &*self.ledger, &item.id)
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
        new_price: None,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

/// Places an order for one unit for every buyer.
async fn place(stock: &Arc<ItemStock>, item: &Item, orders: usize) -> Result<()> {
    let accepted = Acknowledge::Accepted;
    let placed = stream::iter(0..orders).map(|n| place_one(stock, item, "old", n, accepted));
    placed
        .buffer_unordered(ORDER_CONCURRENCY)
        .collect::<Vec<Result<()>>>()
        .await
        .into_iter()
        .collect()
}

/// Places an order for one unit.
async fn place_one(
    stock: &Arc<ItemStock>,
    item: &Item,
    key: &str,
    n: usize,
    acknowledge: Acknowledge,
) -> Result<()> {
    let buyer = BuyerId::new(format!("{key}-{n}"))?;
    let order = OrderId::derive(&item.id, item.id.tag(), &buyer, &IdempotencyKey::new(key)?);
    let placed = stock.order(Reservation {
        order,
        buyer,
        quantity: Quantity::ONE,
        acknowledge,
        within: Duration::from_secs(60),
    });
    match placed.await? {
        Outcome::Held { .. } => Ok(()),
        outcome => Err(format!("order {n}: {outcome:?}").into()),
    }
}
