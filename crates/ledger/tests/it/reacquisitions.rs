//! Reacquisitions: units that are taken again for an order that has released its own.

use domain::{Item, OrderId, OrderState, PaymentId, SegmentKey};
use jiff::Timestamp;
use ledger::{Ledger, Transition};
use testkit::{on_both_databases, tested};

use crate::env::{TestEnv, again, counters, happen, order, order_id, release, segment, step, take};

/// An item with two segments, and an order of 2 units that has expired at segment 0.
async fn expired(env: &TestEnv, ledger: &dyn Ledger) -> (Item, [SegmentKey; 2], OrderId) {
    let item = env.create(ledger, "vase", 20, 2).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    happen(ledger, &keys[0], [take([order(&item, 0, 2)])])
        .await
        .unwrap();
    happen(ledger, &keys[1], []).await.unwrap();
    step(ledger, order_id(&item, 0), OrderState::Expired)
        .await
        .unwrap();
    let id = order_id(&item, 0);
    (item, keys, id)
}

#[tested(on_both_databases(crate::env::run))]
async fn an_expired_order_is_held_again_wherever_the_units_come_from(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, [home, other], id) = expired(env, &*ledger).await;
    let expires_at = Timestamp::from_millisecond(1_900_000_000_001).unwrap();
    let reacquire = domain::Change::Taken {
        price: None,
        expires_at,
        orders: vec![again(order(&item, 0, 2), 1)],
    };
    let recorded = happen(&*ledger, &other, [reacquire]).await.unwrap();
    assert_eq!(
        (recorded.held, recorded.repeated, recorded.rejected.len()),
        (1, 0, 0)
    );
    let held = ledger.order(id).await.unwrap().unwrap();
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
        (
            counters(&*ledger, &home).await,
            counters(&*ledger, &other).await
        ),
        ([8, 0, 0, 2], [8, 2, 0, 0])
    );
    happen(&*ledger, &home, [release([order(&item, 0, 2)])])
        .await
        .unwrap();
    step(&*ledger, id, OrderState::Confirmed).await.unwrap();
    assert_eq!(
        (
            counters(&*ledger, &home).await,
            counters(&*ledger, &other).await
        ),
        ([10, 0, 0, 0], [8, 0, 2, 0])
    );
    // A release now concerns the reacquired units.
    step(&*ledger, id, OrderState::Refunded).await.unwrap();
    let pending = ledger
        .pending_returns(
            Some(&item.id),
            Timestamp::now() + std::time::Duration::from_secs(1),
            9,
        )
        .await
        .unwrap();
    assert_eq!(
        pending
            .iter()
            .map(|back| (back.id, &back.segment))
            .collect::<Vec<_>>(),
        [(id.reacquire(1), &other)]
    );
    happen(&*ledger, &other, [release([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(counters(&*ledger, &other).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_due_refund_stays_due_and_units_that_arrive_later_go_back(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, [_, other], id) = expired(env, &*ledger).await;
    let payment = PaymentId::new("late").unwrap();
    let due = ledger.order(id).await.unwrap().unwrap();
    ledger
        .transition(&[Transition {
            order: due,
            to: OrderState::RefundDue,
            payment: Some(payment.clone()),
        }])
        .await
        .unwrap();
    happen(&*ledger, &other, [take([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    // The provider has been notified.
    let due = ledger.order(id).await.unwrap().unwrap();
    assert_eq!(
        (due.state, due.attempt, due.payment),
        (OrderState::RefundDue, 1, Some(payment))
    );
    assert_eq!(counters(&*ledger, &other).await, [8, 0, 0, 2]);
    happen(&*ledger, &other, [release([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(counters(&*ledger, &other).await, [10, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn units_for_an_order_refunded_meanwhile_go_straight_back(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, [home, other], id) = expired(env, &*ledger).await;
    for to in [OrderState::RefundDue, OrderState::Refunded] {
        step(&*ledger, id, to).await.unwrap();
    }
    let recorded = happen(&*ledger, &other, [take([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(
        (recorded.held, recorded.repeated, recorded.rejected.len()),
        (0, 0, 0)
    );
    let order_now = ledger.order(id).await.unwrap().unwrap();
    assert_eq!(
        (order_now.state, order_now.attempt),
        (OrderState::Refunded, 1)
    );
    assert_eq!(
        (
            counters(&*ledger, &home).await,
            counters(&*ledger, &other).await
        ),
        ([8, 0, 0, 2], [8, 0, 0, 2])
    );
    let pending = ledger
        .pending_returns(
            Some(&item.id),
            Timestamp::now() + std::time::Duration::from_secs(1),
            9,
        )
        .await
        .unwrap();
    assert_eq!(
        pending.iter().map(|back| back.id).collect::<Vec<_>>(),
        [id, id.reacquire(1)]
    );
    let repeated = happen(&*ledger, &other, [take([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(repeated.repeated, 1);
    happen(&*ledger, &other, [release([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(counters(&*ledger, &other).await, [10, 0, 0, 0]);
    let repeated = happen(&*ledger, &other, [take([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(
        (repeated.repeated, counters(&*ledger, &other).await),
        (1, [10, 0, 0, 0]),
        "also after the return is recorded"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_repeated_reacquisition_changes_nothing(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, [home, other], id) = expired(env, &*ledger).await;
    let reacquire = || take([again(order(&item, 0, 2), 1)]);
    assert_eq!(
        happen(&*ledger, &other, [reacquire(), reacquire()])
            .await
            .unwrap()
            .repeated,
        1,
        "in one batch"
    );
    assert_eq!(
        happen(&*ledger, &other, [reacquire()])
            .await
            .unwrap()
            .repeated,
        1,
        "across batches"
    );
    assert_eq!(
        happen(&*ledger, &home, [reacquire()])
            .await
            .unwrap()
            .repeated,
        1,
        "across segments"
    );
    step(&*ledger, id, OrderState::Expired).await.unwrap();
    assert_eq!(
        happen(&*ledger, &other, [reacquire()])
            .await
            .unwrap()
            .repeated,
        1,
        "after the order has expired again"
    );
    let now = ledger.order(id).await.unwrap().unwrap();
    assert_eq!(
        (now.state, now.attempt, now.segment),
        (OrderState::Expired, 1, 1)
    );
    assert_eq!(
        (
            counters(&*ledger, &home).await,
            counters(&*ledger, &other).await
        ),
        ([8, 0, 0, 2], [8, 0, 0, 2])
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reacquisition_of_an_order_that_has_its_units_changes_nothing(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = env.create(&*ledger, "vase", 20, 2).await;
    let [home, other] = [0, 1].map(|number| segment(&item, number));
    happen(&*ledger, &home, [take([order(&item, 0, 2)])])
        .await
        .unwrap();
    let reacquisitions = || take([again(order(&item, 0, 2), 1), again(order(&item, 5, 2), 1)]);
    assert_eq!(
        happen(&*ledger, &other, [reacquisitions()])
            .await
            .unwrap()
            .repeated,
        2,
        "one order is held, the other unknown"
    );
    step(&*ledger, order_id(&item, 0), OrderState::Confirmed)
        .await
        .unwrap();
    assert_eq!(
        happen(&*ledger, &other, [reacquisitions()])
            .await
            .unwrap()
            .repeated,
        2
    );
    let now = ledger.order(order_id(&item, 0)).await.unwrap().unwrap();
    assert_eq!((now.attempt, now.segment), (0, 0));
    assert_eq!(
        (
            counters(&*ledger, &home).await,
            counters(&*ledger, &other).await
        ),
        ([8, 0, 2, 0], [10, 0, 0, 0])
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reacquisition_that_the_row_cannot_cover_uses_up_its_attempt(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, [_, other], id) = expired(env, &*ledger).await;
    let recorded = happen(
        &*ledger,
        &other,
        [take([order(&item, 1, 9), again(order(&item, 0, 2), 1)])],
    )
    .await
    .unwrap();
    assert_eq!(
        (recorded.held, recorded.rejected),
        (1, vec![id.reacquire(1)])
    );
    let now = ledger.order(id).await.unwrap().unwrap();
    assert_eq!(
        (now.state, now.attempt, now.version),
        (OrderState::Expired, 1, 3),
        "the attempt is used up, and the next has another id"
    );
    assert_eq!(counters(&*ledger, &other).await, [1, 9, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_can_be_reacquired_as_often_as_its_id_allows(env: &TestEnv) {
    let ledger = env.ledger().await;
    let (item, keys, id) = expired(env, &*ledger).await;
    for attempt in 1..=OrderId::MAX_REACQUISITIONS {
        happen(
            &*ledger,
            &keys[usize::from(attempt % 2)],
            [take([again(order(&item, 0, 2), attempt)])],
        )
        .await
        .unwrap();
        assert_eq!(
            ledger.order(id).await.unwrap().unwrap().take_id(),
            id.reacquire(attempt)
        );
        step(&*ledger, id, OrderState::Expired).await.unwrap();
    }
    let returning = [
        counters(&*ledger, &keys[0]).await[3],
        counters(&*ledger, &keys[1]).await[3],
    ];
    assert_eq!(returning, [8, 8], "each attempt has a separate return");
}
