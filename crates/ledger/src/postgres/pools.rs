//! Tests of the pools: what waits for a connection, and what does not.

use std::time::Duration;

use domain::{ItemId, OrderId, SegmentKey};

use super::{AUDIT_CONNECTIONS, plans::open};
use crate::{OrderLife, Reading, Recording};

const BRIEF: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_found_while_audits_have_all_of_their_connections() {
    let ledger = open(1).await;
    let mut busy = Vec::new();
    for _ in 0..AUDIT_CONNECTIONS {
        busy.push(ledger.audits.acquire().await.unwrap());
    }
    let vase: ItemId = "vase".parse().unwrap();
    let brief = std::time::Duration::from_millis(500);
    let sums = tokio::time::timeout(brief, ledger.totals(&vase)).await;
    assert!(sums.is_err(), "they wait for their own");
    let order = ledger.order(OrderId::from_bytes([1; 16])).await;
    assert!(order.unwrap().is_none());
    drop(busy);
    assert!(ledger.totals(&vase).await.unwrap().is_none());
    assert!(ledger.journal(&vase, 1).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_reads_delays_no_step_and_no_recording() {
    let ledger = open(1).await;
    // Every reader waits for a slow one.
    let mut busy = Vec::new();
    for pool in [&ledger.reads, &ledger.lists, &ledger.audits] {
        for _ in 0..pool.options().get_max_connections() {
            busy.push(pool.acquire().await.unwrap());
        }
    }
    let order = OrderId::from_bytes([1; 16]);
    let waits = tokio::time::timeout(BRIEF, ledger.look_up_order(order)).await;
    assert!(waits.is_err(), "reads wait for reads");
    let vase: ItemId = "vase".parse().unwrap();
    let key = SegmentKey {
        item: vase.clone(),
        segment: 0,
    };
    assert!(ledger.order(order).await.unwrap().is_none());
    assert!(ledger.transition(&[]).await.unwrap().is_empty());
    assert!(ledger.claim(&[key], 1).await.unwrap().is_none());
    assert!(ledger.segments(&vase).await.unwrap().is_empty());
    // And the reverse: steps that wait for each other delay no reader.
    drop(busy);
    let step = ledger.pool.acquire().await.unwrap();
    assert!(ledger.look_up_order(order).await.unwrap().is_none());
    assert!(ledger.totals(&vase).await.unwrap().is_none());
    drop(step);
}
