//! Reacquisitions: units that are taken again for an order that has released its own.

use domain::{Item, OrderId, OrderState, PaymentId, SegmentKey};
use jiff::Timestamp;
use ledger::Transition;
use testkit::{on_both_databases, tested};

use crate::env::{
    TestEnv, again, becomes, counters, happen, order, order_id, release, returning, segment, take,
};

/// An item with two segments, and an order of 2 units that has expired at segment 0.
async fn expired(env: &TestEnv) -> (Item, [SegmentKey; 2], OrderId) {
    let item = env.create("vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    happen(env, &keys[0], [take([order(&item, 0, 2)])]).await;
    happen(env, &keys[1], []).await;
    becomes(env, order_id(&item, 0), OrderState::Expired).await;
    let id = order_id(&item, 0);
    (item, keys, id)
}

#[tested(on_both_databases(crate::env::run))]
async fn an_expired_order_is_held_again_wherever_the_units_come_from(env: &TestEnv) {
    let (item, [home, other], id) = expired(env).await;
    let expires_at = Timestamp::from_millisecond(1_900_000_000_001).unwrap();
    let reacquire = domain::Change::Taken {
        price: None,
        expires_at,
        orders: vec![again(order(&item, 0, 2), 1)],
    };
    let recorded = happen(env, &other, [reacquire]).await;
    assert_eq!(
        (recorded.held, recorded.repeated, recorded.rejected.len()),
        (1, 0, 0)
    );
    let held = env.order(id).await.unwrap().unwrap();
    assert_eq!(
        (held.state, held.attempt, held.segment, held.version),
        (OrderState::Held, 1, 1, 3)
    );
    assert_eq!(
        (held.expires_at, held.take_id()),
        (expires_at, id.reacquire(1))
    );
    // The first units are still returning.
    assert_eq!(
        (counters(env, &home).await, counters(env, &other).await),
        ([8, 0, 0, 2], [8, 2, 0, 0])
    );
    happen(env, &home, [release([order(&item, 0, 2)])]).await;
    becomes(env, id, OrderState::Confirmed).await;
    assert_eq!(
        (counters(env, &home).await, counters(env, &other).await),
        ([10, 0, 0, 0], [8, 0, 2, 0])
    );
    // A release now concerns the reacquired units.
    becomes(env, id, OrderState::Refunded).await;
    let pending = returning(env, &item).await;
    assert_eq!(
        pending
            .iter()
            .map(|back| (back.id, &back.segment))
            .collect::<Vec<_>>(),
        [(id.reacquire(1), &other)]
    );
    happen(env, &other, [release([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(counters(env, &other).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_due_refund_stays_due_and_units_that_arrive_later_go_back(env: &TestEnv) {
    let (item, [_, other], id) = expired(env).await;
    let payment = PaymentId::new("late").unwrap();
    let due = env.order(id).await.unwrap().unwrap();
    env.transition(&[Transition {
        order: due,
        to: OrderState::RefundDue,
        payment: Some(payment.clone()),
    }])
    .await
    .unwrap();
    happen(env, &other, [take([again(order(&item, 0, 2), 1)])]).await;
    // The provider has been notified.
    let due = env.order(id).await.unwrap().unwrap();
    assert_eq!(
        (due.state, due.attempt, due.payment),
        (OrderState::RefundDue, 1, Some(payment))
    );
    assert_eq!(counters(env, &other).await, [8, 0, 0, 2]);
    happen(env, &other, [release([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(counters(env, &other).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn units_for_an_order_refunded_meanwhile_go_straight_back(env: &TestEnv) {
    let (item, [home, other], id) = expired(env).await;
    for to in [OrderState::RefundDue, OrderState::Refunded] {
        becomes(env, id, to).await;
    }
    let recorded = happen(env, &other, [take([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(
        (recorded.held, recorded.repeated, recorded.rejected.len()),
        (0, 0, 0)
    );
    let order_now = env.order(id).await.unwrap().unwrap();
    assert_eq!(
        (order_now.state, order_now.attempt),
        (OrderState::Refunded, 1)
    );
    assert_eq!(
        (counters(env, &home).await, counters(env, &other).await),
        ([8, 0, 0, 2], [8, 0, 0, 2])
    );
    let pending = returning(env, &item).await;
    assert_eq!(
        pending.iter().map(|back| back.id).collect::<Vec<_>>(),
        [id, id.reacquire(1)]
    );
    let repeated = happen(env, &other, [take([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(repeated.repeated, 1);
    happen(env, &other, [release([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(counters(env, &other).await, [10, 0, 0, 0]);
    let repeated = happen(env, &other, [take([again(order(&item, 0, 2), 1)])]).await;
    assert_eq!(
        (repeated.repeated, counters(env, &other).await),
        (1, [10, 0, 0, 0]),
        "also after the return is recorded"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_reacquisition_changes_nothing(env: &TestEnv) {
    let (item, [home, other], id) = expired(env).await;
    let reacquire = || take([again(order(&item, 0, 2), 1)]);
    assert_eq!(
        happen(env, &other, [reacquire(), reacquire()])
            .await
            .repeated,
        1,
        "in one batch"
    );
    assert_eq!(
        happen(env, &other, [reacquire()]).await.repeated,
        1,
        "across batches"
    );
    assert_eq!(
        happen(env, &home, [reacquire()]).await.repeated,
        1,
        "across segments"
    );
    becomes(env, id, OrderState::Expired).await;
    assert_eq!(
        happen(env, &other, [reacquire()]).await.repeated,
        1,
        "after the order has expired again"
    );
    let now = env.order(id).await.unwrap().unwrap();
    assert_eq!(
        (now.state, now.attempt, now.segment),
        (OrderState::Expired, 1, 1)
    );
    assert_eq!(
        (counters(env, &home).await, counters(env, &other).await),
        ([8, 0, 0, 2], [8, 0, 0, 2])
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reacquisition_of_an_order_that_has_its_units_changes_nothing(env: &TestEnv) {
    let item = env.create("vase", 20, 2).await;
    let [home, other] = [0, 1].map(|number| segment(&item, number));
    happen(env, &home, [take([order(&item, 0, 2)])]).await;
    let reacquisitions = || take([again(order(&item, 0, 2), 1), again(order(&item, 5, 2), 1)]);
    assert_eq!(
        happen(env, &other, [reacquisitions()]).await.repeated,
        2,
        "one order is held, the other unknown"
    );
    becomes(env, order_id(&item, 0), OrderState::Confirmed).await;
    assert_eq!(happen(env, &other, [reacquisitions()]).await.repeated, 2);
    let now = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    assert_eq!((now.attempt, now.segment), (0, 0));
    assert_eq!(
        (counters(env, &home).await, counters(env, &other).await),
        ([8, 0, 2, 0], [10, 0, 0, 0])
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reacquisition_that_the_row_cannot_cover_uses_up_its_attempt(env: &TestEnv) {
    let (item, [_, other], id) = expired(env).await;
    let recorded = happen(
        env,
        &other,
        [take([order(&item, 1, 9), again(order(&item, 0, 2), 1)])],
    )
    .await;
    assert_eq!(
        (recorded.held, recorded.rejected),
        (1, vec![id.reacquire(1)])
    );
    let now = env.order(id).await.unwrap().unwrap();
    assert_eq!(
        (now.state, now.attempt, now.version),
        (OrderState::Expired, 1, 3),
        "the attempt is used up, and the next has another id"
    );
    assert_eq!(counters(env, &other).await, [1, 9, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_can_be_reacquired_as_often_as_its_id_allows(env: &TestEnv) {
    let (item, keys, id) = expired(env).await;
    for attempt in 1..=OrderId::MAX_REACQUISITIONS {
        happen(
            env,
            &keys[usize::from(attempt % 2)],
            [take([again(order(&item, 0, 2), attempt)])],
        )
        .await;
        assert_eq!(
            env.order(id).await.unwrap().unwrap().take_id(),
            id.reacquire(attempt)
        );
        becomes(env, id, OrderState::Expired).await;
    }
    let returning = [
        counters(env, &keys[0]).await[3],
        counters(env, &keys[1]).await[3],
    ];
    assert_eq!(returning, [8, 8], "each attempt has a separate return");
}
