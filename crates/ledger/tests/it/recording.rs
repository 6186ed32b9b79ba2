//! Every order is recorded once, in any batch and however often its entry is repeated.

use std::{collections::BTreeSet, sync::Arc};

use domain::{Change, Entry, Item, OrderState};
use ledger::{LedgerError, Recorded, SegmentReplay, SegmentRow};
use testkit::{Deadline, on_both_databases, tested};
use tokio::{sync::Barrier, task::JoinSet};

use crate::env::{
    AnyLedger, TestEnv, id, opened, order, order_id, record, rest, row, segment, state, taken,
    try_record,
};

const ENTRIES: usize = 40;
const ORDERS_PER_ENTRY: usize = 5;

/// The whole outbox of a segment, in which orders request more units than exist.
fn log(item: &Item, segment: u16) -> Vec<Entry> {
    let mut log = vec![opened(item, segment)];
    for entry in 0..ENTRIES {
        let first = (usize::from(segment) * ENTRIES + entry) * ORDERS_PER_ENTRY;
        let orders = (first..first + ORDERS_PER_ENTRY)
            .map(|n| order(item, n, 1 + n as u32 % 3))
            .collect();
        log.push(taken(id(10 + entry as u64 / 3, entry as u64 % 3), orders));
    }
    log
}

#[tested(on_both_databases(crate::env::run))]
async fn two_concurrent_recorders_record_everything_once(env: &TestEnv) {
    let segments = 4;
    let ledger = env.ledger().await;
    let item = Arc::new(env.create("vase", 4 * 350, segments).await);
    let logs: Arc<Vec<_>> = Arc::new((0..segments).map(|segment| log(&item, segment)).collect());
    let barrier = Arc::new(Barrier::new(4));
    let mut recorders = JoinSet::new();
    for chunk in [3, 7, 5, 1] {
        let (ledger, item, logs, barrier) = (
            env.ledger().await,
            Arc::clone(&item),
            Arc::clone(&logs),
            Arc::clone(&barrier),
        );
        recorders.spawn(async move {
            barrier.wait().await;
            record_all(&ledger, &item, &logs, chunk).await
        });
    }
    let recorded: Vec<Recorded> = recorders.join_all().await.into_iter().flatten().collect();

    assert_eq!(
        recorded
            .iter()
            .map(|recorded| recorded.repeated)
            .sum::<usize>(),
        0,
        "no recorder met orders that another had recorded"
    );
    let held: usize = recorded.iter().map(|recorded| recorded.held).sum();
    let rejected: BTreeSet<_> = recorded
        .iter()
        .flat_map(|recorded| &recorded.rejected)
        .copied()
        .collect();
    assert_eq!(
        held + rejected.len(),
        usize::from(segments) * ENTRIES * ORDERS_PER_ENTRY
    );
    assert!(!rejected.is_empty());
    let totals = ledger.totals(&item.id).await.unwrap().unwrap();
    assert_eq!(
        totals.orders_by_state,
        [
            ("held".into(), held as u64),
            ("rejected".into(), rejected.len() as u64)
        ]
    );
    for row in &totals.segments {
        assert_eq!(
            row.checkpoint,
            logs[usize::from(row.key.segment)]
                .last()
                .map(|entry| entry.id)
        );
        let times = recorded
            .iter()
            .filter(|recorded| recorded.key == row.key)
            .count() as u64;
        assert_eq!(row.version, 1 + times, "{}", row.key);
    }
}

/// Records like the recorder, until all logs are recorded.
async fn record_all(
    ledger: &impl AnyLedger,
    item: &Item,
    logs: &[Vec<Entry>],
    chunk: usize,
) -> Vec<Recorded> {
    let mut wanted: Vec<_> = (0..item.segments)
        .map(|number| segment(item, number))
        .collect();
    let mut all = Vec::new();
    let deadline = Deadline::start();
    while !is_all_recorded(ledger, item, logs).await {
        deadline.check("some entries were never recorded");
        // Vary the pairs of segments.
        wanted.rotate_left(1);
        let Some(claim) = ledger.claim(&wanted, 2).await.unwrap() else {
            continue;
        };
        let replay = |row: &SegmentRow| {
            let entries = rest(row, &logs[usize::from(row.key.segment)], chunk);
            (!entries.is_empty()).then(|| SegmentReplay {
                row: row.clone(),
                entries,
            })
        };
        let replays: Vec<_> = claim.rows().iter().filter_map(replay).collect();
        if !replays.is_empty() {
            all.extend(claim.record(replays).await.unwrap());
        }
    }
    all
}

