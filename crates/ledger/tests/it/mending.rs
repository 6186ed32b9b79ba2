//! Segments whose history is lost or wrong get another one, and nothing that the ledger had decided changes.

use std::time::Duration;

use domain::{
    Change, Entry, Item, ItemState, Memory, OrderState, SegmentKey, TransferId, Transferred,
};
use jiff::Timestamp;
use ledger::{
    ItemChange, Ledger, LedgerError, Mended, Mending, NewJournalEntry, TransferPlan, TransferState,
};
use serde_json::json;

use crate::site::{
    self, Kind, Site, again, counters, happen, id, on_both, opened, order, order_id, order_of,
    release, row, segment, state, step, take,
};

on_both!(
    a_diverged_outbox_is_taken_for_what_it_is_worth,
    what_exceeds_the_limit_is_rejected,
    an_empty_outbox_leaves_the_row_as_it_is,
    an_outbox_read_in_parts_is_worth_the_same,
    what_was_staged_and_not_committed_never_was,
    an_old_token_mends_nothing,
    an_item_that_was_changed_meanwhile_is_mended_again,
    what_was_staged_must_be_set,
    whoever_mends_waits_and_recorders_pass_over,
    what_a_segment_must_remember_is_all_there,
    of_transfers_what_applies_is_applied,
);

async fn claimed(
    ledger: &dyn Ledger,
    item: &Item,
    keys: &[SegmentKey],
    token: u64,
) -> Box<dyn Mending> {
    ledger.claim_item(&item.id, token).await.unwrap();
    ledger.claim_to_mend(keys, token).await.unwrap()
}

fn mended(key: &SegmentKey, ms: u64) -> Mended {
    Mended {
        segment: key.clone(),
        checkpoint: id(ms, 0),
        anchor: -7,
    }
}

fn log(changes: impl IntoIterator<Item = Change>) -> Vec<Entry> {
    changes
        .into_iter()
        .zip(1..)
        .map(|(change, ms)| Entry {
            id: id(ms, 0),
            fingerprint: 1,
            change,
        })
        .collect()
}

/// The ledger has 0 (confirmed), 1 (held), 2 (expired, on its way back) of 2 units each. The outbox, of a server that never saw 1 and on which 3, 4 and 5
/// were taken since, has nothing of that.
async fn diverged(site: &Site, ledger: &dyn Ledger) -> (Item, SegmentKey, Vec<Entry>) {
    // Without a limit, which would have some of these rejected.
    let item = Item {
        limit_per_buyer: None,
        ..site::item("vase", 10, 1)
    };
    site.try_create(ledger, &item).await;
    let key = segment(&item, 0);
    happen(ledger, &key, [take((0..3).map(|n| order(&item, n, 2)))])
        .await
        .unwrap();
    step(ledger, order_id(&item, 0), OrderState::Confirmed)
        .await
        .unwrap();
    step(ledger, order_id(&item, 2), OrderState::Expired)
        .await
        .unwrap();
    let outbox = log([
        opened(&item, 0).change,
        take([order(&item, 0, 2), order(&item, 2, 2)]),
        take([order(&item, 3, 3)]),
        release([order(&item, 2, 2)]),
        take([order(&item, 4, 4), order(&item, 5, 2)]),
        Change::Halted { token: 1 },
    ]);
    (item, key, outbox)
}

/// A failover loses counts too, and then Redis lets a buyer take more than one may.
async fn what_exceeds_the_limit_is_rejected(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 10, 1).await;
    let key = segment(&item, 0);
    let first = order(&item, 0, 2);
    let second = order_of(&item, &first.buyer, 1, 1);
    let beyond = second.id;
    happen(&*ledger, &key, [take([first])]).await.unwrap();
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
    let outbox = log([
        opened(&item, 0).change,
        take([second, order(&item, 2, 2)]),
        Change::Halted { token: 5 },
    ]);
    let (staged, recorded) = mending.stage(&key, &outbox).await.unwrap();
    assert_eq!(
        (recorded.held, &recorded.rejected),
        (1, &vec![beyond]),
        "the limit is two"
    );
    assert_eq!((staged.available, staged.held), (6, 4));
    mending.commit(&[mended(&key, 90)], 2, &[]).await.unwrap();
}

