//! Units that are taken anew for an order that had given its own back.

use domain::{Item, OrderId, OrderState, PaymentId, SegmentKey};
use jiff::Timestamp;
use ledger::{Ledger, Transition};

use crate::site::{
    Site, again, counters, happen, on_both, order, order_id, release, segment, step, take,
};

on_both!(
    an_expired_order_holds_again_wherever_the_units_were_had,
    a_refund_that_is_due_stays_due_and_units_that_come_after_all_go_back,
    units_for_an_order_that_was_refunded_meanwhile_go_straight_back,
    a_retake_that_comes_again_changes_nothing,
    a_retake_of_an_order_that_has_its_units_changes_nothing,
    a_retake_that_the_row_cannot_cover_leaves_the_order_and_is_over,
    an_order_can_be_retaken_as_often_as_its_id_allows,
);

/// An order of 2 units that has expired at segment 0 of 2.
async fn expired(site: &Site, ledger: &dyn Ledger) -> (Item, [SegmentKey; 2], OrderId) {
    let item = site.create(ledger, "vase", 20, 2).await;
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

async fn an_expired_order_holds_again_wherever_the_units_were_had(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, other], id) = expired(site, &*ledger).await;
    let expires_at = Timestamp::from_millisecond(1_900_000_000_001).unwrap();
    let retake = domain::Change::Taken {
        expires_at,
        orders: vec![again(order(&item, 0, 2), 1)],
    };
    let recorded = happen(&*ledger, &other, [retake]).await.unwrap();
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
        (expires_at, id.retake(1))
    );
    // The first units are still on their way back.
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
    // What is given back now is the retake.
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
        [(id.retake(1), &other)]
    );
    happen(&*ledger, &other, [release([again(order(&item, 0, 2), 1)])])
        .await
        .unwrap();
    assert_eq!(counters(&*ledger, &other).await, [10, 0, 0, 0]);
}

async fn a_refund_that_is_due_stays_due_and_units_that_come_after_all_go_back(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [_, other], id) = expired(site, &*ledger).await;
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
    // The provider has been told.
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

async fn units_for_an_order_that_was_refunded_meanwhile_go_straight_back(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, other], id) = expired(site, &*ledger).await;
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
        [id, id.retake(1)]
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
        "also when it is done"
    );
}

async fn a_retake_that_comes_again_changes_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [home, other], id) = expired(site, &*ledger).await;
    let retake = || take([again(order(&item, 0, 2), 1)]);
    assert_eq!(
        happen(&*ledger, &other, [retake(), retake()])
            .await
            .unwrap()
            .repeated,
        1,
        "in one batch"
    );
    assert_eq!(
        happen(&*ledger, &other, [retake()]).await.unwrap().repeated,
        1,
        "across batches"
    );
    assert_eq!(
        happen(&*ledger, &home, [retake()]).await.unwrap().repeated,
        1,
        "across segments"
    );
    step(&*ledger, id, OrderState::Expired).await.unwrap();
    assert_eq!(
        happen(&*ledger, &other, [retake()]).await.unwrap().repeated,
        1,
        "when it has expired once more"
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

async fn a_retake_of_an_order_that_has_its_units_changes_nothing(site: &Site) {
    let ledger = site.ledger().await;
    let item = site.create(&*ledger, "vase", 20, 2).await;
    let [home, other] = [0, 1].map(|number| segment(&item, number));
    happen(&*ledger, &home, [take([order(&item, 0, 2)])])
        .await
        .unwrap();
    let retakes = || take([again(order(&item, 0, 2), 1), again(order(&item, 5, 2), 1)]);
    assert_eq!(
        happen(&*ledger, &other, [retakes()])
            .await
            .unwrap()
            .repeated,
        2,
        "held, and never heard of"
    );
    step(&*ledger, order_id(&item, 0), OrderState::Confirmed)
        .await
        .unwrap();
    assert_eq!(
        happen(&*ledger, &other, [retakes()])
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

async fn a_retake_that_the_row_cannot_cover_leaves_the_order_and_is_over(site: &Site) {
    let ledger = site.ledger().await;
    let (item, [_, other], id) = expired(site, &*ledger).await;
    let recorded = happen(
        &*ledger,
        &other,
        [take([order(&item, 1, 9), again(order(&item, 0, 2), 1)])],
    )
    .await
    .unwrap();
    assert_eq!((recorded.held, recorded.rejected), (1, vec![id.retake(1)]));
    let now = ledger.order(id).await.unwrap().unwrap();
    assert_eq!(
        (now.state, now.attempt, now.version),
        (OrderState::Expired, 1, 3),
        "the attempt has been, so the next is another"
    );
    assert_eq!(counters(&*ledger, &other).await, [1, 9, 0, 0]);
}

async fn an_order_can_be_retaken_as_often_as_its_id_allows(site: &Site) {
    let ledger = site.ledger().await;
    let (item, keys, id) = expired(site, &*ledger).await;
    for attempt in 1..=OrderId::MAX_RETAKES {
        happen(
            &*ledger,
            &keys[usize::from(attempt % 2)],
            [take([again(order(&item, 0, 2), attempt)])],
        )
        .await
        .unwrap();
        assert_eq!(
            ledger.order(id).await.unwrap().unwrap().take_id(),
            id.retake(attempt)
        );
        step(&*ledger, id, OrderState::Expired).await.unwrap();
    }
    let returning = [
        counters(&*ledger, &keys[0]).await[3],
        counters(&*ledger, &keys[1]).await[3],
    ];
    assert_eq!(returning, [8, 8], "each attempt is a return of its own");
}
