//! Payment, expiry, cancellation, returns and reacquisitions run concurrently over rows that
//! recorders keep claiming. There is no deadlock, exactly one transition of each order wins, and
//! the sums hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{Item, Order, OrderState, SegmentKey, TakenOrder};
use jiff::Timestamp;
use ledger::{ItemScope, Repaired, SegmentReplay, Transition};
use testkit::{Backend, Deadline, in_time, on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::{
    AnyLedger, TestEnv, again, assert_identity, counters, happen, id, opened, order, order_id,
    release, returning, segment, take,
};

const SEGMENTS: u16 = 3;
const ORDERS: usize = 240;

#[tested(on_both_databases(crate::env::run))]
async fn a_sale_with_all_operations_concurrently_loses_and_duplicates_nothing(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = env.create("vase", 3000, SEGMENTS).await;
    for number in 0..SEGMENTS {
        happen(&ledger, &segment(&item, number), []).await;
    }
    ledger.claim_item(&item.id, 1).await.unwrap();
    let (over, moved) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut movers = JoinSet::new();
    for (seed, to) in [
        (1, OrderState::Expired),
        (2, OrderState::Confirmed),
        (3, OrderState::Cancelled),
        (4, OrderState::Refunded),
        (5, OrderState::RefundDue),
    ] {
        let (ledger, item, over, moved) = (
            env.ledger().await,
            item.clone(),
            Arc::clone(&over),
            Arc::clone(&moved),
        );
        movers.spawn(async move {
            make_random_transitions(&ledger, &item, to, seed, &over, &moved).await
        });
    }
    let recorders: Vec<_> = (0..2)
        .map(|seed| {
            let (ledger, item, moved) = (Arc::clone(&ledger), item.clone(), Arc::clone(&moved));
            tokio::spawn(async move { record_for_a_while(&ledger, &item, seed, &moved).await })
        })
        .collect();
    for recorder in recorders {
        recorder.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    movers.join_all().await;

    // After the remaining returns and transfers are recorded, every unit is accounted for.
    for back in returning(&ledger, &item).await {
        let taken = TakenOrder {
            id: back.id,
            buyer: back.buyer,
            quantity: back.quantity,
        };
        assert_eq!(
            happen(&ledger, &back.segment, [release([taken])])
                .await
                .returned,
            1
        );
    }
    let totals = ledger.totals(&item.id).await.unwrap().unwrap();
    assert_identity(&totals);
    assert!(totals.segments.iter().all(|row| row.returning == 0));
    assert_eq!(
        totals
            .orders_by_state
            .iter()
            .map(|(_, orders)| orders)
            .sum::<u64>(),
        ORDERS as u64 * 2
    );
}

/// Records entries that take, reacquire, release and repair.
async fn record_for_a_while(
    ledger: &impl AnyLedger,
    item: &Item,
    seed: usize,
    moved: &AtomicUsize,
) {
    let wanted: Vec<_> = (0..SEGMENTS).map(|number| segment(item, number)).collect();
    let (mut fresh, mut round) = (0, 0);
    let deadline = Deadline::start();
    while fresh < ORDERS || moved.load(Ordering::Relaxed) < ORDERS {
        deadline.check("too few orders were moved");
        round += 1;
        let Some(claim) = ledger.claim(&wanted[round % 3..], 2).await.unwrap() else {
            continue;
        };
        let now = Timestamp::now() + Duration::from_secs(1);
        let returns = ledger
            .pending_returns(ItemScope::Only(&item.id), now, 20)
            .await
            .unwrap();
        let mut replays = Vec::new();
        for row in claim.rows() {
            let new = (0..6.min(ORDERS - fresh))
                .map(|n| order(item, seed * ORDERS + fresh + n, 1 + (n as u32 % 3)));
            let new: Vec<_> = new.collect();
            fresh += new.len();
            let back = returns.iter().filter(|back| back.segment == row.key);
            let back: Vec<_> = back
                .map(|back| TakenOrder {
                    id: back.id,
                    buyer: back.buyer.clone(),
                    quantity: back.quantity,
                })
                .collect();
            let reacquisitions = back
                .iter()
                .filter(|back| back.id.attempt() < 7)
                .map(|back| {
                    let attempt = back.id.attempt() + 1;
                    again(
                        TakenOrder {
                            id: back.id.first(),
                            ..back.clone()
                        },
                        attempt,
                    )
                });
            let changes = [take(new), take(reacquisitions), release(back.clone())];
            let first = row.checkpoint.unwrap().ms + 1;
            let entries = changes
                .into_iter()
                .zip(first..)
                .map(|(change, ms)| domain::Entry {
                    id: id(ms, 0),
                    fingerprint: 1,
                    change,
                });
            replays.push(SegmentReplay {
                row: row.clone(),
                entries: entries.collect(),
            });
        }
        claim.record(replays).await.unwrap();
        if round % 10 == 0 {
            repair(ledger, &wanted[seed..=seed]).await;
        }
    }
}

async fn repair(ledger: &impl AnyLedger, keys: &[SegmentKey]) {
    let mut repair = ledger.claim_for_repair(keys, 1).await.unwrap();
    let checkpoint = repair.rows()[0].checkpoint.unwrap();
    repair.stage(&keys[0], &[]).await.unwrap();
    let epoch = repair.item().epoch;
    let repaired = Repaired {
        segment: keys[0].clone(),
        checkpoint: id(checkpoint.ms + 1, 0),
        anchor: 1,
    };
    repair.commit(&[repaired], epoch, &[]).await.unwrap();
}

/// Makes random transitions, one by one and in batches, until the sale ends.
async fn make_random_transitions(
    ledger: &impl AnyLedger,
    item: &Item,
    to: OrderState,
    seed: usize,
    over: &AtomicBool,
    moved: &AtomicUsize,
) {
    let mut round = seed;
    while !over.load(Ordering::Relaxed) {
        round += 1;
        let mut steps = Vec::new();
        for n in 0..round % 7 {
            let id = order_id(item, (round * 37 + n * 11 + seed) % (2 * ORDERS));
            let Some(order) = ledger.order(id).await.unwrap() else {
                continue;
            };
            if order.state.may_become(to)
                && steps.iter().all(|step: &Transition| step.order.id != id)
            {
                steps.push(Transition {
                    order,
                    to,
                    payment: None,
                });
            }
        }
        match ledger.transition(&steps).await {
            Ok(made) => {
                moved.fetch_add(made.into_iter().flatten().count(), Ordering::Relaxed);
            }
            // SQLite has one writer at a time and no queue: on a slow disk one may wait in vain.
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A recorder that skips a segment does not come back for it. It must therefore not skip a segment
/// because of a transition, after which no entry remains to be recorded.
#[tested(on_both_databases(crate::env::run))]
async fn a_recorder_waits_for_a_transition_and_skips_no_segment(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = env.create("vase", 200, 1).await;
    let key = segment(&item, 0);
    happen(&ledger, &key, [take((0..100).map(|n| order(&item, n, 1)))]).await;
    let (over, made) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut movers = JoinSet::new();
    for half in 0..2 {
        let (ledger, over, made) = (env.ledger().await, Arc::clone(&over), Arc::clone(&made));
        let mut orders = Vec::new();
        for n in (0..100).skip(half).step_by(2) {
            orders.push(ledger.order(order_id(&item, n)).await.unwrap().unwrap());
        }
        movers.spawn(async move { expire_repeatedly(&ledger, &orders, &over, &made).await });
    }
    // The order in which the database serves them is arbitrary: continue until enough claims have
    // met a transition.
    let (mut met, deadline) = (0, Deadline::start());
    while met < 10 {
        deadline.check(format_args!("only {met} claims met a transition"));
        let before = made.load(Ordering::Relaxed);
        let claim = ledger.claim(std::slice::from_ref(&key), 1).await.unwrap();
        claim
            .expect("no other recorder has claimed it")
            .release()
            .await;
        met += usize::from(made.load(Ordering::Relaxed) > before);
    }
    over.store(true, Ordering::Relaxed);
    movers.join_all().await;
    assert_eq!(counters(&ledger, &key).await, [100, 0, 0, 100]);
}

/// Expires each of the orders once, and then repeats outdated transitions: these change nothing,
/// but still lock the row.
async fn expire_repeatedly(
    ledger: &impl AnyLedger,
    orders: &[Order],
    over: &AtomicBool,
    made: &AtomicUsize,
) {
    for (n, order) in orders.iter().cycle().enumerate() {
        if n >= orders.len() && over.load(Ordering::Relaxed) {
            return;
        }
        let moved = ledger
            .transition(&[Transition {
                order: order.clone(),
                to: OrderState::Expired,
                payment: None,
            }])
            .await
            .unwrap();
        assert_eq!(moved[0].is_some(), n < orders.len());
        made.fetch_add(1, Ordering::Relaxed);
        // On SQLite, a writer polls for the file's lock, and must find it free now and then.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn transitions_over_many_segments_in_any_order_do_not_deadlock(env: &TestEnv) {
    let ledger = env.ledger().await;
    let items = [
        env.create("Vase", 100, 4).await,
        env.create("jug", 100, 4).await,
    ];
    for item in &items {
        for number in 0..4 {
            let orders = (0..20).map(|n| order(item, usize::from(number) * 20 + n, 1));
            let (key, entries) = (segment(item, number), vec![opened(item, number)]);
            crate::env::record(&ledger, &key, entries).await;
            happen(&ledger, &key, [take(orders)]).await;
        }
    }
    let mut movers = JoinSet::new();
    for mover in 0..4 {
        let (ledger, items) = (env.ledger().await, items.clone());
        movers.spawn(async move {
            for n in 0..20 {
                let mut steps = Vec::new();
                for place in 0..8 {
                    let place = if mover % 2 == 0 { place } else { 7 - place };
                    let id = order_id(&items[place / 4], place % 4 * 20 + n);
                    let order = ledger.order(id).await.unwrap().unwrap();
                    let to = [
                        OrderState::Confirmed,
                        OrderState::Expired,
                        OrderState::Cancelled,
                    ][(n + mover) % 3];
                    steps.push(Transition {
                        order,
                        to,
                        payment: None,
                    });
                }
                ledger.transition(&steps).await.unwrap();
            }
        });
    }
    in_time("every transition", movers.join_all()).await;
    if env.backend == Backend::Postgres {
        let deadlocks = "SELECT 1 FROM pg_stat_database \
             WHERE datname = current_database() AND deadlocks > 0";
        assert_eq!(env.sql(deadlocks).await, 0, "databases with deadlocks");
    }
    for item in &items {
        let totals = ledger.totals(&item.id).await.unwrap().unwrap();
        assert!(totals.segments.iter().all(|row| row.held == 0));
    }
}
