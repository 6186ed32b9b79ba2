//! Payment, expiry, cancellation, returns and retakes at once, over rows that recorders claim all the time: nobody waits in a circle, one wins, once,
//! and the sums hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{Item, Order, OrderState, SegmentKey, TakenOrder};
use jiff::Timestamp;
use ledger::{Ledger, Mended, SegmentReplay, Transition};
use tokio::task::JoinSet;

use crate::site::{
    Site, again, assert_identity, counters, happen, id, on_both, opened, order, order_id, release,
    segment, take,
};

on_both!(
    a_sale_with_everything_at_once_loses_and_doubles_nothing,
    a_recorder_waits_for_a_transition_and_passes_nothing_over,
    transitions_over_many_segments_in_any_order_end,
);

const SEGMENTS: u16 = 3;
const ORDERS: usize = 240;

async fn a_sale_with_everything_at_once_loses_and_doubles_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 3000, SEGMENTS).await;
    for number in 0..SEGMENTS {
        happen(&*ledger, &segment(&item, number), []).await.unwrap();
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
            site.ledger().await,
            item.clone(),
            Arc::clone(&over),
            Arc::clone(&moved),
        );
        movers.spawn(async move { move_some(&*ledger, &item, to, seed, &over, &moved).await });
    }
    let recorders: Vec<_> = (0..2)
        .map(|seed| {
            let (ledger, item, moved) = (Arc::clone(&ledger), item.clone(), Arc::clone(&moved));
            tokio::spawn(async move { record_for_a_while(&*ledger, &item, seed, &moved).await })
        })
        .collect();
    for recorder in recorders {
        recorder.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    movers.join_all().await;

    // What is still on its way comes home, and then every unit is somewhere.
    for back in ledger
        .pending_returns(
            Some(&item.id),
            Timestamp::now() + Duration::from_secs(1),
            10_000,
        )
        .await
        .unwrap()
    {
        let taken = TakenOrder {
            id: back.id,
            buyer: back.buyer,
            quantity: back.quantity,
        };
        assert_eq!(
            happen(&*ledger, &back.segment, [release([taken])])
                .await
                .unwrap()
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

/// Takes, takes anew, gives back and mends, as entries come.
async fn record_for_a_while(ledger: &dyn Ledger, item: &Item, seed: usize, moved: &AtomicUsize) {
    let wanted: Vec<_> = (0..SEGMENTS).map(|number| segment(item, number)).collect();
    let (mut fresh, mut round) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(30);
    while fresh < ORDERS || moved.load(Ordering::Relaxed) < ORDERS {
        assert!(Instant::now() < deadline, "hardly anything moves");
        round += 1;
        let Some(claim) = ledger.claim(&wanted[round % 3..], 2).await.unwrap() else {
            continue;
        };
        let now = Timestamp::now() + Duration::from_secs(1);
        let returns = ledger
            .pending_returns(Some(&item.id), now, 20)
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
            let retakes = back
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
            let changes = [take(new), take(retakes), release(back.clone())];
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
            mend(ledger, &wanted[seed..=seed]).await;
        }
    }
}

async fn mend(ledger: &dyn Ledger, keys: &[SegmentKey]) {
    let mut mending = ledger.claim_to_mend(keys, 1).await.unwrap();
    let checkpoint = mending.rows()[0].checkpoint.unwrap();
    mending.stage(&keys[0], &[]).await.unwrap();
    let epoch = mending.item().epoch;
    let mended = Mended {
        segment: keys[0].clone(),
        checkpoint: id(checkpoint.ms + 1, 0),
        anchor: 1,
    };
    mending.commit(&[mended], epoch, &[]).await.unwrap();
}

/// Moves orders here and there, one by one and in batches, until the sale is over.
async fn move_some(
    ledger: &dyn Ledger,
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
        let made = ledger
            .transition(&steps)
            .await
            .unwrap()
            .into_iter()
            .flatten()
            .count();
        moved.fetch_add(made, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

/// Who passes a segment over does not come back for it: so it must not be on account of a transition, which leaves nothing behind that would be recorded.
async fn a_recorder_waits_for_a_transition_and_passes_nothing_over(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 200, 1).await;
    let key = segment(&item, 0);
    happen(&*ledger, &key, [take((0..100).map(|n| order(&item, n, 1)))])
        .await
        .unwrap();
    let (over, made) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut movers = JoinSet::new();
    for half in 0..2 {
        let (ledger, over, made) = (site.ledger().await, Arc::clone(&over), Arc::clone(&made));
        let mut orders = Vec::new();
        for n in (0..100).skip(half).step_by(2) {
            orders.push(ledger.order(order_id(&item, n)).await.unwrap().unwrap());
        }
        movers.spawn(async move { expire_again_and_again(&*ledger, &orders, &over, &made).await });
    }
    // Whoever the database serves first and however often: it goes on until enough claims have met a transition.
    let (mut met, deadline) = (0, Instant::now() + Duration::from_secs(60));
    while met < 10 {
        assert!(
            Instant::now() < deadline,
            "only {met} claims met a transition in a minute"
        );
        let before = made.load(Ordering::Relaxed);
        let claim = ledger.claim(std::slice::from_ref(&key), 1).await.unwrap();
        claim.expect("no recorder holds it").release().await;
        met += usize::from(made.load(Ordering::Relaxed) > before);
    }
    over.store(true, Ordering::Relaxed);
    movers.join_all().await;
    assert_eq!(counters(&*ledger, &key).await, [100, 0, 0, 100]);
}

/// Ends each of the orders once, and then goes on as one who always comes too late: that changes nothing, and locks the row all the same.
async fn expire_again_and_again(
    ledger: &dyn Ledger,
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
        // On SQLite whoever waits for the file looks for it from time to time, and must find it free once in a while.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn transitions_over_many_segments_in_any_order_end(site: &Site) {
    let ledger = site.ledger().await;
    let items = [
        site.create(&*ledger, "Vase", 100, 4).await,
        site.create(&*ledger, "jug", 100, 4).await,
    ];
    for item in &items {
        for number in 0..4 {
            let orders = (0..20).map(|n| order(item, usize::from(number) * 20 + n, 1));
            let (key, entries) = (segment(item, number), vec![opened(item, number)]);
            crate::site::record(&*ledger, &key, entries).await.unwrap();
            happen(&*ledger, &key, [take(orders)]).await.unwrap();
        }
    }
    let began = Instant::now();
    let mut movers = JoinSet::new();
    for mover in 0..4 {
        let (ledger, items) = (site.ledger().await, items.clone());
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
    movers.join_all().await;
    assert!(began.elapsed() < Duration::from_secs(20));
    for item in &items {
        let totals = ledger.totals(&item.id).await.unwrap().unwrap();
        assert!(totals.segments.iter().all(|row| row.held == 0));
    }
}
