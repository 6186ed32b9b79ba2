//! `halt_segment`, `restore_orders`, `adjust`: a segment is made to agree with the ledger, by the
//! highest token, and by no other caller meanwhile.

use std::sync::Arc;

use domain::{BuyerId, Change, EntryId, ItemState, Quantity, TransferId, Window};
use redis::Value;
use stock::{Adjusted, Halted, InspectionEntries, Moved, Restoration, StockError, TransferMemory};

use super::{MARGIN_MS, Row, column, decided, fields, pack, status, text};
use crate::{
    sale::{self, Names, Sale, Terms, is_held},
    site::{Site, on_both, tested},
};

const ADJUST: &str = include_str!("../../../../../lua/adjust.lua");
const HALT_SEGMENT: &str = include_str!("../../../../../lua/halt_segment.lua");
const RESTORE_ORDERS: &str = include_str!("../../../../../lua/restore_orders.lua");

impl Sale {
    async fn halt(&self, segment: u16, token: u64) -> Value {
        self.halt_and(segment, token, "keep").await
    }

    async fn halt_and(&self, segment: u16, token: u64, memory: &str) -> Value {
        self.eval(HALT_SEGMENT, &self.names(segment).all(), |cmd| {
            cmd.arg(token).arg(memory);
        })
        .await
    }

    /// Names or ids, what they get, and packed orders if they are at home here.
    async fn restore(
        &self,
        segment: u16,
        token: u64,
        what: &str,
        rows: &[(&[u8], &str, Option<&Row>)],
    ) -> String {
        let Names {
            stock,
            decisions,
            buyers,
            spillovers,
            ..
        } = self.names(segment);
        let (last, step) = self.next_batch(segment).await;
        let reply = self
            .eval(
                RESTORE_ORDERS,
                &[&stock, &decisions, &buyers, &spillovers],
                |cmd| {
                    cmd.arg(rows.len())
                        .arg(token)
                        .arg(what)
                        .arg(MARGIN_MS)
                        .arg(&last)
                        .arg(step);
                    column(cmd, rows.iter().map(|(name, ..)| *name));
                    column(cmd, rows.iter().map(|(_, value, _)| *value));
                    if what == "decisions" {
                        column(
                            cmd,
                            rows.iter()
                                .map(|(.., row)| row.map(pack).unwrap_or_default()),
                        );
                    }
                },
            )
            .await;
        format!("{} {}", status(&reply), text(&fields(&reply)[1]))
    }

    async fn adjust(
        &self,
        segment: u16,
        token: u64,
        last: &str,
        available: u64,
        epoch: u64,
    ) -> Value {
        let Names { stock, outbox, .. } = self.names(segment);
        let (token, available, epoch, name) = (
            token.to_string(),
            available.to_string(),
            epoch.to_string(),
            self.segment(segment).to_string(),
        );
        let segments = self.item.segments.to_string();
        let restored = (self.next_batch(segment).await.1 - 1).to_string();
        let arguments = [
            &token, last, &available, &epoch, "open", "3", "0", "0", "600000", &segments, &name,
            &restored, "0", "",
        ];
        self.eval(ADJUST, &[&stock, &outbox], |cmd| column(cmd, arguments))
            .await
    }

    /// The last entry of the segment, and which batch comes next.
    async fn next_batch(&self, segment: u16) -> (String, u64) {
        let mut fields = redis::cmd("HMGET");
        fields
            .arg(self.names(segment).stock)
            .arg("last")
            .arg("restored");
        let (last, restored): (Option<String>, Option<u64>) = self.redis(&fields).await;
        (last.unwrap_or_default(), restored.unwrap_or(0) + 1)
    }

    /// Everything that shows whether something was written, but for the streams' contents.
    async fn end_repairing(&self, segment: u16) {
        let dump = self.dump(segment).await;
        if let Some(token) = dump.stock.get("repairing") {
            let adjusted = self
                .adjust(
                    segment,
                    token.parse().unwrap(),
                    &dump.stock["last"],
                    dump.available(),
                    9,
                )
                .await;
            assert_eq!(status(&adjusted), "adjusted");
        }
    }
}