async fn a_diverged_outbox_is_taken_for_what_it_is_worth(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    let before = row(&*ledger, &key).await;
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
    assert_eq!(
        (mending.item(), mending.rows()),
        (&item, std::slice::from_ref(&before))
    );
    let (staged, recorded) = mending.stage(&key, &outbox).await.unwrap();
    assert_eq!(
        (
            recorded.held,
            recorded.repeated,
            recorded.returned,
            &recorded.rejected
        ),
        (2, 2, 1, &vec![order_id(&item, 4)])
    );
    assert_eq!(
        (
            staged.available,
            staged.held,
            staged.confirmed,
            staged.returning
        ),
        (1, 7, 2, 0)
    );
    let said = NewJournalEntry {
        item: item.id.clone(),
        actor: "reconciler".into(),
        action: "mend".into(),
        token: Some(5),
        before: json!(before.available),
        after: json!(staged.available),
    };
    mending
        .commit(&[mended(&key, 90)], 2, std::slice::from_ref(&said))
        .await
        .unwrap();

    let after = row(&*ledger, &key).await;
    let expected = ledger::SegmentRow {
        checkpoint: Some(id(90, 0)),
        anchor: Some(-7),
        fence: 5,
        version: before.version + 1,
        ..staged
    };
    assert_eq!(after, expected);
    let states = [0, 1, 2, 3, 4, 5].map(|n| order_id(&item, n));
    let mut found = Vec::new();
    for id in states {
        found.push(state(&*ledger, id).await.unwrap());
    }
    use OrderState::{Confirmed, Expired, Held, Rejected};
    assert_eq!(found, [Confirmed, Held, Expired, Held, Rejected, Held]);
    let item = ledger.item(&item.id).await.unwrap().unwrap();
    assert_eq!((item.epoch, item.version), (2, 2));
    assert_eq!(
        ledger.journal(&item.id, 1).await.unwrap().remove(0).entry,
        said
    );
    // The recorder goes on from there.
    assert_eq!(
        happen(&*ledger, &key, [take([order(&item, 6, 1)])])
            .await
            .unwrap()
            .after,
        Some(id(90, 0))
    );
    assert_eq!(counters(&*ledger, &key).await, [0, 8, 2, 0]);
}

async fn an_empty_outbox_leaves_the_row_as_it_is(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, _) = diverged(site, &*ledger).await;
    let before = row(&*ledger, &key).await;
    for (token, staged) in [(1, false), (2, true)] {
        let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), token).await;
        if staged {
            let (row, recorded) = mending.stage(&key, &[]).await.unwrap();
            assert_eq!(
                (row.available, recorded.held, recorded.repeated),
                (before.available, 0, 0)
            );
        }
        let epoch = mending.item().epoch;
        mending
            .commit(&[mended(&key, 90 + token)], epoch, &[])
            .await
            .unwrap();
    }
    let after = row(&*ledger, &key).await;
    assert_eq!(
        (after.checkpoint, after.fence, after.version),
        (Some(id(92, 0)), 2, before.version + 2)
    );
    assert_eq!(
        (
            after.available,
            after.held,
            after.confirmed,
            after.returning
        ),
        (4, 2, 2, 2)
    );
    assert_eq!(ledger.item(&item.id).await.unwrap().unwrap().version, 3);

    // So it is for a row that was never recorded.
    let fresh = site.create(&*ledger, "jug", 5, 1).await;
    let key = segment(&fresh, 0);
    let mut mending = claimed(&*ledger, &fresh, std::slice::from_ref(&key), 1).await;
    mending
        .stage(&key, &log([Change::Halted { token: 1 }]))
        .await
        .unwrap();
    mending.commit(&[mended(&key, 90)], 2, &[]).await.unwrap();
    happen(&*ledger, &key, [take([order(&fresh, 0, 5)])])
        .await
        .unwrap();
}

async fn an_outbox_read_in_parts_is_worth_the_same(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
    let whole = mending.stage(&key, &outbox).await.unwrap().0;
    mending.release().await;
    let mut mending = ledger
        .claim_to_mend(std::slice::from_ref(&key), 5)
        .await
        .unwrap();
    let mut last = None;
    for entry in &outbox {
        last = Some(
            mending
                .stage(&key, std::slice::from_ref(entry))
                .await
                .unwrap()
                .0,
        );
    }
    // And once more, for all that it matters.
    assert_eq!(mending.stage(&key, &outbox).await.unwrap().0, whole);
    assert_eq!(last, Some(whole));
    mending.commit(&[mended(&key, 90)], 2, &[]).await.unwrap();
}

async fn what_was_staged_and_not_committed_never_was(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    let before = (
        row(&*ledger, &key).await,
        ledger.item(&item.id).await.unwrap(),
    );
    for released in [false, true] {
        let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
        mending.stage(&key, &outbox).await.unwrap();
        mending.memories().await.unwrap();
        if released {
            mending.release().await;
        } else {
            drop(mending);
        }
        assert_eq!(
            (
                row(&*ledger, &key).await,
                ledger.item(&item.id).await.unwrap()
            ),
            before
        );
        assert_eq!(state(&*ledger, order_id(&item, 3)).await, None);
        assert_eq!(
            ledger
                .pending_returns(None, Timestamp::now() + Duration::from_secs(1), 9)
                .await
                .unwrap()
                .len(),
            1
        );
        site.audit_now(&item.id).await;
    }
    // Whoever comes next does it.
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 6).await;
    mending.stage(&key, &outbox).await.unwrap();
    mending.commit(&[mended(&key, 90)], 2, &[]).await.unwrap();
    assert_eq!(counters(&*ledger, &key).await, [1, 7, 2, 0]);
}

