//! `check_home`, `mark_checked`, and who else sets or removes the mark: home's decisions are
//! compared with the ledger, in one history of its server.

use std::sync::Arc;

use redis::Value;

use super::{HALT, Row, column, fields, status, text};
use crate::{
    sale::{self, Names, Sale, Terms},
    site::{Site, on_both, tested},
};

const CHECK_HOME: &str = include_str!("../../../../../lua/check_home.lua");
const MARK_CHECKED: &str = include_str!("../../../../../lua/mark_checked.lua");

impl Sale {
    /// Orders, and whether the ledger says that they have units.
    async fn check_home(&self, segment: u16, history: &str, orders: &[(&Row, bool)]) -> Value {
        let Names {
            stock, decisions, ..
        } = self.names(segment);
        self.eval(CHECK_HOME, &[&stock, &decisions], |cmd| {
            cmd.arg(orders.len()).arg(history);
            column(cmd, orders.iter().map(|(row, _)| &row.id.as_bytes()[..]));
            column(cmd, orders.iter().map(|(_, units)| u8::from(*units)));
        })
        .await
    }

    async fn mark_checked(&self, segment: u16, token: u64, history: &str) -> Value {
        let stock = self.names(segment).stock;
        self.eval(MARK_CHECKED, &[&stock], |cmd| {
            cmd.arg(token).arg(history);
        })
        .await
    }

    /// The mark of the segment. A new one has the history of its server.
    async fn mark(&self, segment: u16) -> Option<String> {
        self.dump(segment).await.stock.get("checked").cloned()
    }

    async fn halt_dropping(&self, segment: u16, token: u64, memory: &str) {
        let names = self.names(segment);
        let keys = names.all();
        let halted = self.eval(HALT, &keys, |cmd| {
            column(cmd, [&*token.to_string(), memory])
        });
        assert_eq!(status(&halted.await), "halted");
    }

    /// The order, whose home is segment 1, takes its unit at segment 0, and home knows it.
    async fn takes_elsewhere(&self, row: &Row, deadline_ms: i64) {
        let taken = self.continue_spillover(0, &row.buyer, "1", 1, deadline_ms);
        assert_eq!(taken.await, "taken");
        let rows = std::slice::from_ref(row);
        let finished = self.finish_spillover(1, deadline_ms, rows, &[("E", "9:0")]);
        assert_eq!(status(&finished.await), "ok");
    }
}

/// The positions of the orders that home has forgotten.
fn forgotten(reply: &Value) -> Vec<String> {
    assert_eq!(status(reply), "ok");
    fields(reply)[1..].iter().map(text).collect()
}

#[tested(on_both)]
async fn check_home_lists_what_home_has_forgotten(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let [ann, bob, eve] = [0, 1, 2].map(|n| sale.row(&sale.buyer_at(1, n), "1", 1));
    let deadline = sale.now_ms().await + 60_000;
    for row in [&ann, &bob] {
        sale.begin_spillover(&row.buyer, "1", 1, deadline).await;
    }
    sale.takes_elsewhere(&bob, deadline).await;
    let history = sale.mark(1).await.unwrap();
    let check =
        async |orders: &[(&Row, bool)]| forgotten(&sale.check_home(1, &history, orders).await);
    let all = [(&ann, true), (&bob, true), (&eve, true)];
    assert_eq!(check(&all).await, ["2"], "home does not know it");
    let ended = [(&ann, false), (&bob, false), (&eve, false)];
    assert_eq!(check(&ended).await, ["1", "2"], "home still counts it");
    assert!(check(&all[..2]).await.is_empty());
}

#[tested(on_both)]
async fn check_home_reads_one_history_of_a_whole_segment(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let ann = sale.row(&sale.buyer_at(0, 0), "1", 1);
    let history = sale.mark(0).await.unwrap();
    let check = async |segment: u16, history: &str| {
        status(&sale.check_home(segment, history, &[(&ann, true)]).await)
    };
    assert_eq!(check(0, "another").await, "moved");
    assert_eq!(check(2, &history).await, "missing");
    sale.halt_dropping(0, 1, "keep").await;
    assert_eq!(check(0, &history).await, "repairing");
}

#[tested(on_both)]
async fn mark_checked_refuses_lower_tokens_and_other_histories(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let names = sale.names(0);
    let history = sale.mark(0).await.unwrap();
    for (field, value) in [("checked", "old"), ("fence", "9")] {
        let mut set = redis::cmd("HSET");
        set.arg(&names.stock).arg(field).arg(value);
        let _: i64 = sale.try_redis(&set).await.unwrap();
    }
    let mark = async |token: u64, history: &str| {
        let reply = sale.mark_checked(0, token, history).await;
        fields(&reply).iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(mark(8, &history).await, ["fenced", "9"]);
    assert_eq!(mark(10, "another").await, ["moved"]);
    assert_eq!(sale.mark(0).await.as_deref(), Some("old"));
    assert_eq!(mark(10, &history).await, ["marked"]);
    assert_eq!(sale.mark(0).await, Some(history.clone()));
    assert_eq!(
        sale.dump(0).await.stock["fence"],
        "9",
        "the mark takes no fence"
    );
    assert_eq!(status(&sale.mark_checked(2, 10, &history).await), "missing");
    sale.halt_dropping(0, 11, "keep").await;
    assert_eq!(mark(11, &history).await, ["repairing"]);
}

#[tested(on_both)]
async fn a_repair_that_drops_decisions_removes_the_mark(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 3)).await;
    sale.halt_dropping(0, 1, "keep").await;
    assert!(sale.mark(0).await.is_some());
    sale.halt_dropping(0, 2, "drop").await;
    assert_eq!(sale.mark(0).await, None);
    let mut lose = redis::cmd("DEL");
    lose.arg(sale.names(1).decisions);
    let _: i64 = sale.try_redis(&lose).await.unwrap();
    sale.halt_dropping(1, 1, "keep").await;
    assert_eq!(sale.mark(1).await, None);
    sale.lose(2).await;
    sale.halt_dropping(2, 1, "keep").await;
    assert_eq!(sale.mark(2).await, None, "it was created by the repair");
}