fn shown(reply: &Value) -> Vec<String> {
    fields(reply).iter().map(text).collect()
}

#[tested(on_both)]
async fn the_higher_token_halts(site: Arc<Site>) {
    const EXACT: u64 = 1 << 53;
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    sale.take(0, &[&sale.row(&sale.buyer_at(0, 0), "k", 2)])
        .await;
    let mut fence = 0;
    for token in [
        9,
        9,
        10,
        9,
        100,
        20,
        EXACT + 1,
        EXACT,
        u64::MAX,
        EXACT + 1,
        u64::MAX,
    ] {
        let before = sale.dump(0).await;
        let reply = sale.halt(0, token).await;
        let mut expected = before.clone();
        if token < fence {
            assert_eq!(shown(&reply), ["fenced", &fence.to_string()], "{token}");
        } else {
            fence = token;
            assert_eq!(sale.last_change(0).await, Change::Halted { token });
            let [status, available, entry] = shown(&reply).try_into().unwrap();
            assert_eq!((&*status, &*available), ("halted", "3"));
            expected.outbox += 1;
            let (token, none) = (token.to_string(), "0".to_owned());
            expected.stock.extend([
                ("fence".into(), token.clone()),
                ("repairing".into(), token),
                ("restored".into(), none),
                ("last".into(), entry),
            ]);
        }
        assert_eq!(
            sale.dump(0).await,
            expected,
            "it keeps what is available and every decision"
        );
    }
    let inspection = sale
        .stock
        .inspect(&sale.segment(0), InspectionEntries::None)
        .await
        .unwrap();
    assert_eq!(
        (inspection.fence, inspection.repairing),
        (u64::MAX, Some(u64::MAX))
    );
    sale.end_repairing(0).await;
    assert_eq!(
        sale.stock
            .inspect(&sale.segment(0), InspectionEntries::None)
            .await
            .unwrap()
            .repairing,
        None
    );
}

