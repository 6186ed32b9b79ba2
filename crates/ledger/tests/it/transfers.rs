//! Transfers: new units, withdrawn units, and units between segments, with their entries in any
//! order and repeated.

use std::sync::Arc;

use domain::{Change, IdempotencyKey, Item, SegmentKey, TransferId, Transferred, Wave};
use jiff::Timestamp;
use ledger::{
    Changed, ItemChange, LedgerError, StockChange, StockPart, Transfer, TransferPlan, TransferState,
};
use testkit::{on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::{AnyLedger, TestEnv, counters, happen, order, row, segment, take, try_happen};

fn out(id: TransferId, units: u64) -> Change {
    Change::TransferredOut(Transferred {
        id,
        units,
        token: 1,
    })
}

fn into(id: TransferId, units: u64) -> Change {
    Change::TransferredIn(Transferred {
        id,
        units,
        token: 1,
    })
}

fn part(item: &Item, key: &str, segment: u16, units: u64) -> StockPart {
    StockPart {
        transfer: TransferId::derive(&item.id, &IdempotencyKey::new(key).unwrap(), segment),
        segment,
        units,
    }
}

fn item_of(changed: Changed) -> Item {
    match changed {
        Changed::Item(item) => item,
        other => panic!("{other:?}"),
    }
}

async fn open(ledger: &impl AnyLedger, item: &Item) -> Vec<Transfer> {
    ledger.open_transfers(Some(&item.id)).await.unwrap()
}

/// The available units of each of the two segments.
async fn available(ledger: &impl AnyLedger, [one, other]: &[SegmentKey; 2]) -> [u64; 2] {
    [
        counters(ledger, one).await[0],
        counters(ledger, other).await[0],
    ]
}

/// An item of 20 units with two open segments, claimed by token 1.
async fn opened(env: &TestEnv) -> (Item, [SegmentKey; 2]) {
    let item = env.create("vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    for key in &keys {
        happen(env, key, []).await;
    }
    env.claim_item(&item.id, 1).await.unwrap();
    (item, keys)
}

#[tested(on_both_databases(crate::env::run))]
async fn new_units_are_in_transit_until_they_have_arrived(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    let parts = vec![part(&item, "k", 0, 5), part(&item, "k", 1, 4)];
    let ids: Vec<_> = parts.iter().map(|part| part.transfer).collect();
    let changed = env
        .change_units_at(&item.id, &StockChange::TopUp(parts), Some(1))
        .await;
    assert_eq!(
        item_of(changed),
        Item {
            stock: 29,
            version: 2,
            ..item.clone()
        },
        "the epoch covers only settings that segments receive"
    );
    assert_eq!(env.totals(&item.id).await.unwrap().unwrap().in_transit, 9);
    let mut found = open(env, &item).await;
    found.sort_unstable_by_key(|transfer| transfer.to);
    for (number, transfer) in found.iter().enumerate() {
        let units = 5 - number as u64;
        let expected = Transfer {
            id: ids[number],
            item: item.id.clone(),
            from: None,
            to: Some(number as u16),
            quantity: units,
            moved: units,
            ..transfer.clone()
        };
        assert_eq!((transfer, transfer.state), (&expected, TransferState::Out));
    }
    assert_eq!(env.open_transfers(None).await.unwrap().len(), 2);

    let recorded = happen(env, &keys[0], [into(ids[0], 5), into(ids[0], 5)]).await;
    assert_eq!(recorded.transferred, 1, "once");
    assert_eq!(
        happen(env, &keys[0], [into(ids[0], 5), into(ids[1], 4)])
            .await
            .transferred,
        0,
        "neither a repeat nor another segment counts"
    );
    assert_eq!(
        happen(env, &keys[1], [into(ids[1], 4)]).await.transferred,
        1
    );
    assert_eq!(available(env, &keys).await, [15, 14]);
    assert_eq!(row(env, &keys[0]).await.allocated, 15);
    assert_eq!(open(env, &item).await, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_change_of_stock_changes_nothing(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    let more = StockChange::TopUp(vec![part(&item, "k", 0, 5), part(&item, "k", 1, 0)]);
    let changed = item_of(env.change_units(&item.id, &more).await);
    assert_eq!(changed.stock, 25);
    for expected in [None, Some(1), Some(2)] {
        assert_eq!(
            item_of(env.change_units_at(&item.id, &more, expected).await),
            changed,
            "{expected:?}"
        );
    }
    let otherwise = StockChange::TopUp(vec![part(&item, "k", 0, 3), part(&item, "k", 1, 2)]);
    assert_eq!(
        item_of(env.change_units(&item.id, &otherwise).await),
        changed,
        "split differently"
    );
    assert_eq!(open(env, &item).await.len(), 1);
    happen(env, &keys[0], [into(part(&item, "k", 0, 5).transfer, 5)]).await;
    assert_eq!(
        item_of(env.change_units(&item.id, &more).await),
        changed,
        "after they have arrived"
    );
    let nothing = StockChange::TopUp(vec![part(&item, "l", 0, 0)]);
    assert_eq!(item_of(env.change_units(&item.id, &nothing).await), changed);
    assert_eq!(env.journal(&item.id, 9).await.unwrap().len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_of_stock_with_a_reused_key_for_another_request_is_refused(env: &TestEnv) {
    let (item, _) = opened(env).await;
    let (more, fewer) = (
        |units| StockChange::TopUp(vec![part(&item, "k", 0, units)]),
        |key, units| StockChange::Withdraw(vec![part(&item, key, 0, units)]),
    );
    let changed = item_of(env.change_units(&item.id, &more(5)).await);
    // Nine units were requested, and two were available.
    let changed = item_of(
        env.change_stock_by(&item.id, &fewer("l", 2), 9, Some(changed.version), "admin")
            .await
            .unwrap(),
    );
    let same = [
        (more(5), 5),
        (fewer("l", 2), 9),
        (fewer("l", 4), 9),
        (fewer("l", 0), 9),
    ];
    for (change, requested) in same {
        assert_eq!(
            item_of(
                env.change_stock_by(&item.id, &change, requested, None, "admin")
                    .await
                    .unwrap()
            ),
            changed,
            "{change:?}"
        );
    }
    let others = [
        (more(6), 6),
        (more(4), 4),
        (fewer("k", 5), 5),
        (fewer("l", 2), 2),
        (fewer("l", 9), 10),
    ];
    for (change, requested) in others {
        let refused = env
            .change_stock_by(&item.id, &change, requested, None, "admin")
            .await
            .unwrap();
        assert_eq!(refused, Changed::OtherChange(changed.clone()), "{change:?}");
    }
    // A repeat that would use other segments.
    let wider = StockChange::TopUp(vec![part(&item, "k", 1, 3), part(&item, "k", 0, 3)]);
    assert_eq!(
        env.change_units(&item.id, &wider).await,
        Changed::OtherChange(changed.clone())
    );
    assert_eq!(
        (
            open(env, &item).await.len(),
            env.item(&item.id).await.unwrap()
        ),
        (2, Some(changed))
    );
    let journal = env.journal(&item.id, 9).await.unwrap();
    assert_eq!(
        journal
            .iter()
            .map(|noted| noted.entry.after["requested"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [9, 5]
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn transfers_are_found_by_id_in_every_state(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    let parts = [part(&item, "k", 0, 5), part(&item, "k", 1, 4)];
    env.change_units(&item.id, &StockChange::Withdraw(parts.to_vec()))
        .await;
    let planned = planned(env, &item, 1).await;
    happen(env, &keys[0], [out(parts[0].transfer, 3)]).await;
    let left = open(env, &item)
        .await
        .into_iter()
        .find(|transfer| transfer.id == parts[0].transfer)
        .unwrap();
    env.finish_withdrawal(&left, 1, "reconciler").await.unwrap();
    let ids = [parts[1].transfer, TransferId::random(), parts[0].transfer];
    let mut found: Vec<_> = env.transfers(&ids).await.unwrap();
    found.sort_unstable_by_key(|transfer| transfer.from);
    let progress: Vec<_> = found
        .iter()
        .map(|transfer| {
            (
                transfer.id,
                transfer.quantity,
                transfer.moved,
                transfer.state,
            )
        })
        .collect();
    assert_eq!(
        progress,
        [
            (parts[0].transfer, 5, 3, TransferState::Done),
            (parts[1].transfer, 4, 0, TransferState::Planned)
        ]
    );
    assert_eq!(env.transfers(&[planned]).await.unwrap()[0].to, Some(1));
    assert_eq!(env.transfers(&[]).await.unwrap(), []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_of_stock_on_another_version_changes_nothing(env: &TestEnv) {
    let (item, _) = opened(env).await;
    let more = StockChange::TopUp(vec![part(&item, "k", 0, 5)]);
    let refused = env.change_units_at(&item.id, &more, Some(7)).await;
    assert_eq!(refused, Changed::OtherVersion(item.clone()));
    assert_eq!(
        (
            env.item(&item.id).await.unwrap().unwrap(),
            open(env, &item).await
        ),
        (item.clone(), vec![])
    );
    let missing = domain::ItemId::new("missing").unwrap();
    assert_eq!(env.change_units(&missing, &more).await, Changed::NoItem);
    assert_eq!(env.journal(&item.id, 9).await.unwrap(), []);
    item_of(env.change_units_at(&item.id, &more, Some(1)).await);
}

#[tested(on_both_databases(crate::env::run))]
async fn withdrawn_units_leave_the_stock_after_leaving_their_segment(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    happen(env, &keys[0], [take([order(&item, 0, 8)])]).await;
    let fewer = StockChange::Withdraw(vec![part(&item, "k", 0, 6)]);
    let changed = item_of(env.change_units(&item.id, &fewer).await);
    assert_eq!((changed.stock, changed.version), (20, 2));
    let transfer = open(env, &item).await.remove(0);
    assert_eq!(
        (
            transfer.from,
            transfer.to,
            transfer.quantity,
            transfer.moved,
            transfer.state
        ),
        (Some(0), None, 6, 0, TransferState::Planned)
    );
    env.finish_withdrawal(&transfer, 1, "reconciler")
        .await
        .unwrap();
    assert_eq!(
        open(env, &item).await,
        std::slice::from_ref(&transfer),
        "it cannot finish before the units have left"
    );

    happen(env, &keys[0], [out(transfer.id, 2)]).await;
    let transfer = open(env, &item).await.remove(0);
    assert_eq!(
        (transfer.moved, transfer.state),
        (2, TransferState::Out),
        "orders have the rest"
    );
    assert_eq!(env.totals(&item.id).await.unwrap().unwrap().in_transit, 2);
    for _ in 0..2 {
        env.finish_withdrawal(&transfer, 1, "reconciler")
            .await
            .unwrap();
        let item = env.item(&item.id).await.unwrap().unwrap();
        assert_eq!((item.stock, item.version), (18, 3), "once");
    }
    assert_eq!(open(env, &item).await, []);
    let journal = env.journal(&item.id, 9).await.unwrap();
    let noted: Vec<_> = journal
        .iter()
        .map(|noted| (&*noted.entry.action, &*noted.entry.actor, noted.entry.token))
        .collect();
    assert_eq!(
        noted,
        [
            ("withdrawn", "reconciler", Some(1)),
            ("withdraw", "admin", None)
        ]
    );
    assert_eq!(
        (
            &journal[0].entry.before["stock"],
            &journal[0].entry.after["stock"]
        ),
        (&20.into(), &18.into())
    );
}

/// Plans a transfer from the first segment to the second.
async fn plan(ledger: &impl AnyLedger, item: &Item, id: TransferId, units: u64) {
    let plan = TransferPlan {
        id,
        from: 0,
        to: 1,
        units,
    };
    ledger.plan_transfers(&item.id, 1, &[plan]).await.unwrap();
}

async fn planned(ledger: &impl AnyLedger, item: &Item, units: u64) -> TransferId {
    let id = TransferId::random();
    plan(ledger, item, id, units).await;
    id
}

#[tested(on_both_databases(crate::env::run))]
async fn a_transfer_delivers_the_units_that_have_left(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    for (asked, moved) in [(5, 5), (5, 3), (1, 0)] {
        let id = planned(env, &item, asked).await;
        let before = available(env, &keys).await;
        happen(env, &keys[0], [out(id, moved)]).await;
        assert_eq!(
            env.totals(&item.id).await.unwrap().unwrap().in_transit,
            moved
        );
        happen(env, &keys[1], [into(id, moved)]).await;
        let after = available(env, &keys).await;
        assert_eq!(after, [before[0] - moved, before[1] + moved]);
        assert_eq!(open(env, &item).await, []);
    }
    // Planning a finished transfer again changes nothing.
    let id = planned(env, &item, 1).await;
    for _ in 0..2 {
        plan(env, &item, id, 1).await;
    }
    assert_eq!(open(env, &item).await.len(), 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn entries_of_a_transfer_count_once_in_any_order(env: &TestEnv) {
    // true: an entry of the giving segment; false: of the receiving segment.
    let orders: [&[bool]; 5] = [
        &[true, true, false, false],
        &[false, true, false, true],
        &[false, false, true, false],
        &[true, false, true, false],
        &[false, true, true, false],
    ];
    for (number, order) in orders.into_iter().enumerate() {
        let item = env.create(&format!("vase-{number}"), 20, 2).await;
        let keys = [0, 1].map(|number| segment(&item, number));
        for key in &keys {
            happen(env, key, []).await;
        }
        env.claim_item(&item.id, 1).await.unwrap();
        let id = planned(env, &item, 4).await;
        for leaves in order {
            let (key, entry) = if *leaves {
                (&keys[0], out(id, 4))
            } else {
                (&keys[1], into(id, 4))
            };
            happen(env, key, [entry]).await;
            crate::env::assert_identity(&env.totals(&item.id).await.unwrap().unwrap());
        }
        assert_eq!(available(env, &keys).await, [6, 14], "{order:?}");
        // The entries have no effect at another segment.
        happen(env, &keys[1], [out(id, 4)]).await;
        happen(env, &keys[0], [into(id, 4)]).await;
        assert_eq!(available(env, &keys).await, [6, 14], "{order:?}");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn entries_that_contradict_the_transfer_are_diverged(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    let id = planned(env, &item, 5).await;
    happen(env, &keys[0], [take([order(&item, 0, 8)])]).await;
    let before = row(env, &keys[0]).await;
    for (units, case) in [(3, "more than available"), (6, "more than requested")] {
        let refused = try_happen(env, &keys[0], [out(id, units)]).await;
        assert!(
            matches!(&refused, Err(LedgerError::Diverged(key)) if *key == keys[0]),
            "{case}: {refused:?}"
        );
    }
    assert_eq!(
        (row(env, &keys[0]).await, open(env, &item).await[0].state),
        (before, TransferState::Planned)
    );
    happen(env, &keys[0], [out(id, 2)]).await;
    let refused = try_happen(env, &keys[1], [into(id, 3)]).await;
    assert!(
        matches!(refused, Err(LedgerError::Diverged(key)) if key == keys[1]),
        "more units arrive than have left"
    );
    happen(env, &keys[1], [into(id, 2)]).await;

    // Entries of a repair that the recorder meets: `halted` has no effect. A counter that differs
    // from the row's means that the history has diverged.
    happen(
        env,
        &keys[0],
        [
            Change::Halted { token: 9 },
            Change::Adjusted {
                units: 0,
                epoch: 2,
                token: 9,
            },
        ],
    )
    .await;
    let refused = try_happen(
        env,
        &keys[0],
        [Change::Adjusted {
            units: 1,
            epoch: 2,
            token: 9,
        }],
    )
    .await;
    assert!(matches!(refused, Err(LedgerError::Diverged(key)) if key == keys[0]));
}

#[tested(on_both_databases(crate::env::run))]
async fn only_the_highest_token_plans_and_finishes(env: &TestEnv) {
    let (item, keys) = opened(env).await;
    env.claim_item(&item.id, 5).await.unwrap();
    env.claim_item(&item.id, 5).await.unwrap();
    let refused = env.claim_item(&item.id, 4).await;
    assert!(
        matches!(refused, Err(LedgerError::Fenced { token: 4, fence: 5 })),
        "{refused:?}"
    );
    let fewer = StockChange::Withdraw(vec![part(&item, "k", 0, 6)]);
    env.change_units(&item.id, &fewer).await;
    let transfer = open(env, &item).await.remove(0);
    happen(env, &keys[0], [out(transfer.id, 6)]).await;
    let plan = [TransferPlan {
        id: TransferId::random(),
        from: 0,
        to: 1,
        units: 1,
    }];
    for token in [4, 6] {
        let refused = env
            .plan_transfers(&item.id, token, &plan)
            .await
            .unwrap_err();
        assert!(
            matches!(refused, LedgerError::Fenced { fence: 5, .. }) && !refused.is_retryable(),
            "{refused:?}"
        );
        let refused = env.finish_withdrawal(&transfer, token, "reconciler").await;
        assert!(
            matches!(refused, Err(LedgerError::Fenced { fence: 5, .. })),
            "{refused:?}"
        );
    }
    let found = open(env, &item).await;
    assert_eq!((found.len(), found[0].state), (1, TransferState::Out));
    assert_eq!(env.item(&item.id).await.unwrap().unwrap().stock, 20);
    env.plan_transfers(&item.id, 5, &plan).await.unwrap();
    env.plan_transfers(&item.id, 5, &[]).await.unwrap();
    env.finish_withdrawal(&transfer, 5, "reconciler")
        .await
        .unwrap();
    assert_eq!(env.item(&item.id).await.unwrap().unwrap().stock, 14);
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_additions_of_the_same_units_add_them_once(env: &TestEnv) {
    let (item, _) = opened(env).await;
    for round in 1..=5 {
        let parts: Vec<_> = (0..2)
            .map(|segment| part(&item, &format!("k-{round}"), segment, 3))
            .collect();
        let mut adders = tokio::task::JoinSet::new();
        for reversed in [false, true, false, true] {
            let (ledger, item, mut parts) = (env.ledger().await, item.clone(), parts.clone());
            if reversed {
                parts.reverse();
            }
            adders.spawn(async move {
                item_of(
                    ledger
                        .change_stock(&item.id, &StockChange::TopUp(parts), None, "admin")
                        .await
                        .unwrap(),
                )
                .stock
            });
        }
        assert_eq!(adders.join_all().await, [20 + 6 * round; 4]);
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn concurrent_additions_and_waves_keep_to_the_maximum(env: &TestEnv) {
    let ledgers = [env.ledger().await, env.ledger().await];
    let ledger = &ledgers[0];
    let item = env.create_unlimited("vase", Item::MAX_STOCK - 10, 1).await;
    let waves = |units| ItemChange {
        waves: Some(vec![Wave {
            at: Timestamp::from_second(2_000_000_000).unwrap(),
            units,
            is_added: false,
        }]),
        ..ItemChange::default()
    };
    let above = ledger
        .change_item(&item.id, &waves(11), None, "admin")
        .await
        .unwrap();
    assert_eq!(above, Changed::AboveMaximum(item.clone()));
    let changed = ledger.change_item(&item.id, &waves(7), None, "admin").await;
    item_of(changed.unwrap());
    let add = |at: usize| {
        let key = format!("k{at}");
        let more = StockChange::TopUp(vec![part(&item, &key, 0, 1)]);
        let (ledger, id) = (Arc::clone(&ledgers[at % 2]), item.id.clone());
        async move {
            let added = ledger.change_stock(&id, &more, None, "admin").await;
            (at, added.unwrap())
        }
    };
    let adding: JoinSet<_> = (0..8).map(add).collect();
    let mut added = adding.join_all().await;
    added.sort_unstable_by_key(|(at, _)| *at);
    let made = |changed: &Changed| matches!(changed, Changed::Item(_));
    let done = added.iter().filter(|(_, changed)| made(changed));
    assert_eq!(done.count(), 3);
    for (at, first) in &added {
        let (_, again) = add(*at).await;
        assert_eq!(made(&again), made(first), "{first:?}, then {again:?}");
        assert!(made(&again) || matches!(again, Changed::AboveMaximum(_)));
    }
    let stock = ledger.item(&item.id).await.unwrap().unwrap().stock;
    assert_eq!(stock, Item::MAX_STOCK - 7);
    assert_eq!(open(ledger, &item).await.len(), 3);
}
