//! Orders per second of the stock crate alone, on one Redis, to be held against what `redis-benchmark` gets from the bare script.
//!
//! ```text
//! cargo run --release -p stock --example rate -- --redis redis://127.0.0.1:6379 --orders 1000000 --concurrency 512 --segments 1
//! ```
//!
//! Closed loop: each of the `concurrency` buyers orders again when it has its answer. Every order has a buyer of its own and one unit,
//! and all are accepted. `--accept recorded` waits for a recorder that writes nothing; `--threads` is for the client alone.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it prints, and it may stop at whatever goes wrong")]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use domain::{BuyerId, Change, Durability, EntryId, IdempotencyKey, Item, ItemId, ItemState, OrderId, Quantity, SegmentKey, Window};
use stock::{Acknowledge, Ask, InspectionEntries, ItemStock, Outcome, RecordedEntries, Stock, StockSettings};
use tokio::task::JoinSet;

struct Arguments {
    redis: String,
    orders: usize,
    concurrency: usize,
    segments: u16,
    accept: Acknowledge,
    batch_max: usize,
    threads: usize,
}

impl Arguments {
    fn read() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut given: HashMap<&str, &str> =
            words.chunks(2).map(|pair| (pair[0].as_str(), pair.get(1).map_or("", String::as_str))).collect();
        let mut take = |name: &str, default: &'static str| given.remove(name).unwrap_or(default).to_owned();
        let arguments = Self {
            redis: take("--redis", "redis://127.0.0.1:6379"),
            orders: take("--orders", "500000").parse().expect("--orders: a number"),
            concurrency: take("--concurrency", "512").parse().expect("--concurrency: a number"),
            segments: take("--segments", "1").parse().expect("--segments: a number"),
            accept: match &*take("--accept", "accepted") {
                "accepted" => Acknowledge::Accepted,
                "recorded" => Acknowledge::Recorded,
                other => panic!("--accept: accepted or recorded, not {other:?}"),
            },
            batch_max: take("--batch-max", "256").parse().expect("--batch-max: a number"),
            threads: take("--threads", "1").parse().expect("--threads: a number"),
        };
        assert!(given.is_empty(), "unknown: {given:?}");
        arguments
    }

    fn item(&self) -> Item {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        Item {
            id: ItemId::new(format!("rate-{now}")).unwrap(),
            title: "Rate".into(),
            stock: self.orders as u64,
            price_cents: 1,
            currency: "EUR".into(),
            limit_per_buyer: Some(Quantity::ONE),
            segments: self.segments,
            window: Window::default(),
            hold_seconds: 600,
            durability: Durability::Accepted,
            state: ItemState::Open,
            epoch: 1,
            version: 1,
        }
    }

    /// Made beforehand: deriving ids is the service's work and not the stock's.
    fn asks(&self, item: &Item) -> Vec<Ask> {
        let (tag, key) = (item.id.tag(), IdempotencyKey::new("k").unwrap());
        let ask = |n: usize| {
            let buyer = BuyerId::new(format!("buyer-{n}")).unwrap();
            let order = OrderId::derive(&item.id, tag, &buyer, &key);
            Ask { order, buyer, quantity: Quantity::ONE, acknowledge: self.accept, within: Duration::from_secs(10) }
        };
        (0..self.orders).map(ask).collect()
    }
}

fn main() {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.threads).enable_all().build().unwrap();
    runtime.block_on(run(arguments));
}

async fn run(arguments: Arguments) {
    let stock = Stock::connect(StockSettings { batch_max: arguments.batch_max, ..StockSettings::new(&arguments.redis) }).await.unwrap();
    let item = arguments.item();
    stock.open(&item).await.unwrap();
    let asks = Arc::new(arguments.asks(&item));
    let mut recorders = JoinSet::new();
    if arguments.accept == Acknowledge::Recorded {
        for segment in 0..item.segments {
            recorders.spawn(tell(Arc::clone(&stock), SegmentKey { item: item.id.clone(), segment }));
        }
    }
    let begin = Instant::now();
    let accepted = order_all(stock.item(&item), asks, arguments.concurrency).await;
    let took = begin.elapsed();
    report(&stock, &item, accepted, took).await;
}

async fn order_all(item: Arc<ItemStock>, asks: Arc<Vec<Ask>>, concurrency: usize) -> u64 {
    let (mut buyers, next) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..concurrency {
        let (item, asks, next) = (Arc::clone(&item), Arc::clone(&asks), Arc::clone(&next));
        buyers.spawn(async move {
            let mut held = 0;
            while let Some(ask) = asks.get(next.fetch_add(1, Ordering::Relaxed)) {
                held += u64::from(matches!(item.order(ask.clone()).await.unwrap(), Outcome::Held { replayed: false, .. }));
            }
            held
        });
    }
    buyers.join_all().await.into_iter().sum()
}

/// A recorder that records nothing, but says so.
async fn tell(stock: Arc<Stock>, segment: SegmentKey) {
    let mut checkpoint: Option<EntryId> = None;
    loop {
        let entries = stock.read_outbox(&segment, checkpoint, 1000).await.unwrap();
        match entries.last() {
            Some(last) if Some(last.id) != checkpoint => {
                let (last, taken) = (last.id, entries.iter().map(|entry| (entry.id, entry.fingerprint)).collect());
                let recorded = RecordedEntries { segment: segment.clone(), entries: taken, rejected: Vec::new() };
                stock.publish_recorded(&recorded).await.unwrap();
                checkpoint = Some(last);
            }
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Drift is what the counters and the outboxes do not explain. It must be 0.
async fn report(stock: &Stock, item: &Item, accepted: u64, took: Duration) {
    let (mut taken, mut batches, mut available) = (0, 0, 0);
    for segment in (0..item.segments).map(|segment| SegmentKey { item: item.id.clone(), segment }) {
        available += stock.inspect(&segment, InspectionEntries::None).await.unwrap().available;
        let mut from = None;
        loop {
            let entries = stock.read_outbox(&segment, from, 200).await.unwrap();
            let new = entries.iter().filter(|entry| Some(entry.id) != from);
            let sizes: Vec<u64> = new
                .filter_map(|entry| if let Change::Taken { orders, .. } = &entry.change { Some(orders.len() as u64) } else { None })
                .collect();
            taken += sizes.iter().sum::<u64>();
            batches += sizes.len();
            let last = entries.last().map(|entry| entry.id);
            if last == from {
                break;
            }
            from = last;
        }
    }
    let seconds = took.as_secs_f64();
    println!("accepted    {accepted} of {}", item.stock);
    println!("seconds     {seconds:.3}");
    println!("orders/s    {:.0}", accepted as f64 / seconds);
    println!("mean batch  {:.1} orders in {batches} batches", taken as f64 / batches.max(1) as f64);
    println!("drift       {}", (item.stock as i64 - available as i64 - taken as i64).abs() + (taken as i64 - accepted as i64).abs());
}
