//! The buyer's limit of two units (`env.rs`) holds wherever the units came from, and whatever the
//! home segment counts.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::{BuyerId, Change, Entry, Item, OrderState, Quantity, SegmentKey, TakenOrder};
use jiff::Timestamp;
use ledger::{ItemChange, Repaired, SegmentReplay};
use testkit::{Backend, on_both_databases, tested};

use crate::env::{
    AnyLedger, TestEnv, again, becomes, counters, happen, id, order_of, release, segment, state,
    take, try_happen,
};

const SEGMENTS: u16 = 3;

/// An item, its segments with the buyer's home first, and the buyer.
async fn vase(env: &TestEnv, name: &str) -> (Item, [SegmentKey; 3], BuyerId) {
    item_for(env, "vase", name).await
}

async fn item_for(env: &TestEnv, item: &str, name: &str) -> (Item, [SegmentKey; 3], BuyerId) {
    let item = env.create(item, 30, SEGMENTS).await;
    let buyer = BuyerId::new(name).unwrap();
    let home = buyer.home(SEGMENTS);
    let ring = [0, 1, 2].map(|step| segment(&item, (home + step) % SEGMENTS));
    for key in &ring {
        happen(env, key, []).await;
    }
    (item, ring, buyer)
}

async fn rejected(
    ledger: &impl AnyLedger,
    key: &SegmentKey,
    orders: impl IntoIterator<Item = TakenOrder>,
) -> usize {
    happen(ledger, key, [take(orders)]).await.rejected.len()
}

#[tested(on_both_databases(crate::env::run))]
async fn off_home_orders_are_held_against_the_limit(env: &TestEnv) {
    let (item, [home, near, far], ann) = vase(env, "ann").await;
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) == ann.home(SEGMENTS))
        .unwrap();
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 0, 1)]).await, 0);
    assert_eq!(
        rejected(
            env,
            &near,
            [order_of(&item, &ann, 1, 2), order_of(&item, &bob, 0, 2)]
        )
        .await,
        1
    );
    assert_eq!(
        rejected(env, &near, [order_of(&item, &ann, 2, 1)]).await,
        0,
        "a smaller order is within the limit"
    );
    assert_eq!(
        rejected(
            env,
            &far,
            [order_of(&item, &ann, 3, 1), order_of(&item, &bob, 1, 1)]
        )
        .await,
        2
    );
    assert_eq!(
        state(env, order_of(&item, &ann, 1, 2).id).await,
        Some(OrderState::Rejected)
    );
    assert_eq!(
        [counters(env, &near).await, counters(env, &far).await],
        [[7, 3, 0, 0], [10, 0, 0, 0]]
    );
}

/// Home has lost the count of an off-home order, and its own history is intact.
#[tested(on_both_databases(crate::env::run))]
async fn home_orders_are_checked_against_off_home_orders(env: &TestEnv) {
    let (item, [home, near, _], ann) = vase(env, "ann").await;
    assert_eq!(rejected(env, &near, [order_of(&item, &ann, 0, 1)]).await, 0);
    becomes(env, order_of(&item, &ann, 0, 1).id, OrderState::Confirmed).await;
    assert_eq!(
        rejected(
            env,
            &home,
            [order_of(&item, &ann, 1, 1), order_of(&item, &ann, 2, 1)]
        )
        .await,
        1
    );
    assert_eq!(
        state(env, order_of(&item, &ann, 2, 1).id).await,
        Some(OrderState::Rejected),
        "the later order is rejected"
    );
}

/// Home has both count and outbox of orders that it took itself. If it has lost only the count, it
/// refuses orders until it is repaired.
#[tested(on_both_databases(crate::env::run))]
async fn home_orders_are_not_checked_before_the_first_off_home_order(env: &TestEnv) {
    let (item, [home, near, _], ann) = vase(env, "ann").await;
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 0, 2)]).await, 0);
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 1, 1)]).await, 0);
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) != near.segment)
        .unwrap();
    assert_eq!(
        rejected(env, &near, [order_of(&item, &bob, 0, 1)]).await,
        0,
        "the first off-home order of the item"
    );
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 2, 1)]).await, 1);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_off_home_order_staged_by_a_repair_counts_as_off_home(env: &TestEnv) {
    let (item, [home, near, _], ann) = vase(env, "ann").await;
    env.claim_item(&item.id, 5).await.unwrap();
    let mut repair = env.repair(&near, 5).await;
    let off_home = Entry {
        id: id(50, 0),
        fingerprint: 1,
        change: take([order_of(&item, &ann, 0, 2)]),
    };
    assert_eq!(repair.stage(&near, &[off_home]).await.unwrap().1.held, 1);
    repair
        .commit(
            &[Repaired {
                segment: near,
                checkpoint: id(90, 0),
                anchor: -7,
            }],
            2,
            &[],
        )
        .await
        .unwrap();
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 1, 1)]).await, 1);
}