async fn is_all_recorded(ledger: &impl AnyLedger, item: &Item, logs: &[Vec<Entry>]) -> bool {
    let rows = ledger.segments(&item.id).await.unwrap();
    rows.iter().all(|row| {
        row.checkpoint
            == logs[usize::from(row.key.segment)]
                .last()
                .map(|entry| entry.id)
    })
}

/// A retry that took units a second time after a lost failover stands in two outboxes. Two
/// recorders must neither both count it nor deadlock.
#[tested(on_both_databases(crate::env::run))]
async fn orders_in_the_outboxes_of_two_segments_are_recorded_once(env: &TestEnv) {
    for round in 0..5 {
        let item = env.create(&format!("vase-{round}"), 1000, 2).await;
        let orders: Vec<_> = (0..300).map(|n| order(&item, n, 1)).collect();
        let barrier = Arc::new(Barrier::new(2));
        let mut recorders = JoinSet::new();
        for number in 0..2 {
            let (ledger, barrier, item, mut orders) = (
                env.ledger().await,
                Arc::clone(&barrier),
                item.clone(),
                orders.clone(),
            );
            recorders.spawn(async move {
                if number == 1 {
                    orders.reverse();
                }
                barrier.wait().await;
                record(
                    &ledger,
                    &segment(&item, number),
                    vec![opened(&item, number), taken(id(5, 0), orders)],
                )
                .await
            });
        }
        let recorded = recorders.join_all().await;
        assert_eq!(
            recorded.iter().map(|recorded| recorded.held).sum::<usize>(),
            300
        );
        assert_eq!(
            recorded
                .iter()
                .map(|recorded| recorded.repeated)
                .sum::<usize>(),
            300
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_the_row_cannot_cover_is_rejected(env: &TestEnv) {
    let item = env.create("vase", 5, 1).await;
    let key = segment(&item, 0);
    let orders = vec![order(&item, 0, 3), order(&item, 1, 3), order(&item, 2, 2)];
    let recorded = record(env, &key, vec![opened(&item, 0), taken(id(2, 0), orders)]).await;
    let expected = Recorded {
        key: key.clone(),
        after: None,
        checkpoint: id(2, 0),
        held: 2,
        rejected: vec![order_id(&item, 1)],
        repeated: 0,
        returned: 0,
        transferred: 0,
    };
    assert_eq!(recorded, expected, "the smaller order behind it is held");
    let row = row(env, &key).await;
    assert_eq!(
        (row.available, row.held, row.version, row.anchor),
        (0, 5, 2, Some(-2))
    );
    assert_eq!(
        state(env, order_id(&item, 1)).await,
        Some(OrderState::Rejected)
    );
    assert_eq!(state(env, order_id(&item, 2)).await, Some(OrderState::Held));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_order_changes_nothing(env: &TestEnv) {
    let item = env.create("vase", 20, 2).await;
    let (first, second) = (segment(&item, 0), segment(&item, 1));
    let twice = vec![
        opened(&item, 0),
        taken(id(2, 0), vec![order(&item, 0, 2), order(&item, 0, 2)]),
        taken(id(2, 1), vec![order(&item, 0, 2)]),
    ];
    let recorded = record(env, &first, twice).await;
    assert_eq!((recorded.held, recorded.repeated), (1, 2), "in one batch");

    let again = vec![taken(
        id(3, 0),
        vec![order(&item, 1, 1), order(&item, 0, 2)],
    )];
    let recorded = record(env, &first, again).await;
    assert_eq!((recorded.held, recorded.repeated), (1, 1), "across batches");

    let elsewhere = vec![
        opened(&item, 1),
        taken(id(2, 0), vec![order(&item, 0, 2), order(&item, 2, 1)]),
    ];
    let recorded = record(env, &second, elsewhere).await;
    assert_eq!(
        (recorded.held, recorded.repeated),
        (1, 1),
        "across segments"
    );

    assert_eq!(row(env, &first).await.held, 3);
    assert_eq!(row(env, &second).await.held, 1);
    assert_eq!(
        env.order(order_id(&item, 0))
            .await
            .unwrap()
            .unwrap()
            .segment,
        0
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_rejected_order_stays_rejected(env: &TestEnv) {
    let item = env.create("vase", 4, 2).await;
    record(
        env,
        &segment(&item, 0),
        vec![opened(&item, 0), taken(id(2, 0), vec![order(&item, 0, 3)])],
    )
    .await;
    let recorded = record(
        env,
        &segment(&item, 0),
        vec![taken(id(3, 0), vec![order(&item, 0, 1)])],
    )
    .await;
    assert_eq!(
        (recorded.held, recorded.repeated, recorded.rejected.len()),
        (0, 1, 0)
    );
    assert_eq!(
        state(env, order_id(&item, 0)).await,
        Some(OrderState::Rejected)
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn several_segments_are_recorded_in_one_transaction(env: &TestEnv) {
    let item = env.create("vase", 30, 3).await;
    let wanted: Vec<_> = (0..3).map(|number| segment(&item, number)).collect();
    let claim = env.claim(&wanted, 9).await.unwrap().unwrap();
    let replays = claim.rows().iter().map(|row| {
        let number = row.key.segment;
        let orders = (0..=number)
            .map(|n| order(&item, usize::from(number * 10 + n), 1))
            .collect();
        SegmentReplay {
            row: row.clone(),
            entries: vec![opened(&item, number), taken(id(2, 0), orders)],
        }
    });
    let replays = replays.collect();
    let mut held: Vec<_> = claim
        .record(replays)
        .await
        .unwrap()
        .into_iter()
        .map(|recorded| (recorded.key.segment, recorded.held))
        .collect();
    held.sort_unstable();
    assert_eq!(held, [(0, 1), (1, 2), (2, 3)]);
    let mut checkpoints = env.checkpoints().await.unwrap();
    checkpoints.sort_unstable();
    assert_eq!(
        checkpoints,
        wanted
            .into_iter()
            .map(|key| (key, Some(id(2, 0))))
            .collect::<Vec<_>>()
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_history_that_does_not_continue_changes_nothing(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let key = segment(&item, 0);
    let other_units = Entry {
        id: id(1, 0),
        fingerprint: 1,
        change: Change::Opened {
            units: 11,
            epoch: 1,
        },
    };
    for entries in [
        vec![taken(id(1, 0), vec![order(&item, 0, 1)])],
        vec![other_units, taken(id(2, 0), vec![order(&item, 0, 1)])],
    ] {
        let refused = try_record(env, &key, entries).await;
        assert!(matches!(refused, Err(LedgerError::Diverged(diverged)) if diverged == key));
    }
    let before = row(env, &key).await;
    assert_eq!((before.checkpoint, before.version), (None, 1));
    assert_eq!(state(env, order_id(&item, 0)).await, None);
}

#[tested(on_both_databases(crate::env::run))]
async fn entry_ids_compare_as_numbers(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let key = segment(&item, 0);
    record(
        env,
        &key,
        vec![opened(&item, 0), taken(id(9, 9), vec![order(&item, 0, 1)])],
    )
    .await;
    record(env, &key, vec![taken(id(9, 10), vec![order(&item, 1, 1)])]).await;
    record(env, &key, vec![taken(id(10, 0), vec![order(&item, 2, 1)])]).await;
    // As text, this id would be greater.
    let refused = try_record(env, &key, vec![taken(id(9, 11), vec![order(&item, 3, 1)])]).await;
    assert!(matches!(refused, Err(LedgerError::Diverged(_))));
    let row = row(env, &key).await;
    assert_eq!(
        (row.checkpoint, row.held, row.version),
        (Some(id(10, 0)), 3, 4)
    );
    let far = id(u64::MAX, u64::MAX);
    record(env, &key, vec![taken(far, vec![])]).await;
    assert_eq!(env.checkpoints().await.unwrap(), [(key, Some(far))]);
}
