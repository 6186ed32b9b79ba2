//! `transfer_out` and `transfer_in`: units leave a segment and arrive at one, once, under the
//! highest token.

use std::sync::Arc;

use domain::{Change, TransferId, Transferred};
use redis::Value;
use stock::StockError;

use super::{fields, status, text};
use crate::{
    sale::{self, Sale, Terms},
    site::{Site, on_both, tested},
};

const TRANSFER_IN: &str = include_str!("../../../../../lua/transfer_in.lua");
const TRANSFER_OUT: &str = include_str!("../../../../../lua/transfer_out.lua");

/// Two that a double cannot tell apart.
const EXACT: u64 = 1 << 53;

impl Sale {
    pub(super) async fn transfer(
        &self,
        script: &str,
        segment: u16,
        id: TransferId,
        units: u64,
        token: u64,
    ) -> redis::RedisResult<Value> {
        let names = self.names(segment);
        self.try_eval(
            script,
            &[&names.stock, &names.decisions, &names.outbox],
            |cmd| {
                cmd.arg(&id.as_bytes()[..])
                    .arg(id.to_string())
                    .arg(units)
                    .arg(token)
                    .arg(self.segment(segment).to_string());
            },
        )
        .await
    }

    /// `UNITS AVAILABLE`, or the refusal.
    async fn transferred(
        &self,
        script: &str,
        segment: u16,
        id: TransferId,
        units: u64,
        token: u64,
    ) -> String {
        let reply = self
            .transfer(script, segment, id, units, token)
            .await
            .unwrap();
        match status(&reply).as_str() {
            "ok" => {
                assert_eq!(
                    text(&fields(&reply)[4]),
                    self.dump(segment).await.stock["last"]
                );
                format!("{} {}", text(&fields(&reply)[2]), text(&fields(&reply)[3]))
            }
            "fenced" => format!("fenced {}", text(&fields(&reply)[2])),
            other => other.to_owned(),
        }
    }
}

#[tested(on_both)]
async fn transfer_out_moves_free_units_and_no_more(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(9, 1)).await;
    sale.take(0, &[&sale.row(&sale.buyer_at(0, 0), "k", 2)])
        .await;
    let [first, second, third] = [(); 3].map(|()| TransferId::random());
    let table = [
        ("all of what is asked for", first, 3, 5, "3 4"),
        ("a repeat says what left then", first, 3, 5, "3 4"),
        ("whatever it requests", first, 99, 5, "3 4"),
        ("as much as there is", second, 99, 5, "4 0"),
        ("nothing, where nothing is", third, 1, 5, "0 0"),
        ("and that permanently", third, 1, 5, "0 0"),
    ];
    for (what, id, asked, token, expected) in table {
        let before = sale.dump(0).await;
        let known = before.decisions.contains_key(&id.as_bytes()[..]);
        assert_eq!(
            sale.transferred(TRANSFER_OUT, 0, id, asked, token).await,
            expected,
            "{what}"
        );
        let after = sale.dump(0).await;
        if known {
            assert_eq!(after, before, "{what}");
        } else {
            let units = before.available() - after.available();
            assert_eq!(
                sale.last_change(0).await,
                Change::TransferredOut(Transferred { id, units, token })
            );
            assert_eq!(after.decisions[&id.as_bytes()[..]], format!("O{units}"));
            assert_eq!(
                (after.outbox, &*after.stock["fence"]),
                (before.outbox + 1, "5")
            );
        }
    }
    let came = TransferId::random();
    assert_eq!(sale.transferred(TRANSFER_IN, 0, came, 1, 5).await, "1 1");
    assert_eq!(
        sale.transferred(TRANSFER_OUT, 0, third, 1, 5).await,
        "0 1",
        "a unit that came later does not leave by an old request"
    );
}

#[tested(on_both)]
async fn transfer_in_arrives_once(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 1)).await;
    let [first, second] = [(); 2].map(|()| TransferId::random());
    for (what, id, units, token, expected) in [
        ("units arrive", first, 4, 7, "4 5"),
        ("a repeat says what arrived then", first, 9, 7, "4 5"),
        ("others arrive, too", second, 2, 8, "2 7"),
        (
            "a late repeat is no news, and not refused",
            first,
            4,
            7,
            "4 7",
        ),
    ] {
        let before = sale.dump(0).await;
        let known = before.decisions.contains_key(&id.as_bytes()[..]);
        assert_eq!(
            sale.transferred(TRANSFER_IN, 0, id, units, token).await,
            expected,
            "{what}"
        );
        if known {
            assert_eq!(sale.dump(0).await, before, "{what}");
        } else {
            assert_eq!(
                sale.last_change(0).await,
                Change::TransferredIn(Transferred { id, units, token })
            );
            assert_eq!(
                sale.dump(0).await.decisions[&id.as_bytes()[..]],
                format!("I{units}")
            );
        }
    }
    sale.take(0, &[&sale.row(&sale.buyer_at(0, 0), "k", 7)])
        .await;
}