/// Home may still use the old limit.
#[tested(on_both_databases(crate::env::run))]
async fn home_orders_are_checked_after_a_limit_was_lowered(env: &TestEnv) {
    let (item, [home, ..], ann) = vase(env, "ann").await;
    assert_eq!(
        taken_at(env, &home, 0, order_of(&item, &ann, 0, 1)).await,
        0
    );
    env.change(&item.id, &limit_of(Some(1))).await;
    assert_eq!(
        taken_at(env, &home, 1, order_of(&item, &ann, 1, 1)).await,
        1
    );
}

/// An order that is rolled back does not count as off-home.
#[tested(on_both_databases(crate::env::run))]
async fn an_off_home_order_that_was_rolled_back_changes_nothing(env: &TestEnv) {
    let (item, [home, near, _], ann) = vase(env, "ann").await;
    let bob = (0..)
        .map(|n| BuyerId::new(format!("bob-{n}")).unwrap())
        .find(|bob| bob.home(SEGMENTS) != near.segment)
        .unwrap();
    let wrong = Change::Adjusted {
        units: 99,
        epoch: 1,
        token: 1,
    };
    try_happen(env, &near, [take([order_of(&item, &bob, 0, 1)]), wrong])
        .await
        .unwrap_err();
    assert_eq!(rejected(env, &home, [order_of(&item, &ann, 0, 2)]).await, 0);
    assert_eq!(
        rejected(env, &home, [order_of(&item, &ann, 1, 1)]).await,
        0,
        "home orders are still not checked"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_in_one_batch_count_together_against_the_limit(env: &TestEnv) {
    let (item, ring, ann) = vase(env, "ann").await;
    let claim = env.claim(&ring, 3).await.unwrap().unwrap();
    let replays = claim
        .rows()
        .iter()
        .zip(0..)
        .map(|(row, key)| SegmentReplay {
            row: row.clone(),
            entries: vec![Entry {
                id: id(100, 0),
                fingerprint: 1,
                change: take([order_of(&item, &ann, key, 1)]),
            }],
        });
    let replays = replays.collect();
    let recorded = claim.record(replays).await.unwrap();
    assert_eq!(
        recorded
            .iter()
            .map(|recorded| recorded.rejected.len())
            .collect::<Vec<_>>(),
        [0, 0, 1]
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn released_units_do_not_count_against_the_limit(env: &TestEnv) {
    let (item, [_, near, far], ann) = vase(env, "ann").await;
    assert_eq!(rejected(env, &near, [order_of(&item, &ann, 0, 2)]).await, 0);
    assert_eq!(rejected(env, &far, [order_of(&item, &ann, 1, 1)]).await, 1);
    becomes(env, order_of(&item, &ann, 0, 2).id, OrderState::Cancelled).await;
    assert_eq!(
        rejected(env, &far, [order_of(&item, &ann, 2, 2)]).await,
        0,
        "even before its units are back"
    );
    happen(env, &near, [release([order_of(&item, &ann, 0, 2)])]).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_order_counts_once_against_the_limit(env: &TestEnv) {
    let (item, [_, near, _], ann) = vase(env, "ann").await;
    assert_eq!(rejected(env, &near, [order_of(&item, &ann, 0, 1)]).await, 0);
    let again = happen(
        env,
        &near,
        [take([
            order_of(&item, &ann, 0, 1),
            order_of(&item, &ann, 1, 1),
        ])],
    )
    .await;
    assert_eq!(
        (again.repeated, again.held, again.rejected.len()),
        (1, 1, 0)
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reacquisition_is_held_against_the_limit(env: &TestEnv) {
    let (item, [home, near, far], ann) = vase(env, "ann").await;
    let first = order_of(&item, &ann, 0, 2);
    assert_eq!(rejected(env, &home, [first.clone()]).await, 0);
    becomes(env, first.id, OrderState::Expired).await;
    assert_eq!(rejected(env, &near, [order_of(&item, &ann, 1, 1)]).await, 0);
    assert_eq!(rejected(env, &far, [again(first.clone(), 1)]).await, 1);
    assert_eq!(
        state(env, first.id).await,
        Some(OrderState::Expired),
        "the order keeps its state"
    );
    becomes(env, order_of(&item, &ann, 1, 1).id, OrderState::Cancelled).await;
    assert_eq!(rejected(env, &far, [again(first.clone(), 2)]).await, 0);
    assert_eq!(state(env, first.id).await, Some(OrderState::Held));
}

fn limit_of(units: Option<u32>) -> ItemChange {
    ItemChange {
        limit_per_buyer: Some(units.map(|units| Quantity::new(units).unwrap())),
        ..ItemChange::default()
    }
}

/// Takes the order `hours` from now, by the outbox's clock, and returns the number of rejected
/// orders.
async fn taken_at(
    ledger: &impl AnyLedger,
    key: &SegmentKey,
    hours: i64,
    order: TakenOrder,
) -> usize {
    let ms = Timestamp::now().as_millisecond() + hours * 3_600_000;
    // Distinguishes orders that are taken in one millisecond.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let seq = TAKEN.fetch_add(1, Ordering::Relaxed);
    let entry = Entry {
        id: id(ms.unsigned_abs(), seq),
        fingerprint: 1,
        change: take([order]),
    };
    crate::env::record(ledger, key, vec![entry])
        .await
        .rejected
        .len()
}

#[tested(on_both_databases(crate::env::run))]
async fn units_taken_under_a_higher_limit_stay(env: &TestEnv) {
    let (item, [_, near, far], ann) = vase(env, "ann").await;
    for units in [Some(5), Some(3), Some(1)] {
        env.change(&item.id, &limit_of(units)).await;
    }
    assert_eq!(
        taken_at(env, &near, -24, order_of(&item, &ann, 0, 3)).await,
        0
    );
    assert_eq!(
        taken_at(env, &near, 0, order_of(&item, &ann, 1, 3)).await,
        1,
        "the highest previous limit was five"
    );
    assert_eq!(
        taken_at(env, &near, 0, order_of(&item, &ann, 2, 2)).await,
        0,
        "a segment may not have received the new limit yet"
    );
    let bob = BuyerId::new("bob-1").unwrap();
    let off_home = [near, far]
        .into_iter()
        .find(|key| key.segment != bob.home(SEGMENTS))
        .unwrap();
    assert_eq!(
        taken_at(env, &off_home, 24, order_of(&item, &bob, 0, 2)).await,
        1
    );
    assert_eq!(
        taken_at(env, &off_home, 25, order_of(&item, &bob, 1, 1)).await,
        0
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn without_a_limit_nothing_is_rejected(env: &TestEnv) {
    let (item, [home, near, far], ann) = vase(env, "ann").await;
    env.change(&item.id, &limit_of(None)).await;
    assert_eq!(
        taken_at(env, &near, 0, order_of(&item, &ann, 0, 9)).await,
        0
    );
    env.change(&item.id, &limit_of(Some(1))).await;
    assert_eq!(
        taken_at(env, &home, 24, order_of(&item, &ann, 3, 1)).await,
        1,
        "off-home orders from before the limit count"
    );
    assert_eq!(
        taken_at(env, &far, 0, order_of(&item, &ann, 1, 9)).await,
        0,
        "taken before any segment had received the limit"
    );
    assert_eq!(
        taken_at(env, &far, 24, order_of(&item, &ann, 2, 1)).await,
        1
    );
}

/// Each order alone would be within the limit. It is the first off-home order of each item.
#[tested(on_both_databases(crate::env::run))]
async fn of_two_recorders_that_exceed_the_limit_together_one_records(env: &TestEnv) {
    let rounds = if env.backend == Backend::Postgres {
        40
    } else {
        5
    };
    for round in 0..rounds {
        let (item, [home, near, far], ann) =
            item_for(env, &format!("vase-{round}"), &format!("ann-{round}")).await;
        // Two off-home orders, or one off-home order and one at home.
        let other = if round % 2 == 0 { home } else { far };
        let [first, second] = [(&near, 0), (&other, 1)].map(|(key, n)| {
            let order = order_of(&item, &ann, n, 2);
            async move { rejected(&env.ledger().await, key, [order]).await }
        });
        let (first, second) = tokio::join!(first, second);
        // Either home's order was recorded first and the off-home order is checked against it, or
        // the reverse.
        assert_eq!(first + second, 1, "round {round}");
    }
}
