//! The end of a spillover whose round home has lost, and the reopening of one that was given up.

use std::sync::Arc;

use domain::BuyerId;
use redis::Value;

use super::{MARGIN_MS, Row, decided, fields, pack, status, text};
use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both, tested},
};

const REOPEN_SPILLOVER: &str = include_str!("../../../../../lua/reopen_spillover.lua");

impl Sale {
    async fn reopen(&self, segment: u16, deadline_ms: i64, row: &Row) -> Value {
        let names = self.names(segment);
        let keys = [
            &names.stock,
            &names.decisions,
            &names.buyers,
            &names.spillovers,
        ];
        self.eval(REOPEN_SPILLOVER, &keys, |cmd| {
            cmd.arg(deadline_ms)
                .arg(&row.id.as_bytes()[..])
                .arg(row.buyer.as_str())
                .arg(row.units)
                .arg(pack(row));
        })
        .await
    }

    /// Declined at home, and given up in this round.
    async fn give_up(&self, buyer: &BuyerId, key: &str, round: &str, deadline_ms: i64) -> Row {
        let row = self.row(buyer, key, 1);
        let rows = std::slice::from_ref(&row);
        let declined = self.reserve_home(0, deadline_ms, rows).await;
        assert_eq!(decided(&declined, 1).1, ["d"]);
        self.finish_spillover(0, deadline_ms, rows, &[("N", round)])
            .await;
        row
    }
}

#[tested(on_both)]
async fn finish_spillover_ends_a_round_that_home_has_lost(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2)).await;
    let (ann, deadline) = (sale.buyer_at(0, 0), sale.now_ms().await + 60_000);
    sale.begin_spillover(&ann, "k", 1, deadline).await;
    let row = sale.row(&ann, "k", 1);
    // All have declined round 1, and a failover has lost what home declined in it.
    let finish = async |place: &str| {
        let ends = [("S", place)];
        sale.finish_spillover(0, deadline, &[&row], &ends).await
    };
    assert_eq!(text(&fields(&finish("1").await)[2]), "1");
    let dump = sale.dump(0).await;
    assert_eq!(dump.decision(row.id).unwrap(), format!("S1:{deadline}"));
    assert_eq!(dump.buyers.get(ann.as_str()), None);
}

#[tested(on_both)]
async fn reopen_spillover_begins_the_next_round(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 2).limit(2)).await;
    let deadline = sale.now_ms().await + 60_000;
    for (n, (round, next)) in [("", 1), ("0", 1), ("4", 5)].into_iter().enumerate() {
        let ann = sale.buyer_at(0, n);
        let row = sale.give_up(&ann, "k", round, deadline).await;
        for (until, latest) in [(deadline - 9, deadline), (deadline + 9, deadline)] {
            let reply = sale.reopen(0, until, &row).await;
            let declined = format!("D1:{latest}:{next}");
            assert_eq!(status(&reply), "ok");
            assert_eq!(
                text(&fields(&reply)[2]),
                declined,
                "a repeat changes nothing"
            );
            let dump = sale.dump(0).await;
            assert_eq!(dump.decision(row.id).unwrap(), declined);
            assert_eq!(dump.buyers[ann.as_str()], 1, "counted once");
            assert!(
                dump.spillovers
                    .values()
                    .any(|due| *due == latest.to_string()),
                "due as any that is pending"
            );
        }
        // It may be given up again, and the worker has listed the first one.
        sale.finish_spillover(0, deadline, &[&row], &[("N", &next.to_string())])
            .await;
        let reply = sale.reopen(0, deadline + 5, &row).await;
        let declined = format!("D1:{}:{}", deadline + 5, next + 1);
        assert_eq!(text(&fields(&reply)[2]), declined);
        assert_eq!(
            sale.forget_spillover(0, &[(&row, deadline + MARGIN_MS)])
                .await,
            0
        );
    }
}

#[tested(on_both)]
async fn reopen_spillover_changes_nothing_else(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2).limit(1)).await;
    let deadline = sale.now_ms().await + 60_000;
    let [ann, bob, cat] = [0, 1, 2].map(|n| sale.buyer_at(0, n));
    let taken = sale.row(&ann, "taken", 1);
    sale.reserve_home(0, deadline, &[&taken]).await;
    sale.begin_spillover(&bob, "declined", 1, deadline).await;
    let declined = sale.row(&bob, "declined", 1);
    let given_up = sale.give_up(&cat, "one", "", deadline).await;
    // Another order of hers is counted meanwhile.
    sale.begin_spillover(&cat, "two", 1, deadline).await;
    let more = Row {
        units: 2,
        ..given_up.clone()
    };
    let before = sale.dump(0).await;
    let unknown = sale.row(&bob, "unknown", 1);
    for (row, found) in [
        (&taken, "T1x"),
        (&declined, "D1:"),
        (&given_up, "N1:"),
        (&more, "N1:"),
        (&unknown, ""),
    ] {
        let reply = sale.reopen(0, deadline, row).await;
        assert!(text(&fields(&reply)[2]).starts_with(found), "{reply:?}");
    }
    let late = sale.reopen(0, sale.now_ms().await - 100, &given_up).await;
    assert_eq!(status(&late), "late");
    assert_eq!(sale.dump(0).await, before);
    let reply = sale.reserve_next(1, deadline, &[given_up]).await;
    assert_eq!(decided(&reply, 1).1.len(), 1);
}
