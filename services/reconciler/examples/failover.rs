//! Measures how long the repair after a failover to a lagging replica takes, during a rush on an
//! item that has already sold many units: `cargo run --release -p reconciler --example failover
//! [ORDERS]`.
//!
//! Starts its own servers: a Redis server with a replica under three sentinels, PostgreSQL, a
//! recorder and a reconciler with the settings of `serve`. The clock runs from the promotion until
//! every segment is repaired and sells. The repair restores every order that the ledger has, so its
//! duration grows with the number of orders. Exit status 1 if it takes longer than ten seconds, or
//! if an acknowledged order is lost.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, Quantity, Window,
};
use futures::{StreamExt, stream};
use ledger::Ledger;
use lock::RedisLockBuilder;
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use stock::{Acknowledge, ItemStock, Outcome, Reservation, Stock, StockError, StockSettings};
use testbed::{Postgres, Redis, RedisSentinel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SEGMENTS: u16 = 4;
const BUYER_CONCURRENCY: usize = 256;
const LAG: Duration = Duration::from_millis(300);
const REPAIR_TIME_MAX: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match measure().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Result<bool> {
    let before = std::env::args()
        .nth(1)
        .map_or(Ok(100_000), |orders| orders.parse())?;
    let (mut group, postgres, locks) = (
        RedisSentinel::start(1).await?,
        Postgres::start().await?,
        Redis::start().await?,
    );
    let ledger = ledger::connect(&postgres.create_database("failover").await?, 8).await?;
    ledger.migrate().await?;
    let stock = Stock::connect(StockSettings::new(group.url())).await?;
    let item = item()?;
    ledger.create_item(&item).await?;
    stock.open(&item).await?;
    let stop = CancellationToken::new();
    let recorder = tokio::spawn(recorder::run(
        Arc::clone(&stock),
        Arc::clone(&ledger),
        RecorderSettings::default(),
        stop.clone(),
    ));
    let lock = Arc::new(RedisLockBuilder::new(locks.url()).build()?);
    let reconciler = tokio::spawn(reconciler::run(
        Arc::clone(&stock),
        Arc::clone(&ledger),
        lock,
        ReconcilerSettings::default(),
        stop.clone(),
    ));
    let crowd = Arc::new(Crowd {
        stock: stock.item(&item),
        item: item.clone(),
        next: 0.into(),
        acknowledged: Mutex::default(),
    });
    stream::iter(0..before)
        .for_each_concurrent(2000, |_| crowd.buy())
        .await;
    group.servers()[0].is_followed_by(1).await?;

    let rush = crowd.rush(&stop);
    let (begun, sold) = (Instant::now(), crowd.sold());
    tokio::time::sleep(Duration::from_secs(2)).await;
    group.servers()[1].lag().await?;
    tokio::time::sleep(LAG).await;
    let rate = (crowd.sold() - sold) as f64 / begun.elapsed().as_secs_f64();
    let (old, killed) = (group.kill_master().await?, Instant::now());
    group.servers()[1 - old].catch_up().await?;
    group.successor_of(old).await?;
    let promoted = Instant::now();
    until(async || is_repaired(&stock, &*ledger, &item.id).await).await;
    let healed = promoted.elapsed();
    let (again, sold) = (Instant::now(), crowd.sold());
    until(async || crowd.sold() > sold + BUYER_CONCURRENCY).await;
    println!("sold before the rush        {before:>10}");
    println!("rush, orders/s              {rate:>10.0}");
    println!(
        "promoted, s after the kill  {:>10.2}",
        (promoted - killed).as_secs_f64()
    );
    println!("healed, s after promotion   {:>10.2}", healed.as_secs_f64());
    println!(
        "{BUYER_CONCURRENCY} orders recorded, s later {:>8.2}",
        again.elapsed().as_secs_f64()
    );
    stop.cancel();
    rush.join_all().await;
    recorder.await?;
    reconciler.await?;
    let (acknowledged, lost) = crowd.lost(&*ledger).await?;
    println!("acknowledged, lost          {acknowledged:>10} {lost}");
    stock.shutdown().await;
    Ok(healed <= REPAIR_TIME_MAX && lost == 0)
}

/// Buyers, each of whom orders one unit and repeats the request until it is answered.
struct Crowd {
    stock: Arc<ItemStock>,
    item: Item,
    next: std::sync::atomic::AtomicUsize,
    acknowledged: Mutex<Vec<OrderId>>,
}

impl Crowd {
    fn sold(&self) -> usize {
        self.acknowledged
            .lock()
            .map_or(0, |acknowledged| acknowledged.len())
    }

    fn rush(self: &Arc<Self>, stop: &CancellationToken) -> JoinSet<()> {
        let mut rush = JoinSet::new();
        for _ in 0..BUYER_CONCURRENCY {
            let (crowd, stop) = (Arc::clone(self), stop.clone());
            rush.spawn(async move {
                while !stop.is_cancelled() {
                    crowd.buy().await;
                }
            });
        }
        rush
    }

    async fn buy(&self) {
        let n = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Ok(buyer) = BuyerId::new(format!("buyer-{n}")) else {
            return;
        };
        let Ok(key) = IdempotencyKey::new("key") else {
            return;
        };
        let order = OrderId::derive(&self.item.id, self.item.id.tag(), &buyer, &key);
        for _ in 0..20 {
            let ask = Reservation {
                order,
                buyer: buyer.clone(),
                quantity: Quantity::ONE,
                acknowledge: Acknowledge::Recorded,
                within: Duration::from_secs(2),
            };
            match self.stock.order(ask).await {
                Ok(Outcome::Held { recorded: true, .. }) => {
                    if let Ok(mut acknowledged) = self.acknowledged.lock() {
                        acknowledged.push(order);
                    }
                    return;
                }
                // A repeat finds the recorded decision. The end of the run checks that the ledger
                // has all acknowledged orders.
                Ok(_) => return,
                Err(StockError::OutcomeUnknown(_)) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Number of acknowledged orders, and how many of these the ledger does not have.
    async fn lost(&self, ledger: &dyn Ledger) -> Result<(usize, usize)> {
        let acknowledged =
            std::mem::take(&mut *self.acknowledged.lock().map_err(|_| "a buyer panicked")?);
        let mut lost = 0;
        for orders in acknowledged.chunks(1000) {
            lost += orders.len() - ledger.recorded_among(orders).await?.len();
        }
        Ok((acknowledged.len(), lost))
    }
}

async fn is_repaired(stock: &Stock, ledger: &dyn Ledger, id: &ItemId) -> bool {
    let snapshots = audit::snapshots(stock, ledger, id)
        .await
        .unwrap_or_default();
    let recovered = |snapshot: &audit::Snapshot| {
        snapshot
            .inspection
            .as_ref()
            .is_some_and(|inspection| inspection.repairing.is_none())
            && snapshot.is_anchored()
            && snapshot.drift() == 0
    };
    !snapshots.is_empty() && snapshots.iter().all(recovered)
}

fn item() -> Result<Item> {
    Ok(Item {
        id: ItemId::new("vase")?,
        title: "Vase".into(),
        stock: 10_000_000,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: Some(Quantity::ONE),
        segments: SEGMENTS,
        window: Window::default(),
        hold_seconds: 3600,
        max_hold_seconds: 3600,
        max_per_order: None,
        waves: Vec::new(),
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    })
}

async fn until(mut happened: impl AsyncFnMut() -> bool) {
    while !happened().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
