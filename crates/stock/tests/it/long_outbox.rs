//! An outbox that nothing records for a while grows, and every read of it stays bounded: Redis
//! closes the connection of a client to which it owes more than a limit, so a longer reply fails.

use std::sync::Arc;

use domain::BuyerId;
use stock::{InspectionEntries, Stock};
use testbed::Redis;

use crate::{
    sale::{self, Sale, Terms, buyer},
    site::{self, Site},
};

const ORDERS: usize = 50_000;
const ORDERS_PER_ENTRY: usize = 10;
const ENTRIES: usize = ORDERS / ORDERS_PER_ENTRY;

/// Bytes that Redis may owe a client. All entries together have four times as many.
const REPLY_BYTES_MAX: usize = 512 << 10;

async fn fill(sale: &Sale) -> Vec<BuyerId> {
    let buyers: Vec<_> = (0..ORDERS).map(buyer).collect();
    let deadline = sale.now_ms().await + 600_000;
    for crowd in buyers.chunks(ORDERS_PER_ENTRY) {
        sale.take_at(0, crowd, "k", deadline).await;
    }
    buyers
}

async fn bound_replies(sale: &Sale) {
    let limit = format!("normal {REPLY_BYTES_MAX} {REPLY_BYTES_MAX} 1");
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("SET").arg("client-output-buffer-limit").arg(limit);
    let () = sale.redis(&cmd).await;
}

async fn bytes_sent(sale: &Sale) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("stats")).await;
    stats.get("total_net_output_bytes").unwrap()
}

async fn assert_reads_all(stock: &Stock, sale: &Sale, buyers: &[BuyerId]) {
    let segment = sale.segment(0);
    let all = stock.snapshot(&segment, InspectionEntries::All).await;
    let all = all.unwrap();
    assert_eq!(all.entries.len(), ENTRIES + 1, "with that of the opening");
    assert_eq!(all.entries.last().unwrap().id, all.last);
    assert!(
        all.entries
            .is_sorted_by(|before, after| before.id < after.id)
    );
    let taken: i64 = all
        .entries
        .iter()
        .filter_map(|entry| entry.change.effect())
        .sum();
    assert_eq!(-taken, i64::try_from(ORDERS).unwrap());
    let from = all.entries[ENTRIES / 2].id;
    let half = stock.inspect(&segment, InspectionEntries::From(from)).await;
    assert_eq!(half.unwrap().entries, all.entries[ENTRIES / 2..]);
    for buyer in [buyers.first(), buyers.get(ORDERS / 2), buyers.last()] {
        let wanted = sale.order_id(buyer.unwrap(), "k");
        let before = bytes_sent(sale).await;
        let found = sale.at_first().find_unrecorded(wanted).await.unwrap();
        let bytes = bytes_sent(sale).await - before;
        assert_eq!(found.unwrap().order.id, wanted);
        assert!(
            bytes < REPLY_BYTES_MAX as u64 / 2,
            "a look-up has read {bytes} bytes"
        );
    }
}

#[tokio::test]
async fn a_long_outbox_is_read_in_bounded_replies() {
    let server = Redis::start().await.unwrap();
    let site = Site::at(server.url(), vec![server.url()]).await;
    site::run(site, async |site: Arc<Site>| {
        let sale = sale::open(&site, Terms::new(ORDERS as u64, 1)).await;
        let buyers = fill(&sale).await;
        bound_replies(&sale).await;
        assert_reads_all(&sale.stock, &sale, &buyers).await;
        let unbounded = redis::cmd("CONFIG")
            .arg("SET")
            .arg("client-output-buffer-limit")
            .arg("normal 0 0 0")
            .to_owned();
        let () = sale.redis(&unbounded).await;
    })
    .await;
}

#[tokio::test]
async fn an_outbox_that_is_trimmed_while_it_is_read_is_read_without_a_gap() {
    let server = Redis::start().await.unwrap();
    let site = Site::at(server.url(), vec![server.url()]).await;
    site::run(site, async |site: Arc<Site>| {
        let sale = sale::open(&site, Terms::new(ORDERS as u64, 1)).await;
        fill(&sale).await;
        let segment = sale.segment(0);
        let all = sale.stock.snapshot(&segment, InspectionEntries::All).await;
        let all = all.unwrap().entries;
        let trimmer = tokio::spawn({
            let (sale, checkpoints) = (Arc::clone(&sale), all.clone());
            async move {
                for checkpoint in checkpoints.iter().step_by(1000) {
                    sale.trim(0, checkpoint.id).await;
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        });
        while !trimmer.is_finished() {
            let read = sale.stock.snapshot(&segment, InspectionEntries::All).await;
            let read = read.unwrap().entries;
            assert_eq!(read, all[all.len() - read.len()..], "without a gap");
        }
        trimmer.await.unwrap();
    })
    .await;
}