#[tested(on_both)]
async fn a_segment_that_is_gone_is_recreated_empty_and_halted(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let reply = sale.halt(7, 4).await;
    let entry = shown(&reply)[2].clone();
    assert_eq!(shown(&reply)[..2], ["halted", "0"]);
    // `dump` finds the placeholders.
    let dump = sale.dump(7).await;
    let stock = dump.fields();
    let last = format!("last={entry}");
    assert_eq!(
        stock,
        [
            "available=0",
            "closes_ms=0",
            "epoch=0",
            "fence=4",
            &format!("gained={entry}"),
            "hold_ms=0",
            &last,
            "leaving=0",
            &format!("left={entry}"),
            "limit=0",
            "opens_ms=0",
            "price=",
            "repairing=4",
            "restored=0",
            "segments=0",
            "state=paused"
        ]
    );
    assert_eq!(
        (
            dump.decisions.len(),
            dump.buyers.len(),
            dump.spillovers.len(),
            dump.outbox
        ),
        (0, 0, 0, 1)
    );
    let inspection = sale.inspected(7).await;
    assert_eq!(
        (
            inspection.available,
            inspection.decisions,
            inspection.buyers,
            inspection.spillovers
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(status(&sale.adjust(7, 4, &entry, 6, 2).await), "adjusted");
    assert_eq!(sale.dump(7).await.available(), 6);
}

/// The ledger was restored from a backup, and the segment has an order that the ledger lost.
#[tested(on_both)]
async fn a_repairer_may_drop_what_a_segment_has_stored_of_orders(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "k", 2);
    sale.take(0, &[&row]).await;
    assert_eq!(shown(&sale.halt(0, 2).await)[..2], ["halted", "3"]);
    let before = sale.dump(0).await;
    assert_eq!((before.decisions.len(), before.buyers.len()), (1, 1));
    assert_eq!(shown(&sale.halt_and(0, 1, "drop").await), ["fenced", "2"]);
    assert_eq!(sale.dump(0).await, before, "a lower token drops nothing");

    let halted = sale.halt_and(0, 3, "drop").await;
    assert_eq!(shown(&halted)[..2], ["halted", "3"]);
    let dropped = sale.dump(0).await;
    assert_eq!(
        (
            dropped.decisions.len(),
            dropped.buyers.len(),
            dropped.spillovers.len(),
            dropped.outbox,
            dropped.available()
        ),
        (0, 0, 0, before.outbox + 1, 3),
        "the outbox and the counter stay"
    );
    // Here the outbox still has the order, so a repair restores it.
    let taken = format!("T2:{}", sale.now_ms().await);
    let decisions = [(row.id.as_bytes().as_slice(), &*taken, Some(&row))];
    assert_eq!(sale.restore(0, 3, "decisions", &decisions).await, "ok 1");
    let counts = [(row.buyer.as_str().as_bytes(), "2", None)];
    assert_eq!(sale.restore(0, 3, "buyers", &counts).await, "ok 1");
    sale.end_repairing(0).await;
}

#[tested(on_both)]
async fn a_lost_key_is_recreated(site: Arc<Site>) {
    for part in 0..4 {
        let sale = sale::open(&site, Terms::new(5, 1)).await;
        let row = sale.row(&sale.buyer_at(0, 0), "k", 2);
        sale.take(0, &[&row]).await;
        let Names {
            decisions,
            buyers,
            outbox,
            spillovers,
            ..
        } = sale.names(0);
        let entries = sale.entries(0).await;
        let () = sale
            .redis(redis::cmd("DEL").arg([&decisions, &buyers, &spillovers, &outbox][part]))
            .await;
        if part == 3 {
            sale.trimmed.lock().unwrap().insert(0, entries);
            sale.next_ms().await;
        }
        assert_eq!(shown(&sale.halt(0, 1).await)[..2], ["halted", "3"]);
        let inspection = sale.inspected(0).await;
        // What it remembers is one: with a part of it the rest is forgotten. The outbox is another
        // matter.
        let kept = u64::from(part == 3);
        assert_eq!(
            (inspection.decisions, inspection.buyers, inspection.whole),
            (kept, kept, true)
        );
        let taken = format!("T2:{}", sale.now_ms().await);
        assert_eq!(
            sale.restore(
                0,
                1,
                "decisions",
                &[(row.id.as_bytes(), &taken, Some(&row))]
            )
            .await,
            "ok 1"
        );
        assert_eq!(
            sale.restore(
                0,
                1,
                "buyers",
                &[(row.buyer.as_str().as_bytes(), "2", None)]
            )
            .await,
            "ok 1"
        );
        sale.end_repairing(0).await;
    }
}

/// Every call that is refused, by what it answers.
async fn refusals(sale: &Sale, row: &Row, token: u64) -> Vec<(&'static str, String)> {
    let deadline = sale.now_ms().await + 60_000;
    let rows = std::slice::from_ref(row);
    let (key, other) = (sale.segment(0), sale.buyer_at(1, 0));
    let back = [sale.to_return(&other, "k", 1, 1)];
    let repairing = |result: Result<u64, StockError>| match result {
        Err(StockError::Repairing(segment)) if segment == key => "repairing".to_owned(),
        other => format!("{other:?}"),
    };
    vec![
        (
            "reserve_home",
            status(&sale.reserve_home(0, deadline, rows).await),
        ),
        (
            "reserve_next",
            status(&sale.reserve_next(0, deadline, rows).await),
        ),
        (
            "finish_spillover",
            status(&sale.finish_spillover(0, deadline, rows, &[("S", "")]).await),
        ),
        (
            "release_count, release",
            repairing(
                sale.at_first()
                    .release(&[sale.to_return(&row.buyer, "k", 1, 0)])
                    .await,
            ),
        ),
        (
            "release_count",
            repairing(
                sale.at_first()
                    .release(&[sale.to_return(&row.buyer, "k", 1, 1)])
                    .await,
            ),
        ),
        (
            "release",
            repairing(
                sale.at_first()
                    .release(&back.map(|back| stock::Release { segment: 0, ..back }))
                    .await,
            ),
        ),
        (
            "transfer_out",
            repairing(
                sale.stock
                    .transfer_out(&key, TransferId::random(), 1, token)
                    .await,
            ),
        ),
        (
            "transfer_in",
            repairing(
                sale.stock
                    .transfer_in(&key, TransferId::random(), 1, token)
                    .await,
            ),
        ),
    ]
}

#[tested(on_both)]
async fn a_halted_segment_refuses_what_would_change_it_and_nothing_else(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "k", 1);
    sale.take(0, &[&row]).await;
    sale.halt(0, 5).await;
    let before = sale.dumps().await;
    for (script, decision) in refusals(&sale, &row, 6).await {
        assert_eq!(decision, "repairing", "{script}");
        assert_eq!(sale.dumps().await, before, "{script}");
    }
    let late = sale
        .reserve_home(0, sale.now_ms().await - 100, &[&row])
        .await;
    assert_eq!(status(&late), "late", "that is not worth a repeat");

    // Looking is allowed, and so is what changes neither stock nor decisions that a caller relies
    // on, and opening, which finds it there.
    assert_eq!(sale.due_spillovers(0, 10).await, []);
    assert_eq!(sale.forget_declined(0, &[(&row, i64::MAX)]).await, 0);
    assert_eq!(sale.forget_spillover(0, &[(&row, 0)]).await, 0);
    assert_eq!(
        sale.stock.open_segment(&sale.item, 0).await.unwrap(),
        stock::Opened::Existing
    );
    let inspection = sale.inspected(0).await;
    assert_eq!((inspection.available, inspection.repairing), (1, Some(5)));
    assert_eq!(sale.dumps().await, before);
    // A change of the item reaches it, and the repairer takes a new snapshot.
    assert_eq!(
        sale.set_state(ItemState::Paused, 2).await.unwrap(),
        [stock::StateSet::Set; 2]
    );
    let last = inspection.last.to_string();
    assert_eq!(status(&sale.adjust(0, 5, &last, 1, 3).await), "moved");
    // The other segment sells on; this one does again when it is adjusted.
    sale.set_state(ItemState::Open, 4).await.unwrap();
    assert!(sale.sells(&sale.buyer_at(1, 5), "k", 1).await);
    sale.end_repairing(0).await;
    assert_eq!(
        refusals(&sale, &row, 6)
            .await
            .iter()
            .filter(|(_, decision)| decision == "repairing")
            .count(),
        0
    );
}