async fn an_old_token_mends_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    ledger.claim_item(&item.id, 5).await.unwrap();
    for token in [4, 6] {
        let Err(refused) = ledger
            .claim_to_mend(std::slice::from_ref(&key), token)
            .await
        else {
            panic!("{token}")
        };
        assert!(
            matches!(refused, LedgerError::Fenced { fence: 5, .. }),
            "{refused:?}"
        );
    }
    let before = row(&*ledger, &key).await;
    if site.kind == Kind::Postgres {
        // Somebody newer comes while we are at it. (On SQLite nobody can: the whole file is ours.)
        let mut mending = ledger
            .claim_to_mend(std::slice::from_ref(&key), 5)
            .await
            .unwrap();
        mending.stage(&key, &outbox).await.unwrap();
        ledger.claim_item(&item.id, 6).await.unwrap();
        let refused = mending.commit(&[mended(&key, 90)], 2, &[]).await;
        assert!(
            matches!(refused, Err(LedgerError::Fenced { token: 5, fence: 6 })),
            "{refused:?}"
        );
    }
    assert_eq!(
        (
            row(&*ledger, &key).await,
            state(&*ledger, order_id(&item, 3)).await
        ),
        (before, None)
    );
    assert_eq!(ledger.item(&item.id).await.unwrap(), Some(item));
}

async fn an_item_that_was_changed_meanwhile_is_mended_again(site: &Site) {
    if site.kind == Kind::Sqlite {
        // Nobody writes meanwhile.
        return;
    }
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
    mending.stage(&key, &outbox).await.unwrap();
    let paused = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    ledger
        .change_item(&item.id, &paused, None, "admin")
        .await
        .unwrap();
    let refused = mending.commit(&[mended(&key, 90)], 2, &[]).await;
    assert!(
        matches!(refused, Err(LedgerError::Superseded(_))),
        "{refused:?}"
    );
    let mut mending = ledger
        .claim_to_mend(std::slice::from_ref(&key), 5)
        .await
        .unwrap();
    assert_eq!(
        (mending.item().state, mending.item().epoch),
        (ItemState::Paused, 2)
    );
    mending.stage(&key, &outbox).await.unwrap();
    mending.commit(&[mended(&key, 90)], 3, &[]).await.unwrap();
    let item = ledger.item(&item.id).await.unwrap().unwrap();
    assert_eq!(
        (item.state, item.epoch, item.version),
        (ItemState::Paused, 3, 3)
    );
}

async fn what_was_staged_must_be_set(site: &Site) {
    let ledger = site.ledger().await;
    let (item, key, outbox) = diverged(site, &*ledger).await;
    let mut mending = claimed(&*ledger, &item, std::slice::from_ref(&key), 5).await;
    mending.stage(&key, &outbox).await.unwrap();
    assert!(
        matches!(mending.commit(&[], 2, &[]).await, Err(LedgerError::Diverged(unset)) if unset == key)
    );
    assert_eq!(state(&*ledger, order_id(&item, 3)).await, None);
    let mut mending = ledger
        .claim_to_mend(std::slice::from_ref(&key), 5)
        .await
        .unwrap();
    let other = segment(&item, 1);
    assert!(
        mending.stage(&other, &outbox).await.is_err(),
        "one that was not claimed"
    );
    mending.release().await;
}

