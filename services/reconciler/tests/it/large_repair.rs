//! A repair goes through the orders of a sale in pages: it ends however large the sale is, whenever
//! a reconciler dies, and orders are paid meanwhile.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{Change, Entry, EntryId, OrderState, Quantity, TakenOrder};
use jiff::{SignedDuration, Timestamp};
use ledger::SegmentReplay;
use reconciler::ReconcilerSettings;
use stock::Outcome;
use testkit::{Sale, TestEnv, buyer, eventually, in_time, on_both_databases, shared_lock, tested};
use tokio_util::sync::CancellationToken;

use crate::{env::quick, unresponsive::UnresponsiveLedger};

/// Orders in one recorded entry.
const ENTRY: usize = 5_000;

fn in_pages_of(orders: usize) -> ReconcilerSettings {
    ReconcilerSettings {
        repair_page: orders,
        ..quick()
    }
}

/// Records orders of one unit for these buyers, each at home, which Redis has never seen: its
/// segments have another history than the ledger.
async fn only_in_the_ledger(sale: &Sale, buyers: usize) {
    let segments = sale.segments();
    let mut orders = vec![Vec::new(); segments.len()];
    for n in 0..buyers {
        let buyer = buyer(n);
        orders[usize::from(sale.home(&buyer))].push(TakenOrder {
            id: sale.order_id(&buyer, "key"),
            buyer,
            quantity: Quantity::ONE,
        });
    }
    for (key, orders) in segments.iter().zip(orders) {
        let opened = Change::Opened {
            units: sale.row(key.segment).await.allocated,
            epoch: sale.item.epoch,
        };
        let taken = orders.chunks(ENTRY).map(|orders| Change::Taken {
            price: None,
            expires_at: Timestamp::now() + SignedDuration::from_hours(1),
            orders: orders.to_vec(),
        });
        for (ms, change) in (1..).zip(std::iter::once(opened).chain(taken)) {
            let claim = sale.ledger.claim(std::slice::from_ref(key), 1).await;
            let claim = claim.unwrap().unwrap();
            let entry = Entry {
                id: EntryId { ms, seq: 0 },
                fingerprint: 1,
                change,
            };
            let replay = SegmentReplay {
                row: claim.rows()[0].clone(),
                entries: vec![entry],
            };
            claim.record(vec![replay]).await.unwrap();
        }
    }
}