#[tested(on_both)]
async fn orders_are_restored_by_the_last_repairer_to_halt(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(6, 1).limit(3)).await;
    let [ann, bob, cid] = [0, 1, 2].map(|n| sale.buyer_at(0, n));
    let [held, gone] = [sale.row(&ann, "held", 2), sale.row(&bob, "gone", 1)];
    sale.take(0, &[&held, &gone]).await;
    let rows: &[(&[u8], &str, Option<&Row>)] = &[
        (held.id.as_bytes(), "T2:77", Some(&held)),
        (gone.id.as_bytes(), "T1:77", Some(&gone)),
    ];
    let counts: &[(&[u8], &str, Option<&Row>)] = &[
        (ann.as_str().as_bytes(), "2", None),
        (bob.as_str().as_bytes(), "1", None),
        (cid.as_str().as_bytes(), "0", None),
    ];

    let before = sale.dump(0).await;
    for (segment, refusal) in [(0, "fenced 0"), (1, "fenced 0")] {
        assert_eq!(
            sale.restore(segment, 7, "decisions", rows).await,
            refusal,
            "it has not been halted"
        );
    }
    assert_eq!(sale.dump(0).await, before);
    sale.halt(0, 7).await;
    sale.halt(0, 10).await;
    let before = sale.dump(0).await;
    for token in [7, 9, 11, 100] {
        for (what, rows) in [("decisions", rows), ("buyers", counts)] {
            assert_eq!(
                sale.restore(0, token, what, rows).await,
                "fenced 10",
                "{token}"
            );
        }
    }
    assert_eq!(sale.dump(0).await, before);

    // It has lost its decisions, and has a count of a buyer who holds nothing.
    let Names {
        decisions, buyers, ..
    } = sale.names(0);
    sale.delete_fields(
        &decisions,
        &[&held.id.as_bytes()[..], &gone.id.as_bytes()[..]],
    )
    .await;
    let () = sale
        .redis(
            redis::cmd("HSET")
                .arg(&buyers)
                .arg(ann.as_str())
                .arg(1)
                .arg(cid.as_str())
                .arg(3),
        )
        .await;
    for _ in 0..2 {
        assert_eq!(sale.restore(0, 10, "decisions", rows).await, "ok 2");
        assert_eq!(sale.restore(0, 10, "buyers", counts).await, "ok 3");
        let dump = sale.dump(0).await;
        assert_eq!(
            (dump.decision(held.id), dump.decision(gone.id)),
            (Some("T2:77"), Some("T1:77"))
        );
        assert_eq!(
            dump.buyers,
            [(ann.to_string(), 2), (bob.to_string(), 1)].into(),
            "a count of none is no count"
        );
        let mut stock = dump.stock.clone();
        stock.insert("restored".into(), "0".into());
        assert_eq!(
            (dump.available(), &stock, &dump.spillovers),
            (before.available(), &before.stock, &before.spillovers)
        );
    }
    assert_eq!(sale.restore(0, 10, "decisions", &[]).await, "ok 0");
    sale.end_repairing(0).await;
    assert_eq!(
        sale.restore(0, 10, "decisions", rows).await,
        "fenced 10",
        "not any more"
    );
    let again = sale
        .reserve_home(0, sale.now_ms().await + 60_000, &[held])
        .await;
    assert_eq!(decided(&again, 1).1, ["a T2:77"]);
}

