//! `archive_segment`: a segment ends, and no script brings it back.

use std::sync::Arc;

use domain::ItemState;
use redis::Value;
use stock::StockError;

use super::{HALT, INSPECT, fields, status, text};
use crate::{
    sale::{self, Names, Sale, Terms, buyer},
    site::{Site, on_both, tested},
};

const ARCHIVE_SEGMENT: &str = include_str!("../../../../../lua/archive_segment.lua");

impl Sale {
    /// The segment's keys, with the one that replicas confirm.
    fn keys_with_replicated(&self, segment: u16) -> [String; 6] {
        let Names {
            stock,
            decisions,
            buyers,
            outbox,
            spillovers,
        } = self.names(segment);
        let replicated = stock.replacen("stock:", "replicated:", 1);
        [stock, decisions, buyers, outbox, spillovers, replicated]
    }

    async fn archive(&self, segment: u16, token: u64, epoch: u64) -> Value {
        let keys = self.keys_with_replicated(segment);
        self.eval(ARCHIVE_SEGMENT, &keys.each_ref(), |cmd| {
            cmd.arg(token).arg(epoch);
        })
        .await
    }

    /// How many of the segment's keys exist, the one that replicas confirm included.
    async fn keys_left(&self, segment: u16) -> u64 {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(&self.keys_with_replicated(segment));
        self.try_redis(&exists).await.unwrap()
    }

    async fn status_of(&self, script: &str, argument: &str) -> String {
        let names = self.names(0);
        let keys = names.all();
        let reply = self.eval(script, &keys, |cmd| {
            cmd.arg(argument);
        });
        status(&reply.await)
    }

    /// The tests' audit knows no archived segment.
    fn is_not_audited(&self) {
        self.site.sales.lock().unwrap().clear();
    }
}

#[tested(on_both)]
async fn archive_segment_leaves_a_tombstone_once(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "k", 1);
    sale.take(0, &[&row]).await;
    sale.set_state(ItemState::Closed, 2).await.unwrap();
    assert_eq!(sale.keys_left(0).await, 5);
    for (token, epoch) in [(5, 3), (5, 3), (1, 1)] {
        assert_eq!(status(&sale.archive(0, token, epoch).await), "archived");
        assert_eq!(sale.keys_left(0).await, 1);
    }
    assert_eq!(sale.keys_left(1).await, 5, "one segment, one call");
    assert_eq!(sale.status_of(INSPECT, "-").await, "missing");
    let halted = sale.status_of(HALT, "9223372036854775806").await;
    assert_eq!(halted, "fenced", "no repair has a higher token");
    let late = sale.now_ms().await + 10_000;
    let reserved = sale.try_reserve_home(0, late, &[&row]).await;
    assert_eq!(status(&reserved.unwrap()), "missing");
    let reserved = sale.try_reserve_next(0, late, &[&row]).await;
    assert_eq!(status(&reserved.unwrap()), "missing");
    assert_eq!(sale.stock.open(&sale.item).await.unwrap(), 0);
    sale.set_state(ItemState::Open, 1_000_000).await.unwrap();
    assert_eq!(sale.keys_left(0).await, 1);
    sale.is_not_audited();
}

#[tested(on_both)]
async fn archive_segment_refuses_before_it_writes(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 1)).await;
    sale.set_state(ItemState::Closed, 12).await.unwrap();
    let _ = sale.halted(0, 10).await;
    let before = sale.dumps().await;
    let fenced = sale.archive(0, 9, 13).await;
    assert_eq!(
        (status(&fenced), text(&fields(&fenced)[1])),
        ("fenced".into(), "10".into())
    );
    let newer = sale.archive(0, 10, 9).await;
    assert_eq!(
        (status(&newer), text(&fields(&newer)[1])),
        ("newer".into(), "12".into())
    );
    assert_eq!(sale.dumps().await, before);
    assert_eq!(status(&sale.archive(0, 10, 13).await), "archived");
    sale.is_not_audited();
}

#[tested(on_both)]
async fn a_segment_that_never_was_gets_a_tombstone_too(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 1)).await;
    assert_eq!(status(&sale.archive(1, 1, 1).await), "archived");
    assert_eq!(sale.keys_left(1).await, 1);
}

/// It still has the item as open, and would create the segments that it misses.
#[tested(on_both)]
async fn a_process_that_comes_late_sells_nothing_of_an_archived_item(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    sale.stock.archive(&sale.item, 1).await.unwrap();
    let late = site.instance().await;
    assert_eq!(late.open(&sale.item).await.unwrap(), 0, "segments opened");
    let reservation = sale.reservation(&buyer(1), "k", 1);
    let placed = late.item(&sale.item).order(reservation).await;
    assert!(matches!(placed, Err(StockError::Missing(_))), "{placed:?}");
    sale.is_not_audited();
}
