//! Repair sets a segment with a lost or wrong history to a consistent state, and keeps every
//! decision that the ledger has recorded.

use std::time::Duration;

use domain::{
    Change, Entry, Item, ItemState, Memory, OrderState, SegmentKey, TransferId, Transferred,
};
use jiff::Timestamp;
use ledger::{
    ItemChange, ItemScope, LedgerError, NewJournalEntry, Repair, Repaired, TransferPlan,
    TransferState,
};
use serde_json::json;
use testkit::{Backend, on_both_databases, tested};

use crate::env::{
    self, AnyLedger, TestEnv, again, becomes, counters, happen, id, opened, order, order_id,
    order_of, release, row, segment, state, take,
};

async fn claimed(
    ledger: &impl AnyLedger,
    item: &Item,
    keys: &[SegmentKey],
    token: u64,
) -> Box<dyn Repair> {
    ledger.claim_item(&item.id, token).await.unwrap();
    ledger.claim_for_repair(keys, token).await.unwrap()
}

fn repaired(key: &SegmentKey, ms: u64) -> Repaired {
    Repaired {
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

/// The ledger has orders 0 (confirmed), 1 (held) and 2 (expired, its units returning), of 2 units
/// each. The outbox belongs to a server that never saw order 1, and on which orders 3, 4 and 5 were
/// taken since.
async fn diverged(env: &TestEnv) -> (Item, SegmentKey, Vec<Entry>) {
    // Without a limit, which would reject some of these orders.
    let item = Item {
        limit_per_buyer: None,
        ..env::item("vase", 10, 1)
    };
    env.try_create(&item).await;
    let key = segment(&item, 0);
    happen(env, &key, [take((0..3).map(|n| order(&item, n, 2)))]).await;
    becomes(env, order_id(&item, 0), OrderState::Confirmed).await;
    becomes(env, order_id(&item, 2), OrderState::Expired).await;
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

/// A failover also loses counts, after which Redis lets a buyer exceed the limit.
#[tested(on_both_databases(crate::env::run))]
async fn repair_rejects_orders_beyond_the_limit(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let key = segment(&item, 0);
    let first = order(&item, 0, 2);
    let second = order_of(&item, &first.buyer, 1, 1);
    let beyond = second.id;
    happen(env, &key, [take([first])]).await;
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
    let outbox = log([
        opened(&item, 0).change,
        take([second, order(&item, 2, 2)]),
        Change::Halted { token: 5 },
    ]);
    let (staged, recorded) = repair.stage(&key, &outbox).await.unwrap();
    assert_eq!(
        (recorded.held, &recorded.rejected),
        (1, &vec![beyond]),
        "the limit is two"
    );
    assert_eq!((staged.available, staged.held), (6, 4));
    repair.commit(&[repaired(&key, 90)], 2, &[]).await.unwrap();
}

#[tested(on_both_databases(crate::env::run))]
async fn repair_applies_what_still_applies_of_a_diverged_outbox(env: &TestEnv) {
    let (item, key, outbox) = diverged(env).await;
    let before = row(env, &key).await;
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
    assert_eq!(
        (repair.item(), repair.rows()),
        (&item, std::slice::from_ref(&before))
    );
    let (staged, recorded) = repair.stage(&key, &outbox).await.unwrap();
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
    let note = NewJournalEntry {
        item: item.id.clone(),
        actor: "reconciler".into(),
        action: "repair".into(),
        token: Some(5),
        before: json!(before.available),
        after: json!(staged.available),
    };
    repair
        .commit(&[repaired(&key, 90)], 2, std::slice::from_ref(&note))
        .await
        .unwrap();

    let after = row(env, &key).await;
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
        found.push(state(env, id).await.unwrap());
    }
    use OrderState::{Confirmed, Expired, Held, Rejected};
    assert_eq!(found, [Confirmed, Held, Expired, Held, Rejected, Held]);
    let item = env.item(&item.id).await.unwrap().unwrap();
    assert_eq!((item.epoch, item.version), (2, 2));
    assert_eq!(
        env.journal(&item.id, 1).await.unwrap().remove(0).entry,
        note
    );
    // The recorder continues from the new checkpoint.
    assert_eq!(
        happen(env, &key, [take([order(&item, 6, 1)])]).await.after,
        Some(id(90, 0))
    );
    assert_eq!(counters(env, &key).await, [0, 8, 2, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn repair_of_an_empty_outbox_leaves_the_row_unchanged(env: &TestEnv) {
    let (item, key, _) = diverged(env).await;
    let before = row(env, &key).await;
    for (token, staged) in [(1, false), (2, true)] {
        let mut repair = claimed(env, &item, std::slice::from_ref(&key), token).await;
        if staged {
            let (row, recorded) = repair.stage(&key, &[]).await.unwrap();
            assert_eq!(
                (row.available, recorded.held, recorded.repeated),
                (before.available, 0, 0)
            );
        }
        let epoch = repair.item().epoch;
        repair
            .commit(&[repaired(&key, 90 + token)], epoch, &[])
            .await
            .unwrap();
    }
    let after = row(env, &key).await;
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
    assert_eq!(env.item(&item.id).await.unwrap().unwrap().version, 3);

    // The same holds for a row that was never recorded.
    let fresh = env.create("jug", 5, 1).await;
    let key = segment(&fresh, 0);
    let mut repair = claimed(env, &fresh, std::slice::from_ref(&key), 1).await;
    repair
        .stage(&key, &log([Change::Halted { token: 1 }]))
        .await
        .unwrap();
    repair.commit(&[repaired(&key, 90)], 2, &[]).await.unwrap();
    happen(env, &key, [take([order(&fresh, 0, 5)])]).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn staging_an_outbox_in_parts_gives_the_same_row(env: &TestEnv) {
    let (item, key, outbox) = diverged(env).await;
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
    let whole = repair.stage(&key, &outbox).await.unwrap().0;
    repair.release().await;
    let mut repair = env.repair(&key, 5).await;
    let mut last = None;
    for entry in &outbox {
        last = Some(
            repair
                .stage(&key, std::slice::from_ref(entry))
                .await
                .unwrap()
                .0,
        );
    }
    // Staging the whole outbox a second time changes nothing.
    assert_eq!(repair.stage(&key, &outbox).await.unwrap().0, whole);
    assert_eq!(last, Some(whole));
    repair.commit(&[repaired(&key, 90)], 2, &[]).await.unwrap();
}

#[tested(on_both_databases(crate::env::run))]
async fn staging_without_a_commit_changes_nothing(env: &TestEnv) {
    let (item, key, outbox) = diverged(env).await;
    let before = (row(env, &key).await, env.item(&item.id).await.unwrap());
    for released in [false, true] {
        let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
        repair.stage(&key, &outbox).await.unwrap();
        repair.memories_of(&[order_id(&item, 3)]).await.unwrap();
        if released {
            repair.release().await;
        } else {
            drop(repair);
        }
        assert_eq!(
            (row(env, &key).await, env.item(&item.id).await.unwrap()),
            before
        );
        assert_eq!(state(env, order_id(&item, 3)).await, None);
        assert_eq!(
            env.pending_returns(ItemScope::ALL, Timestamp::now() + Duration::from_secs(1), 9)
                .await
                .unwrap()
                .len(),
            1
        );
        env.audit_now(&item.id).await;
    }
    // The next repair can do it.
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 6).await;
    repair.stage(&key, &outbox).await.unwrap();
    repair.commit(&[repaired(&key, 90)], 2, &[]).await.unwrap();
    assert_eq!(counters(env, &key).await, [1, 7, 2, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_outdated_token_cannot_repair(env: &TestEnv) {
    let (item, key, outbox) = diverged(env).await;
    env.claim_item(&item.id, 5).await.unwrap();
    for token in [4, 6] {
        let Err(refused) = env
            .claim_for_repair(std::slice::from_ref(&key), token)
            .await
        else {
            panic!("{token}")
        };
        assert!(
            matches!(refused, LedgerError::Fenced { fence: 5, .. }),
            "{refused:?}"
        );
    }
    let before = row(env, &key).await;
    if env.backend == Backend::Postgres {
        // A newer token claims the item during the repair. (Not possible on SQLite: the repair has
        // locked the whole file.)
        let mut repair = env.repair(&key, 5).await;
        repair.stage(&key, &outbox).await.unwrap();
        env.claim_item(&item.id, 6).await.unwrap();
        let refused = repair.commit(&[repaired(&key, 90)], 2, &[]).await;
        assert!(
            matches!(refused, Err(LedgerError::Fenced { token: 5, fence: 6 })),
            "{refused:?}"
        );
    }
    assert_eq!(
        (row(env, &key).await, state(env, order_id(&item, 3)).await),
        (before, None)
    );
    assert_eq!(env.item(&item.id).await.unwrap(), Some(item));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repair_fails_if_the_item_was_changed_meanwhile(env: &TestEnv) {
    if env.backend == Backend::Sqlite {
        // SQLite allows no concurrent writer.
        return;
    }
    let (item, key, outbox) = diverged(env).await;
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
    repair.stage(&key, &outbox).await.unwrap();
    let paused = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    env.change(&item.id, &paused).await;
    let refused = repair.commit(&[repaired(&key, 90)], 2, &[]).await;
    assert!(
        matches!(refused, Err(LedgerError::Superseded(_))),
        "{refused:?}"
    );
    let mut repair = env.repair(&key, 5).await;
    assert_eq!(
        (repair.item().state, repair.item().epoch),
        (ItemState::Paused, 2)
    );
    repair.stage(&key, &outbox).await.unwrap();
    repair.commit(&[repaired(&key, 90)], 3, &[]).await.unwrap();
    let item = env.item(&item.id).await.unwrap().unwrap();
    assert_eq!(
        (item.state, item.epoch, item.version),
        (ItemState::Paused, 3, 3)
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn every_staged_segment_must_be_repaired(env: &TestEnv) {
    let (item, key, outbox) = diverged(env).await;
    let mut repair = claimed(env, &item, std::slice::from_ref(&key), 5).await;
    repair.stage(&key, &outbox).await.unwrap();
    assert!(
        matches!(repair.commit(&[], 2, &[]).await, Err(LedgerError::Diverged(unset)) if unset == key)
    );
    assert_eq!(state(env, order_id(&item, 3)).await, None);
    let mut repair = env.repair(&key, 5).await;
    let other = segment(&item, 1);
    assert!(
        repair.stage(&other, &outbox).await.is_err(),
        "a segment that was not claimed"
    );
    repair.release().await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repair_waits_for_claims_and_recorders_skip_its_segments(env: &TestEnv) {
    let (ledger, other) = (env.ledger().await, env.ledger().await);
    let item = env.create("vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    for key in &keys {
        happen(&ledger, key, []).await;
    }
    ledger.claim_item(&item.id, 1).await.unwrap();
    let claim = other.claim(&keys[1..], 9).await.unwrap().unwrap();
    let waiting = {
        let (ledger, keys) = (env.ledger().await, keys.clone());
        tokio::spawn(async move { ledger.claim_for_repair(&keys, 1).await.unwrap() })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    claim.release().await;
    let repair = waiting.await.unwrap();
    assert_eq!(repair.rows().len(), 2);
    if env.backend == Backend::Postgres {
        assert!(other.claim(&keys, 9).await.unwrap().is_none());
    }
    repair.release().await;
    assert_eq!(
        other.claim(&keys, 9).await.unwrap().unwrap().rows().len(),
        2
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn memories_list_every_attempt_that_a_segment_must_store(env: &TestEnv) {
    let item = env.create("vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    happen(
        env,
        &keys[0],
        [take(
            (0..5)
                .map(|n| order(&item, n, 2))
                .chain([order(&item, 5, 9)]),
        )],
    )
    .await;
    happen(env, &keys[1], []).await;
    becomes(env, order_id(&item, 1), OrderState::Confirmed).await;
    for n in [2, 3, 4] {
        becomes(env, order_id(&item, n), OrderState::Expired).await;
    }
    happen(
        env,
        &keys[0],
        [release([order(&item, 3, 2), order(&item, 4, 2)])],
    )
    .await;
    // Order 2 was reacquired elsewhere before its first units were back, order 3 afterwards.
    happen(
        env,
        &keys[1],
        [take([
            again(order(&item, 2, 2), 1),
            again(order(&item, 3, 2), 1),
        ])],
    )
    .await;

    env.claim_item(&item.id, 1).await.unwrap();
    let mut repair = env.claim_for_repair(&keys, 1).await.unwrap();
    repair
        .stage(
            &keys[1],
            &log([opened(&item, 1).change, take([order(&item, 6, 1)])]),
        )
        .await
        .unwrap();
    let everyone: Vec<_> = (0..7).map(|n| order_id(&item, n)).collect();
    let mut memories = repair.memories_of(&everyone).await.unwrap();
    let one = repair.memories_of(&everyone[2..3]).await.unwrap();
    assert_eq!(one.len(), 2, "of this buyer only: {one:?}");
    repair.release().await;
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
        "the latest attempt first, then attempts with a pending return"
    );
    assert_eq!(of(&mut memories, 3), [expected(3, 2, 1, 1, true)]);
    assert_eq!(
        of(&mut memories, 4),
        [expected(4, 2, 0, 0, false)],
        "after the release"
    );
    assert_eq!(
        of(&mut memories, 5),
        [expected(5, 9, 0, 0, false)],
        "rejected"
    );
    assert_eq!(of(&mut memories, 6), [expected(6, 1, 0, 1, true)], "staged");
    assert_eq!(memories, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn repair_applies_the_transfers_that_still_apply(env: &TestEnv) {
    let item = env.create("vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    for key in &keys {
        happen(env, key, []).await;
    }
    env.claim_item(&item.id, 1).await.unwrap();
    let ids = [(); 3].map(|()| TransferId::random());
    let plans = ids.map(|id| TransferPlan {
        id,
        from: 0,
        to: 1,
        units: 8,
    });
    env.plan_transfers(&item.id, 1, &plans).await.unwrap();
    let out = |at: usize, units| {
        Change::TransferredOut(Transferred {
            id: ids[at],
            units,
            token: 1,
        })
    };
    happen(env, &keys[0], [out(0, 3)]).await;

    let mut repair = env.claim_for_repair(&keys, 1).await.unwrap();
    // The units of transfer 0 have already left. Of transfer 1, 6 units left, which the row has. Of
    // transfer 2, 4 units left, of which the row has one.
    let (giver, recorded) = repair
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
    let (taker, recorded) = repair.stage(&keys[1], &log(into)).await.unwrap();
    assert_eq!(
        (taker.allocated, taker.available, recorded.transferred),
        (19, 19, 2)
    );
    repair
        .commit(&keys.each_ref().map(|key| repaired(key, 90)), 2, &[])
        .await
        .unwrap();
    let open = env.open_transfers(None).await.unwrap();
    assert_eq!(
        open.iter()
            .map(|open| (open.id, open.moved, open.state))
            .collect::<Vec<_>>(),
        [(ids[2], 1, TransferState::Out)]
    );
    happen(
        env,
        &keys[1],
        [Change::TransferredIn(Transferred {
            id: ids[2],
            units: 1,
            token: 1,
        })],
    )
    .await;
}