/// Batches that the segment has got in its repair. `None`: it is not under repair.
async fn restored(sale: &Sale, segment: u16) -> Option<u64> {
    let mut restored = redis::cmd("HGET");
    restored.arg(sale.key("stock", segment)).arg("restored");
    sale.redis(&restored).await
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repair_that_dies_at_any_step_is_repeated_to_its_end(env: &Arc<TestEnv>) {
    const ORDERS: usize = 1_500;
    let sale = env.create(2_000, 3).await;
    only_in_the_ledger(&sale, ORDERS).await;
    for (n, to) in [
        (0, OrderState::Confirmed),
        (1, OrderState::Cancelled),
        (2, OrderState::Expired),
    ] {
        sale.step(sale.order_id(&buyer(n), "key"), to).await;
    }
    let settings = in_pages_of(10);
    for pages in [1, 2, 10, 30, 60] {
        let ledger = UnresponsiveLedger::with_pages(env.ledger().await, pages);
        let reconciler = tokio::spawn(reconciler::run(
            env.stock().await,
            Arc::clone(&ledger) as _,
            shared_lock().await,
            settings.clone(),
            CancellationToken::new(),
        ));
        ledger.until_it_waits_for_a_page().await;
        let mut batches = 0;
        for segment in 0..3 {
            batches += restored(&sale, segment).await.unwrap_or(0);
        }
        assert!(batches >= 1, "after {pages} pages");
        reconciler.abort();
        let journal = sale.journal("repair").await;
        assert!(journal.is_empty(), "ended after {pages}: {journal:?}");
    }
    env.record().await;
    env.reconcile(settings).await;
    sale.comes_to_rest().await;
    assert_eq!(sale.journal("repair").await.len(), 3, "one of each segment");
    for n in (0..ORDERS).step_by(50).chain([1, 2]) {
        let outcome = sale.order(&buyer(n), "key", 1).await;
        let is_as_before = match n {
            1 | 2 => outcome == Outcome::Released,
            _ => matches!(outcome, Outcome::Held { replayed: true, .. }),
        };
        assert!(is_as_before, "order {n}: {outcome:?}");
    }
    let left = 2_000 - ORDERS as u64 + 2;
    assert_eq!(sale.available().await.iter().sum::<u64>(), left);
}

#[tested(on_both_databases(crate::env::run))]
async fn other_sales_go_on_beside_a_repair(env: &Arc<TestEnv>) {
    let broken = env.create(2_000, 2).await;
    only_in_the_ledger(&broken, 1_000).await;
    let other = env.sell(10, 2).await;
    env.record().await;
    let ledger = UnresponsiveLedger::with_pages(env.ledger().await, 20);
    env.reconcile_on(Arc::clone(&ledger) as _, in_pages_of(10))
        .await;
    ledger.until_it_waits_for_a_page().await;
    other.top_up(0, 5).await;
    eventually("the new units", async || {
        other.available().await.iter().sum::<u64>() == 15
    })
    .await;
    assert!(broken.journal("repair").await.is_empty(), "it is under way");
    ledger.give_all_pages();
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_are_paid_while_their_segments_are_restored(env: &Arc<TestEnv>) {
    const ORDERS: usize = 1_000;
    let sale = env.create(2_000, 2).await;
    only_in_the_ledger(&sale, ORDERS).await;
    env.record().await;
    let ledger = UnresponsiveLedger::with_pages(env.ledger().await, 20);
    env.reconcile_on(Arc::clone(&ledger) as _, in_pages_of(10))
        .await;
    ledger.until_it_waits_for_a_page().await;
    let mut paid = 0;
    let mut pay = async || {
        let order = sale.order_id(&buyer(paid), "key");
        in_time("a payment", sale.step(order, OrderState::Confirmed)).await;
        paid += 1;
    };
    // In the middle of the repair.
    for _ in 0..20 {
        pay().await;
    }
    assert!(restored(&sale, 0).await > Some(0), "it is under repair");
    assert!(sale.journal("repair").await.is_empty());
    ledger.give_all_pages();
    // And at every other step of it.
    for _ in 20..ORDERS {
        if !sale.journal("repair").await.is_empty() {
            break;
        }
        pay().await;
    }
    sale.comes_to_rest().await;
    assert!(!sale.journal("repair").await.is_empty());
    assert_eq!(sale.orders().await.get("confirmed"), Some(&(paid as u64)));
}

/// The most memory that this process has had since [`forget_peak`], in KB.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The peak counts from now on: it is what the process has now.
fn forget_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_kb()
}

/// Measures what `docs/performance.md` says of repairs. `ORDERS` and `SEGMENTS` set the size:
/// `cargo test --release -p reconciler --test it a_million -- --ignored --nocapture`.
async fn a_million_orders_are_restored(backend: testkit::Backend) {
    let number = |name, otherwise| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    let (orders, segments) = (number("ORDERS", 1_000_000), number("SEGMENTS", 1));
    crate::env::run(backend, async |env| {
        let sale = env
            .create(orders as u64 + 10, u16::try_from(segments).unwrap())
            .await;
        let started = Instant::now();
        only_in_the_ledger(&sale, orders).await;
        eprintln!("recorded {orders} orders in {:?}", started.elapsed());
        let (started, memory) = (Instant::now(), forget_peak());
        env.record().await;
        env.reconcile(ReconcilerSettings {
            repair_page: ReconcilerSettings::default().repair_page,
            ..quick()
        })
        .await;
        let (mut slowest, mut paid) = (Duration::ZERO, 0);
        while sale.journal("repair").await.len() < segments {
            let step = Instant::now();
            let order = sale.order_id(&buyer(paid), "key");
            sale.step(order, OrderState::Confirmed).await;
            (slowest, paid) = (slowest.max(step.elapsed()), paid + 1);
            assert!(paid < orders, "the repair does not end");
        }
        let grown = peak_kb().saturating_sub(memory) / 1024;
        eprintln!(
            "{orders} orders of {segments} segments restored after {:?}, with {grown} MB of memory; {paid} orders paid \
             meanwhile, the slowest in {slowest:?}",
            started.elapsed()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: it records a million orders"]
async fn a_million_orders_are_restored_on_postgres() {
    a_million_orders_are_restored(testkit::Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: it records a million orders"]
async fn a_million_orders_are_restored_on_sqlite() {
    a_million_orders_are_restored(testkit::Backend::Sqlite).await;
}