#[tested(on_both)]
async fn a_lower_token_is_refused_whatever_its_length(site: Arc<Site>) {
    for script in [TRANSFER_OUT, TRANSFER_IN] {
        let sale = sale::open(&site, Terms::new(99, 1)).await;
        let mut fence = 0;
        for token in [
            9,
            8,
            10,
            9,
            100,
            99,
            20,
            EXACT,
            EXACT + 1,
            EXACT,
            1 << 52,
            u64::MAX - 1,
            u64::MAX,
            u64::MAX - 1,
            2,
            u64::MAX,
        ] {
            let before = sale.dump(0).await;
            let moved = sale
                .transferred(script, 0, TransferId::random(), 1, token)
                .await;
            if token < fence {
                assert_eq!(moved, format!("fenced {fence}"), "{token}");
                assert_eq!(sale.dump(0).await, before);
            } else {
                assert!(moved.starts_with("1 "), "{token} after {fence}: {moved}");
                fence = token;
            }
            assert_eq!(sale.dump(0).await.stock["fence"], fence.to_string());
        }
    }
    let sale = sale::open(&site, Terms::new(9, 1)).await;
    let (key, id) = (sale.segment(0), TransferId::random());
    assert_eq!(
        sale.stock
            .transfer_out(&key, id, 2, EXACT + 1)
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        sale.stock.transfer_out(&key, id, 2, 1).await.unwrap(),
        2,
        "a done transfer stays done, whatever the token"
    );
    for refused in [
        sale.stock
            .transfer_out(&key, TransferId::random(), 1, EXACT)
            .await,
        sale.stock
            .transfer_in(&key, TransferId::random(), 1, EXACT)
            .await,
        sale.stock
            .halt(&key, EXACT, stock::OldMemory::Keep)
            .await
            .map(|_| 0),
    ] {
        assert!(
            matches!(&refused, Err(StockError::Fenced { segment, fence }) if *segment == key && *fence == EXACT + 1),
            "{refused:?}"
        );
    }
}

#[tested(on_both)]
async fn transfers_refuse_before_they_write(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 1)).await;
    for script in [TRANSFER_OUT, TRANSFER_IN] {
        assert_eq!(
            sale.transferred(script, 1, TransferId::random(), 1, 9)
                .await,
            "missing"
        );
    }
    assert!(
        !sale.has_key(&sale.names(1).stock).await,
        "a segment that is missing is not made by a transfer"
    );
    let missing = sale
        .stock
        .transfer_in(&sale.segment(1), TransferId::random(), 1, 9)
        .await;
    assert!(
        matches!(missing, Err(StockError::Missing(_))),
        "{missing:?}"
    );
}

#[tested(on_both)]
async fn units_that_arrive_are_announced_and_units_that_leave_wake_the_recorder(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 1)).await;
    let (mut returned, mut outbox) = (
        sale.listen("stockade:returned", 0).await,
        sale.listen("stockade:outbox", 0).await,
    );
    let name = sale.segment(0).to_string();
    for script in [TRANSFER_OUT, TRANSFER_IN] {
        let last = sale.dump(0).await.stock["last"].parse().unwrap();
        sale.trim(0, last).await;
        for _ in 0..2 {
            sale.transfer(script, 0, TransferId::random(), 1, 1)
                .await
                .unwrap();
        }
        assert_eq!(outbox.next().await, name);
    }
    assert_eq!(
        [returned.next().await, returned.next().await],
        [format!("{name} 3"), format!("{name} 4")]
    );
    sale.set_state(domain::ItemState::Paused, 2).await.unwrap();
    assert_eq!(
        outbox.next().await,
        name,
        "the next message is that of another change: the woken recorder reads on"
    );
}

#[tested(on_both)]
async fn what_leaves_one_segment_arrives_at_the_other(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let (id, ann) = (TransferId::random(), sale.buyer_at(1, 0));
    let moved = sale
        .stock
        .transfer_out(&sale.segment(0), id, 9, 3)
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            sale.stock
                .transfer_in(&sale.segment(1), id, moved, 3)
                .await
                .unwrap(),
            2
        );
    }
    assert_eq!(
        sale.dumps()
            .await
            .iter()
            .map(sale::Dump::available)
            .collect::<Vec<_>>(),
        [0, 4]
    );
    assert!(sale.sells(&ann, "k", 4).await);
}