#[tested(on_both)]
async fn a_spillover_that_is_restored_is_remembered_as_long_as_one_that_ended(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(1, 2)).await;
    let (ann, bob) = (sale.buyer_at(1, 0), sale.buyer_at(1, 1));
    let (row, in_flight) = (sale.row(&ann, "k", 1), sale.row(&bob, "k", 1));
    let (deadline, place) = sale.take_elsewhere(1, 0, &row).await;
    sale.reserve_home(1, deadline, &[&in_flight]).await;
    sale.halt(1, 1).await;
    let elsewhere = format!("E1:{place}");
    for _ in 0..2 {
        assert_eq!(
            sale.restore(
                1,
                1,
                "decisions",
                &[(row.id.as_bytes(), &elsewhere, Some(&row))]
            )
            .await,
            "ok 1"
        );
        let dump = sale.dump(1).await;
        assert_eq!(dump.decision(row.id), Some(&*elsewhere));
        assert_eq!(
            dump.spillovers[&pack(&row)],
            (deadline + MARGIN_MS).to_string(),
            "her reservations may be under way until the deadline"
        );
        assert_eq!(
            dump.spillovers[&pack(&in_flight)],
            deadline.to_string(),
            "this one has not been finished"
        );
    }
    sale.end_repairing(1).await;
}