async fn whoever_mends_waits_and_recorders_pass_over(site: &Site) {
    let (ledger, other) = (site.ledger().await, site.ledger().await);
    let item = site.create(&*ledger, "vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    for key in &keys {
        happen(&*ledger, key, []).await.unwrap();
    }
    ledger.claim_item(&item.id, 1).await.unwrap();
    let claim = other.claim(&keys[1..], 9).await.unwrap().unwrap();
    let waiting = {
        let (ledger, keys) = (site.ledger().await, keys.clone());
        tokio::spawn(async move { ledger.claim_to_mend(&keys, 1).await.unwrap() })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    claim.release().await;
    let mending = waiting.await.unwrap();
    assert_eq!(mending.rows().len(), 2);
    if site.kind == Kind::Postgres {
        assert!(other.claim(&keys, 9).await.unwrap().is_none());
    }
    mending.release().await;
    assert_eq!(
        other.claim(&keys, 9).await.unwrap().unwrap().rows().len(),
        2
    );
}

async fn what_a_segment_must_remember_is_all_there(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    happen(
        &*ledger,
        &keys[0],
        [take(
            (0..5)
                .map(|n| order(&item, n, 2))
                .chain([order(&item, 5, 9)]),
        )],
    )
    .await
    .unwrap();
    happen(&*ledger, &keys[1], []).await.unwrap();
    step(&*ledger, order_id(&item, 1), OrderState::Confirmed)
        .await
        .unwrap();
    for n in [2, 3, 4] {
        step(&*ledger, order_id(&item, n), OrderState::Expired)
            .await
            .unwrap();
    }
    happen(
        &*ledger,
        &keys[0],
        [release([order(&item, 3, 2), order(&item, 4, 2)])],
    )
    .await
    .unwrap();
    // 2 has been taken anew elsewhere before its first units were back, 3 afterwards.
    happen(
        &*ledger,
        &keys[1],
        [take([
            again(order(&item, 2, 2), 1),
            again(order(&item, 3, 2), 1),
        ])],
    )
    .await
    .unwrap();

    ledger.claim_item(&item.id, 1).await.unwrap();
    let mut mending = ledger.claim_to_mend(&keys, 1).await.unwrap();
    mending
        .stage(
            &keys[1],
            &log([opened(&item, 1).change, take([order(&item, 6, 1)])]),
        )
        .await
        .unwrap();
    let mut memories = mending.memories().await.unwrap();
    mending.release().await;
    let expected = |n: usize, units, attempt, segment, taken| {
        let order = order(&item, n, units);
        let expires_ms = 1_700_000_000_000;
        Memory {
            order: order.id,
            attempt,
            segment,
            buyer: order.buyer,
            quantity: order.quantity,
            expires_ms,
            taken,
        }
    };
    let of = |memories: &mut Vec<Memory>, n| {
        memories
            .extract_if(.., |memory| memory.order == order_id(&item, n))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&mut memories, 0), [expected(0, 2, 0, 0, true)], "held");
    assert_eq!(
        of(&mut memories, 1),
        [expected(1, 2, 0, 0, true)],
        "confirmed"
    );
    assert_eq!(
        of(&mut memories, 2),
        [expected(2, 2, 1, 1, true), expected(2, 2, 0, 0, true)],
        "the latest first, then what is still to be given back"
    );
    assert_eq!(of(&mut memories, 3), [expected(3, 2, 1, 1, true)]);
    assert_eq!(
        of(&mut memories, 4),
        [expected(4, 2, 0, 0, false)],
        "given back"
    );
    assert_eq!(
        of(&mut memories, 5),
        [expected(5, 9, 0, 0, false)],
        "rejected"
    );
    assert_eq!(of(&mut memories, 6), [expected(6, 1, 0, 1, true)], "staged");
    assert_eq!(memories, []);
}

async fn of_transfers_what_applies_is_applied(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    for key in &keys {
        happen(&*ledger, key, []).await.unwrap();
    }
    ledger.claim_item(&item.id, 1).await.unwrap();
    let ids = [(); 3].map(|()| TransferId::random());
    let plans = ids.map(|id| TransferPlan {
        id,
        from: 0,
        to: 1,
        units: 8,
    });
    ledger.plan_transfers(&item.id, 1, &plans).await.unwrap();
    let out = |at: usize, units| {
        Change::TransferredOut(Transferred {
            id: ids[at],
            units,
            token: 1,
        })
    };
    happen(&*ledger, &keys[0], [out(0, 3)]).await.unwrap();

    let mut mending = ledger.claim_to_mend(&keys, 1).await.unwrap();
    // 0 has left already; of 1, 6 units left, which the row has; of 2, 4 left, of which it has one.
    let (giver, recorded) = mending
        .stage(&keys[0], &log([out(0, 3), out(1, 6), out(2, 4)]))
        .await
        .unwrap();
    assert_eq!(
        (giver.allocated, giver.available, recorded.transferred),
        (0, 0, 2)
    );
    let into = [0, 1].map(|at| {
        Change::TransferredIn(Transferred {
            id: ids[at],
            units: 6,
            token: 1,
        })
    });
    let (taker, recorded) = mending.stage(&keys[1], &log(into)).await.unwrap();
    assert_eq!(
        (taker.allocated, taker.available, recorded.transferred),
        (19, 19, 2)
    );
    mending
        .commit(&keys.each_ref().map(|key| mended(key, 90)), 2, &[])
        .await
        .unwrap();
    let open = ledger.open_transfers(None).await.unwrap();
    assert_eq!(
        open.iter()
            .map(|open| (open.id, open.moved, open.state))
            .collect::<Vec<_>>(),
        [(ids[2], 1, TransferState::Out)]
    );
    happen(
        &*ledger,
        &keys[1],
        [Change::TransferredIn(Transferred {
            id: ids[2],
            units: 1,
            token: 1,
        })],
    )
    .await
    .unwrap();
}
