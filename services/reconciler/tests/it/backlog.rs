//! An outbox that grows while nothing records it: each poll reads what is new, and a failover that
//! takes entries back is noticed.

use std::sync::Arc;

use audit::{Outboxes, Snapshot};
use testkit::{Sale, TestEnv, buyer, on_both_databases, tested};

const KEYS: [&str; 5] = ["stock", "decisions", "buyers", "outbox", "spillovers"];
const BACKLOG: usize = 1000;
const POLLS: u64 = 10;

async fn hold(sale: &Arc<Sale>, buyers: std::ops::Range<usize>) {
    let orders = buyers.map(|n| {
        let sale = Arc::clone(sale);
        tokio::spawn(async move { sale.order(&buyer(n), "key", 1).await })
    });
    for order in orders.collect::<Vec<_>>() {
        order.await.unwrap();
    }
}

/// An item whose opening is recorded, and an outbox that nothing records from then on.
async fn with_backlog(env: &Arc<TestEnv>) -> Arc<Sale> {
    let sale = env.sell(2 * BACKLOG as u64, 1).await;
    sale.record_once().await;
    hold(&sale, 0..BACKLOG).await;
    // The last entry is read again by each poll, so it is a small one.
    hold(&sale, BACKLOG..BACKLOG + 1).await;
    sale
}

async fn follow(sale: &Sale, outboxes: &mut Outboxes) -> Vec<Snapshot> {
    let item = &sale.item.id;
    let read = outboxes.snapshots(&sale.stock, &*sale.ledger, item);
    read.await.unwrap()
}

async fn whole(sale: &Sale) -> Vec<Snapshot> {
    let item = &sale.item.id;
    let read = audit::snapshots(&sale.stock, &*sale.ledger, item);
    read.await.unwrap()
}

/// What was followed says the same as what was read as a whole.
async fn assert_same(sale: &Sale, outboxes: &mut Outboxes) {
    let (followed, whole) = (follow(sale, outboxes).await, whole(sale).await);
    assert_eq!(followed.len(), whole.len());
    for (followed, whole) in followed.iter().zip(&whole) {
        assert_eq!(followed.unrecorded, whole.unrecorded);
        assert_eq!(followed.is_anchored(), whole.is_anchored());
        assert_eq!((followed.drift(), whole.drift()), (0, 0));
        let available = |snapshot: &Snapshot| snapshot.inspection.as_ref().unwrap().available;
        assert_eq!(available(followed), available(whole));
    }
}

/// Bytes that the server has sent.
async fn sent(sale: &Sale) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("stats")).await;
    stats.get("total_net_output_bytes").unwrap()
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_poll_reads_what_is_new_and_not_the_backlog(env: &Arc<TestEnv>) {
    let sale = with_backlog(env).await;
    let mut outboxes = Outboxes::default();
    assert_same(&sale, &mut outboxes).await;
    let before = sent(&sale).await;
    let backlog = whole(&sale).await.remove(0).unrecorded;
    let backlog_bytes = sent(&sale).await - before;
    assert_eq!(backlog.taken, BACKLOG as u64 + 1);
    let before = sent(&sale).await;
    for _ in 0..POLLS {
        assert_eq!(follow(&sale, &mut outboxes).await[0].unrecorded, backlog);
    }
    let polled_bytes = sent(&sale).await - before;
    // The process asks the server for its state beside the polls, more often the longer they take.
    assert!(
        polled_bytes < POLLS * backlog_bytes / 2,
        "{POLLS} polls read {polled_bytes} bytes, the backlog once {backlog_bytes}"
    );
    for n in 0..3 {
        let next = BACKLOG + 1 + n;
        hold(&sale, next..next + 1).await;
        assert_same(&sale, &mut outboxes).await;
    }
    // The recorder trims the outbox at its front.
    sale.record_once().await;
    assert_same(&sale, &mut outboxes).await;
    assert_eq!(follow(&sale, &mut outboxes).await[0].unrecorded.entries, 0);
    env.record().await;
}

async fn dump(sale: &Sale) -> Vec<Vec<u8>> {
    let mut dumps = Vec::new();
    for key in KEYS {
        let mut dump = redis::cmd("DUMP");
        dump.arg(sale.key(key, 0));
        dumps.push(sale.redis(&dump).await);
    }
    dumps
}

async fn restore(sale: &Sale, dumps: Vec<Vec<u8>>) {
    for (key, dump) in KEYS.into_iter().zip(dumps) {
        let mut restore = redis::cmd("RESTORE");
        restore
            .arg(sale.key(key, 0))
            .arg(0)
            .arg(dump)
            .arg("REPLACE");
        let () = sale.redis(&restore).await;
    }
}

/// The ledger has none of the lost entries, so nothing but the end of the outbox shows it.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn an_outbox_that_lost_its_end_is_read_again(env: &Arc<TestEnv>) {
    let sale = with_backlog(env).await;
    let mut outboxes = Outboxes::default();
    let replica = dump(&sale).await;
    hold(&sale, 5000..5100).await;
    assert_same(&sale, &mut outboxes).await;
    restore(&sale, replica).await;
    assert_same(&sale, &mut outboxes).await;
    let left = follow(&sale, &mut outboxes).await[0].unrecorded;
    assert_eq!(left.taken, BACKLOG as u64 + 1);
    // Others take its place.
    hold(&sale, 6000..6050).await;
    assert_same(&sale, &mut outboxes).await;
    env.record().await;
}