#[tested(on_both)]
async fn a_batch_that_was_lost_or_comes_late_is_noticed(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let row = sale.row(&sale.buyer_at(0, 0), "k", 2);
    sale.take(0, &[&row]).await;
    let rows: &[(&[u8], &str, Option<&Row>)] = &[(row.id.as_bytes(), "T2:77", Some(&row))];
    let Names { stock, .. } = sale.names(0);
    sale.halt(0, 5).await;
    assert_eq!(sale.restore(0, 5, "decisions", rows).await, "ok 1");
    // A failover undoes the batch, and the next one does not fit, nor does the end.
    let set = async |restored: u64| {
        sale.redis::<i64>(redis::cmd("HSET").arg(&stock).arg("restored").arg(restored))
            .await
    };
    let (last, _) = sale.next_batch(0).await;
    let halted = Halted {
        segment: sale.segment(0),
        token: 5,
        entry: last.parse().unwrap(),
    };
    let restoration = sale
        .stock
        .restore(&sale.item, &halted, &[], &[])
        .await
        .unwrap();
    assert_eq!(
        restoration,
        Restoration::default(),
        "there was nothing to give back"
    );
    let moved = sale
        .stock
        .adjust(&sale.item, &halted, restoration, 3, 2)
        .await;
    assert!(
        matches!(moved, Err(StockError::Moved(_))),
        "one batch was given back that this one does not know of"
    );
    set(7).await;
    let memory = TransferMemory {
        id: TransferId::random(),
        moved: Some(Moved::In(1)),
        is_open: false,
    };
    let moved = sale
        .stock
        .restore(&sale.item, &halted, &[], &[memory])
        .await;
    assert!(
        matches!(moved, Err(StockError::Moved(_))),
        "it is the first, and not the eighth"
    );
    // It is halted again, and what was decided before comes late.
    set(0).await;
    sale.halt(0, 5).await;
    let moved = sale
        .stock
        .restore(&sale.item, &halted, &[], &[memory])
        .await;
    assert!(
        matches!(moved, Err(StockError::Moved(_))),
        "another entry is the last one"
    );
    assert!(
        !sale
            .dump(0)
            .await
            .decisions
            .keys()
            .any(|id| id == memory.id.as_bytes())
    );
    sale.end_repairing(0).await;
}

#[tested(on_both)]
async fn transfers_are_restored_as_the_ledger_has_them(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let [out, into, undone] = [0; 3].map(|_| TransferId::random());
    let key = sale.segment(0);
    let decisions = sale.names(0).decisions;
    // It has a record of one whose entry a failover has lost.
    let _: i64 = sale
        .redis(
            redis::cmd("HSET")
                .arg(&decisions)
                .arg(&undone.as_bytes()[..])
                .arg("O2"),
        )
        .await;
    let halted = sale
        .stock
        .halt(&key, 5, stock::OldMemory::Keep)
        .await
        .unwrap();
    let memories = [
        (out, Some(Moved::Out(3))),
        (into, Some(Moved::In(4))),
        (undone, None),
    ]
    .map(|(id, moved)| TransferMemory {
        id,
        moved,
        is_open: false,
    });
    let restoration = sale
        .stock
        .restore(&sale.item, &halted, &[], &memories)
        .await
        .unwrap();
    sale.stock
        .adjust(&sale.item, &halted, restoration, 3, 2)
        .await
        .unwrap();
    // Those that were made are not made again, and the one that was not is.
    assert_eq!(sale.stock.transfer_out(&key, out, 9, 5).await.unwrap(), 3);
    assert_eq!(sale.stock.transfer_in(&key, into, 9, 5).await.unwrap(), 4);
    assert_eq!(sale.dump(0).await.available(), 3);
    assert_eq!(
        sale.stock.transfer_out(&key, undone, 1, 5).await.unwrap(),
        1
    );
    assert_eq!(sale.dump(0).await.available(), 2);
    // There are no entries of these, which the audit would miss.
    sale.delete_fields(&decisions, &[&out.as_bytes()[..], &into.as_bytes()[..]])
        .await;
}

#[tested(on_both)]
async fn adjust_is_a_compare_and_set_on_the_last_entry(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(5, 1)).await;
    let first = sale.dump(0).await.stock["last"].clone();
    assert_eq!(
        shown(&sale.adjust(0, 3, &first, 9, 2).await),
        ["fenced", "0"],
        "it has not been halted"
    );
    assert_eq!(
        shown(&sale.adjust(1, 3, &first, 9, 2).await),
        ["fenced", "0"],
        "it has not been created"
    );
    sale.halt(0, 3).await;
    let last = shown(&sale.halt(0, 12).await)[2].clone();
    let before = sale.dump(0).await;
    for (token, looked_at, refusal) in [
        (3, &last, ["fenced", "12"]),
        (13, &last, ["fenced", "12"]),
        (12, &first, ["moved", &last]),
        (12, &String::new(), ["moved", &last]),
        (3, &first, ["fenced", "12"]),
    ] {
        assert_eq!(
            shown(&sale.adjust(0, token, looked_at, 9, 2).await),
            refusal,
            "{token} {looked_at}"
        );
        assert_eq!(sale.dump(0).await, before);
    }
    let halted = Halted {
        segment: sale.segment(0),
        token: 12,
        entry: EntryId::default(),
    };
    let moved = sale
        .stock
        .adjust(&sale.item, &halted, Restoration::default(), 9, 2)
        .await;
    assert!(matches!(moved, Err(StockError::Moved(segment)) if segment == sale.segment(0)));
    assert_eq!(status(&sale.adjust(0, 12, &last, 9, 2).await), "adjusted");
    let after = sale.dump(0).await;
    assert_eq!(
        shown(&sale.adjust(0, 12, &last, 8, 2).await),
        ["fenced", "12"],
        "a repeat finds no repair"
    );
    assert_eq!(sale.dump(0).await, after);
}

#[tested(on_both)]
async fn adjust_sets_everything_and_the_segment_sells_again(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(0, 3)).await;
    let (ann, row) = (sale.buyer_at(0, 0), sale.row(&sale.buyer_at(0, 1), "k", 1));
    let halted = sale.halted(0, 5).await;
    let (mut returned, mut outbox) = (
        sale.listen("stockade:returned", 0).await,
        sale.listen("stockade:outbox", 0).await,
    );
    let window = Window {
        opens_at: Some(jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(5)),
        closes_at: None,
    };
    let item = domain::Item {
        limit_per_buyer: Some(Quantity::new(2).unwrap()),
        window,
        hold_seconds: 30,
        ..sale.item.clone()
    };
    let Adjusted { entry, fingerprint } = sale
        .stock
        .adjust(&item, &halted, Restoration::default(), 3, 8)
        .await
        .unwrap();
    let entries = sale.entries(0).await;
    let anchor = entries.last().unwrap();
    assert_eq!(
        (anchor.id, anchor.fingerprint),
        (entry, fingerprint),
        "the caller of adjust has the anchor without reading it"
    );
    assert_eq!(
        anchor.change,
        Change::Adjusted {
            units: 3,
            epoch: 8,
            token: 5
        }
    );
    let name = sale.segment(0).to_string();
    assert_eq!(
        (outbox.next().await, returned.next().await),
        (name.clone(), format!("{name} 3"))
    );
    let dump = sale.dump(0).await;
    let stock = dump.fields();
    let last = format!("last={entry}");
    assert_eq!(
        stock,
        [
            "available=3",
            &format!("checked={}", dump.stock["checked"]),
            "closes_ms=0",
            "epoch=8",
            "fence=5",
            &format!("gained={entry}"),
            "hold_ms=30000",
            &last,
            "leaving=0",
            &format!("left={entry}"),
            "limit=2",
            "opens_ms=5000",
            "price=",
            "segments=3",
            "state=open"
        ]
    );
    assert!(sale.sells(&ann, "k", 2).await);
    assert_eq!(
        decided(
            &sale
                .reserve_home(0, sale.now_ms().await + 60_000, &[row])
                .await,
            1
        ),
        (0, vec!["taken".into()])
    );
}

#[tested(on_both)]
async fn an_order_waits_for_the_end_of_a_repair(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(2, 2)).await;
    let ann: BuyerId = sale.buyer_at(0, 0);
    let halted = sale.halted(0, 1).await;
    let order = tokio::spawn({
        let (item, reservation) = (sale.at_first(), sale.reservation(&ann, "k", 1));
        async move { item.order(reservation).await }
    });
    let returning = sale
        .at_first()
        .release(&[sale.to_return(&ann, "another", 1, 0)])
        .await;
    assert!(
        matches!(&returning, Err(error @ StockError::Repairing(_)) if error.is_retryable()),
        "{returning:?}"
    );
    assert!(!order.is_finished());
    sale.adjusted(&halted, 1, 2).await;
    assert!(is_held(&order.await.unwrap().unwrap()));
    assert_eq!(
        sale.dump(0).await.available(),
        0,
        "at home, and not at the segment that could have been asked meanwhile"
    );
}
