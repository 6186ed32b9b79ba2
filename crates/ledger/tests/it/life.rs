//! Transitions of recorded orders, and the return of their units.

use std::{sync::Arc, time::Duration};

use domain::{Item, Order, OrderId, OrderState, PaymentId, SegmentKey, SessionId};
use jiff::Timestamp;
use ledger::{ItemScope, LedgerError, PendingReturn, TimeLimit, Transition};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use testkit::{Backend, on_both_databases, tested};
use tokio::{sync::Barrier, task::JoinSet};

use crate::env::{
    TestEnv, becomes, counters, events_of_kind, happen, order, order_id, release, row, segment,
    state, step, take,
};

/// An item with one segment that holds orders 0..n of 1, 2, 3 ... units.
async fn held(env: &TestEnv, name: &str, n: usize) -> (Item, SegmentKey) {
    let item = env.create(name, 1000, 1).await;
    let key = segment(&item, 0);
    happen(
        env,
        &key,
        [take((0..n).map(|n| order(&item, n, n as u32 + 1)))],
    )
    .await;
    (item, key)
}

#[tested(on_both_databases(crate::env::run))]
async fn every_transition_moves_the_units_to_the_right_counter(env: &TestEnv) {
    use OrderState::{Cancelled, Confirmed, Expired, RefundDue, Refunded};
    // The path, the counters at its end, and the number of its steps that change the row because
    // they move units.
    let table: [(&[OrderState], [u64; 4], u64); 6] = [
        (&[Confirmed], [990, 0, 10, 0], 1),
        (&[Cancelled], [990, 0, 0, 10], 1),
        (&[Expired], [990, 0, 0, 10], 1),
        (&[Confirmed, Refunded], [990, 0, 0, 10], 2),
        (&[Expired, RefundDue], [990, 0, 0, 10], 1),
        (&[Expired, RefundDue, Refunded], [990, 0, 0, 10], 1),
    ];
    for (number, (path, expected, changes)) in table.into_iter().enumerate() {
        let item = env.create(&format!("vase-{number}"), 1000, 1).await;
        let (key, id) = (segment(&item, 0), order_id(&item, 0));
        happen(env, &key, [take([order(&item, 0, 10)])]).await;
        for (version, to) in path.iter().enumerate() {
            let stepped = becomes(env, id, *to).await;
            assert_eq!((stepped.state, stepped.version), (*to, version as u64 + 2));
            assert_eq!(
                env.order(id).await.unwrap(),
                Some(stepped),
                "the returned order must be the stored one"
            );
        }
        assert_eq!(counters(env, &key).await, expected, "{path:?}");
        assert_eq!(row(env, &key).await.version, 2 + changes, "{path:?}");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_transition_outside_the_state_machine_changes_nothing(env: &TestEnv) {
    let (item, key) = held(env, "vase", 1).await;
    let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    for to in [
        OrderState::Held,
        OrderState::Refunded,
        OrderState::RefundDue,
        OrderState::Rejected,
    ] {
        assert_eq!(step(env, order.id, to).await, None, "{to}");
    }
    let unknown = domain::Order {
        id: order_id(&item, 9),
        ..order.clone()
    };
    let stale = domain::Order {
        version: 7,
        ..order.clone()
    };
    let steps = [unknown, stale].map(|order| Transition {
        order,
        to: OrderState::Expired,
        payment: None,
    });
    assert_eq!(env.transition(&steps).await.unwrap(), [None, None]);
    assert_eq!(env.transition(&[]).await.unwrap(), []);
    assert_eq!(env.order(order.id).await.unwrap(), Some(order));
    assert_eq!(counters(env, &key).await, [999, 1, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_batch_applies_what_it_can_and_returns_none_for_the_rest(env: &TestEnv) {
    let item = env.create("vase", 600, 3).await;
    for number in 0..3 {
        let orders = (0..100).map(|n| order(&item, number * 100 + n, 1 + n as u32 % 2));
        happen(env, &segment(&item, number as u16), [take(orders)]).await;
    }
    let mut steps = Vec::new();
    for n in 0..300 {
        let order = env.order(order_id(&item, n)).await.unwrap().unwrap();
        let to = [
            OrderState::Confirmed,
            OrderState::Cancelled,
            OrderState::Expired,
        ][n % 3];
        steps.push(Transition {
            order,
            to,
            payment: None,
        });
    }
    // Every tenth order has changed in the meantime.
    for n in (0..300).step_by(10) {
        becomes(env, order_id(&item, n), OrderState::Confirmed).await;
    }
    let made = env.transition(&steps).await.unwrap();
    for (n, made) in made.iter().enumerate() {
        let expected = (n % 10 > 0).then_some((steps[n].order.id, steps[n].to));
        assert_eq!(
            made.as_ref().map(|order| (order.id, order.state)),
            expected,
            "results come in the order of the batch"
        );
    }
    let confirmed = (0..300).filter(|n| n % 10 == 0 || n % 3 == 0).count() as u64;
    assert_eq!(
        env.totals(&item.id).await.unwrap().unwrap().orders_by_state[1],
        ("confirmed".into(), confirmed)
    );
    let twice = [steps[1].clone(), steps[1].clone()];
    assert_eq!(env.transition(&twice).await.unwrap(), [None, None]);
}

#[tested(on_both_databases(crate::env::run))]
async fn of_concurrent_transitions_of_one_order_one_wins(env: &TestEnv) {
    use OrderState::{Cancelled, Confirmed, Expired};
    let ledger = env.ledger().await;
    let (item, key) = held(env, "vase", 20).await;
    for n in 0..20 {
        let order = ledger.order(order_id(&item, n)).await.unwrap().unwrap();
        let barrier = Arc::new(Barrier::new(4));
        let mut movers = JoinSet::new();
        for to in [Confirmed, Expired, Cancelled, Confirmed] {
            let (ledger, barrier, order) =
                (Arc::clone(&ledger), Arc::clone(&barrier), order.clone());
            movers.spawn(async move {
                barrier.wait().await;
                ledger
                    .transition(&[Transition {
                        order,
                        to,
                        payment: None,
                    }])
                    .await
                    .unwrap()
                    .remove(0)
            });
        }
        let won: Vec<_> = movers.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "exactly one transition must win");
        assert_eq!(ledger.order(order.id).await.unwrap().as_ref(), won.first());
    }
    let [available, held, confirmed, returning] = counters(&ledger, &key).await;
    assert_eq!((held, available + confirmed + returning), (0, 1000));
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_are_due_from_their_deadline_on_oldest_first(env: &TestEnv) {
    let item = env.create("vase", 100, 1).await;
    let at = |ms: i64| Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap();
    let taken = |n: usize, ms| domain::Change::Taken {
        price: None,
        expires_at: at(ms),
        orders: vec![order(&item, n, 1)],
    };
    happen(
        env,
        &segment(&item, 0),
        [taken(0, 300), taken(1, 100), taken(2, 200), taken(3, 301)],
    )
    .await;
    let due = async |ms, at_most| -> Vec<_> {
        ids(env.due(ItemScope::ALL, at(ms), at_most).await.unwrap())
    };
    let [zero, one, two] = [0, 1, 2].map(|n| order_id(&item, n));
    assert_eq!(due(99, 9).await, []);
    assert_eq!(
        due(100, 9).await,
        [one],
        "a hold expires exactly at its deadline"
    );
    assert_eq!(due(300, 9).await, [one, two, zero]);
    assert_eq!(due(300, 2).await, [one, two]);
    becomes(env, one, OrderState::Expired).await;
    becomes(env, two, OrderState::Confirmed).await;
    assert_eq!(due(300, 9).await, [zero]);
    let read = env.due(ItemScope::ALL, at(300), 1).await.unwrap().remove(0);
    assert_eq!(env.order(zero).await.unwrap(), Some(read));
}

#[tested(on_both_databases(crate::env::run))]
async fn due_orders_of_one_item_are_found_behind_many_of_other_items(env: &TestEnv) {
    let (vase, jug) = (
        env.create("vase", 100, 1).await,
        env.create("jug", 100, 1).await,
    );
    let at = |ms: i64| Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap();
    let taken = |item, n: usize, ms| domain::Change::Taken {
        price: None,
        expires_at: at(ms),
        orders: vec![order(item, n, 1)],
    };
    happen(
        env,
        &segment(&vase, 0),
        (0..9).map(|n| taken(&vase, n, 100)),
    )
    .await;
    happen(
        env,
        &segment(&jug, 0),
        [
            taken(&jug, 0, 202),
            taken(&jug, 1, 201),
            taken(&jug, 2, 301),
        ],
    )
    .await;
    let due = async |at_most| -> Vec<_> {
        ids(env
            .due(ItemScope::Only(&jug.id), at(300), at_most)
            .await
            .unwrap())
    };
    assert_eq!(due(5).await, [order_id(&jug, 1), order_id(&jug, 0)]);
    assert_eq!(due(1).await, [order_id(&jug, 1)]);
    let without = [vase.id.clone()];
    let others = env.due(ItemScope::Except(&without), at(300), 1).await;
    assert_eq!(ids(others.unwrap()), [order_id(&jug, 1)]);
    assert_eq!(
        env.due(ItemScope::ALL, at(300), 20).await.unwrap().len(),
        11
    );
}

fn ids(orders: Vec<Order>) -> Vec<OrderId> {
    orders.into_iter().map(|order| order.id).collect()
}

#[tested(on_both_databases(crate::env::run))]
async fn a_return_is_pending_until_the_segments_entry_is_recorded(env: &TestEnv) {
    let (item, key) = held(env, "vase", 3).await;
    let (other, other_key) = held(env, "jug", 1).await;
    let before = Timestamp::now() - Duration::from_secs(1);
    for (item, n, to) in [
        (&item, 2, OrderState::Expired),
        (&item, 0, OrderState::Cancelled),
        (&other, 0, OrderState::Expired),
    ] {
        becomes(env, order_id(item, n), to).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let expected = |key: &SegmentKey, item: &Item, n| {
        let order = order(item, n, n as u32 + 1);
        PendingReturn {
            id: order.id,
            segment: key.clone(),
            buyer: order.buyer,
            quantity: order.quantity,
        }
    };
    let all = [
        expected(&key, &item, 2),
        expected(&key, &item, 0),
        expected(&other_key, &other, 0),
    ];
    let soon = Timestamp::now() + Duration::from_secs(1);
    assert_eq!(
        env.pending_returns(ItemScope::ALL, soon, 9).await.unwrap(),
        all,
        "oldest first"
    );
    assert_eq!(
        env.pending_returns(ItemScope::ALL, soon, 1).await.unwrap(),
        all[..1]
    );
    assert_eq!(
        env.pending_returns(ItemScope::Only(&item.id), soon, 9)
            .await
            .unwrap(),
        all[..2]
    );
    assert_eq!(
        env.pending_returns(ItemScope::Only(&other.id), soon, 9)
            .await
            .unwrap(),
        all[2..]
    );
    let without = [item.id.clone()];
    let others = env.pending_returns(ItemScope::Except(&without), soon, 9);
    assert_eq!(others.await.unwrap(), all[2..]);
    assert_eq!(
        env.pending_returns(ItemScope::ALL, before, 9)
            .await
            .unwrap(),
        [],
        "not yet pending for long enough"
    );
    assert_eq!(counters(env, &key).await, [994, 2, 0, 4]);

    let recorded = happen(
        env,
        &key,
        [release([order(&item, 2, 3), order(&item, 0, 1)])],
    )
    .await;
    assert_eq!(
        (recorded.returned, recorded.held, recorded.repeated),
        (2, 0, 0)
    );
    assert_eq!(
        env.pending_returns(ItemScope::ALL, soon, 9).await.unwrap(),
        all[2..]
    );
    assert_eq!(counters(env, &key).await, [998, 2, 0, 0]);
    assert_eq!(
        state(env, order_id(&item, 2)).await,
        Some(OrderState::Expired),
        "a repeated release changes nothing"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_return_counts_once_and_only_where_the_units_are(env: &TestEnv) {
    let item = env.create_unlimited("vase", 20, 2).await;
    let [key, other] = [0, 1].map(|number| segment(&item, number));
    happen(env, &key, [take([order(&item, 0, 2), order(&item, 1, 3)])]).await;
    becomes(env, order_id(&item, 0), OrderState::Expired).await;
    let off_home = happen(
        env,
        &other,
        [release([order(&item, 0, 2), order(&item, 7, 1)])],
    )
    .await;
    assert_eq!(
        off_home.returned, 0,
        "one order is from another segment, the other was never taken"
    );
    let back = || release([order(&item, 0, 2), order(&item, 0, 2), order(&item, 1, 3)]);
    assert_eq!(
        happen(env, &key, [back(), back()]).await.returned,
        1,
        "a duplicate and a held order do not count"
    );
    assert_eq!(
        happen(env, &key, [back()]).await.returned,
        0,
        "a repeat in the next batch does not count"
    );
    assert_eq!(
        (counters(env, &key).await, counters(env, &other).await),
        ([7, 3, 0, 0], [10, 0, 0, 0])
    );

    // Returned units can be taken in the same batch.
    happen(env, &key, [take([order(&item, 2, 7)])]).await;
    becomes(env, order_id(&item, 2), OrderState::Cancelled).await;
    let recorded = happen(
        env,
        &key,
        [
            take([order(&item, 3, 1)]),
            release([order(&item, 2, 7)]),
            take([order(&item, 4, 7)]),
        ],
    )
    .await;
    assert_eq!(recorded.rejected, [order_id(&item, 3)]);
    assert_eq!(counters(env, &key).await, [0, 10, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_payment_is_stored_with_the_order(env: &TestEnv) {
    let (item, _) = held(env, "vase", 1).await;
    let payment = PaymentId::new("pay_1").unwrap();
    let id = order_id(&item, 0);
    let order = env.order(id).await.unwrap().unwrap();
    assert_eq!(order.payment, None);
    let confirm = Transition {
        order,
        to: OrderState::Confirmed,
        payment: Some(payment.clone()),
    };
    assert_eq!(
        env.transition(&[confirm])
            .await
            .unwrap()
            .remove(0)
            .unwrap()
            .payment,
        Some(payment.clone())
    );
    let refunded = becomes(env, id, OrderState::Refunded).await;
    assert_eq!(refunded.payment, Some(payment));
    assert_eq!(env.order(id).await.unwrap(), Some(refunded));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_payment_pays_the_order_that_it_was_reported_for_first(env: &TestEnv) {
    let (item, key) = held(env, "vase", 4).await;
    let payment = PaymentId::new("pay_1").unwrap();
    let confirm = async |n, payment: &PaymentId| Transition {
        order: env.order(order_id(&item, n)).await.unwrap().unwrap(),
        to: OrderState::Confirmed,
        payment: Some(payment.clone()),
    };
    assert_eq!(env.paid_order(&payment).await.unwrap(), None);
    let both = [confirm(0, &payment).await, confirm(1, &payment).await];
    let confirmed = env.transition(&both).await.unwrap();
    assert!(confirmed[0].is_some() && confirmed[1].is_none());
    let others = PaymentId::new("PAY_1").unwrap();
    let later = [
        confirm(1, &payment).await,
        confirm(2, &others).await,
        Transition {
            payment: None,
            ..confirm(3, &payment).await
        },
    ];
    let confirmed = env.transition(&later).await.unwrap();
    assert!(confirmed[0].is_none(), "another order has the payment");
    assert!(confirmed[1].is_some(), "ids differ by letter case, too");
    assert!(confirmed[2].is_some(), "a transition needs no payment");
    assert_eq!(
        env.paid_order(&payment).await.unwrap(),
        Some(order_id(&item, 0))
    );
    // Neither a refund nor an order that ended otherwise frees it.
    becomes(env, order_id(&item, 0), OrderState::Refunded).await;
    let again = env.transition(&[confirm(1, &payment).await]).await;
    assert_eq!(again.unwrap(), [None]);
    assert_eq!(counters(env, &key).await, [990, 2, 7, 1]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_due_refund_is_journalled_with_its_transition_and_only_then(env: &TestEnv) {
    let (item, _) = held(env, "vase", 3).await;
    let payment = PaymentId::new("pay_1").unwrap();
    let mut steps = Vec::new();
    for n in 0..3 {
        let order = becomes(env, order_id(&item, n), OrderState::Expired).await;
        steps.push(Transition {
            order,
            to: OrderState::RefundDue,
            payment: (n == 0).then(|| payment.clone()),
        });
    }
    assert_eq!(env.journal(&item.id, 9).await.unwrap(), []);
    steps[2].order.version += 1;
    for made in [2, 0] {
        assert_eq!(
            env.transition(&steps)
                .await
                .unwrap()
                .into_iter()
                .flatten()
                .count(),
            made
        );
    }
    let journal = env.journal(&item.id, 9).await.unwrap();
    let refunds: Vec<_> = journal
        .iter()
        .map(|noted| {
            (
                &*noted.entry.actor,
                &*noted.entry.action,
                noted.entry.before.clone(),
                noted.entry.after.clone(),
            )
        })
        .collect();
    let before = |n| json!({ "order": order_id(&item, n), "state": "expired" });
    let (one, other) = (
        (
            "payment",
            "refund_due",
            before(0),
            json!({ "state": "refund_due", "payment": "pay_1" }),
        ),
        (
            "payment",
            "refund_due",
            before(1),
            json!({ "state": "refund_due", "payment": null }),
        ),
    );
    assert!(
        refunds.len() == 2 && refunds.contains(&one) && refunds.contains(&other),
        "{refunds:?}"
    );
    becomes(env, order_id(&item, 0), OrderState::Refunded).await;
    assert_eq!(env.journal(&item.id, 9).await.unwrap(), journal);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_hold_is_extended_for_its_version_and_state_only(env: &TestEnv) {
    let (item, key) = held(env, "vase", 2).await;
    let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    let later = order.expires_at + Duration::from_millis(1_234_567);
    let extended = env.extend(&order, later).await.unwrap().unwrap();
    let expected = Order {
        expires_at: later,
        version: order.version + 1,
        ..order.clone()
    };
    assert_eq!(extended, expected);
    assert_eq!(env.order(order.id).await.unwrap(), Some(expected));
    assert_eq!(
        env.extend(&order, later).await.unwrap(),
        None,
        "an old version"
    );
    let due = env.due(ItemScope::ALL, order.expires_at, 9).await.unwrap();
    let due: Vec<_> = due.into_iter().map(|order| order.id).collect();
    assert_eq!(due, [order_id(&item, 1)], "the extended hold is not due");
    let paid = becomes(env, order.id, OrderState::Confirmed).await;
    assert_eq!(paid.expires_at, later);
    assert_eq!(
        env.extend(&paid, later).await.unwrap(),
        None,
        "nothing is held"
    );
    assert_eq!(counters(env, &key).await, [997, 2, 1, 0]);
    let told = events_of_kind(env, "order.extended", 1).await;
    assert_eq!(told.len(), 1);
    assert_eq!(
        (&*told[0].orders, &told[0].data["expires_at"]),
        (&[order.id][..], &json!(later))
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn of_an_extension_and_the_end_of_the_hold_one_wins(env: &TestEnv) {
    let (item, key) = held(env, "vase", 20).await;
    for n in 0..20 {
        let order = env.order(order_id(&item, n)).await.unwrap().unwrap();
        let expiry = [Transition {
            order: order.clone(),
            to: OrderState::Expired,
            payment: None,
        }];
        let later = order.expires_at + Duration::from_secs(60);
        let (extended, ended) = tokio::join!(env.extend(&order, later), env.transition(&expiry));
        let extended = extended.unwrap().is_some();
        let ended = ended.unwrap().remove(0).is_some();
        assert!(extended != ended, "order {n}: {extended}, {ended}");
        let now = env.order(order.id).await.unwrap().unwrap();
        let expected = match extended {
            true => (OrderState::Held, later),
            false => (OrderState::Expired, order.expires_at),
        };
        assert_eq!((now.state, now.expires_at), expected);
    }
    let [available, held, confirmed, returning] = counters(env, &key).await;
    assert_eq!((available, held + returning, confirmed), (790, 210, 0));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_session_is_named_for_a_version_and_raises_it(env: &TestEnv) {
    let (item, key) = held(env, "vase", 2).await;
    let [first, second, third] = ["cs_1", "cs_2", "cs_3"].map(|id| SessionId::new(id).unwrap());
    let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    let session = async || env.named_session(order.id.as_uuid()).await.unwrap();
    assert_eq!(session().await, None);
    let named = env.name_session(&order, &first, order.expires_at).await;
    let named = named.unwrap().unwrap();
    let expected = Order {
        version: order.version + 1,
        ..order.clone()
    };
    assert_eq!(named, expected);
    assert_eq!(env.order(order.id).await.unwrap(), Some(expected));
    assert_eq!(session().await.as_ref(), Some(&first));
    let late = env.name_session(&order, &second, order.expires_at).await;
    assert_eq!(late.unwrap(), None, "an old version");
    let cancellation = [Transition {
        order: order.clone(),
        to: OrderState::Cancelled,
        payment: None,
    }];
    assert_eq!(
        env.transition(&cancellation).await.unwrap(),
        [None],
        "it was decided before the session was named"
    );
    assert_eq!(session().await.as_ref(), Some(&first));

    let later = named.expires_at + Duration::from_secs(60);
    let longer = env.name_session(&named, &second, later).await;
    let longer = longer.unwrap().unwrap();
    assert_eq!(longer.expires_at, later);
    assert_eq!(session().await.as_ref(), Some(&second));
    // A late repeat of an older naming.
    let repeated = env.name_session(&longer, &first, later).await;
    assert!(repeated.unwrap().is_some());
    assert_eq!(session().await.as_ref(), Some(&second));
    for (known, is_named) in [(&first, true), (&second, true), (&third, false)] {
        let named = env.has_named(order.id.as_uuid(), known).await.unwrap();
        assert_eq!(named, is_named, "{known}");
    }
    let other = order_id(&item, 1).as_uuid();
    assert_eq!(env.named_session(other).await.unwrap(), None);
    // A session alone makes no hold longer, and is no event.
    let told = events_of_kind(env, "order.extended", 1).await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].data["expires_at"], json!(later));
    let paid = becomes(env, order.id, OrderState::Confirmed).await;
    let ended = env.name_session(&paid, &third, later).await;
    assert_eq!(ended.unwrap(), None, "nothing is held");
    assert_eq!(counters(env, &key).await, [997, 2, 1, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn of_a_named_session_and_a_cancellation_one_wins(env: &TestEnv) {
    let (item, _) = held(env, "vase", 20).await;
    let newer = SessionId::new("cs_newer").unwrap();
    for n in 0..20 {
        let order = env.order(order_id(&item, n)).await.unwrap().unwrap();
        let cancellation = [Transition {
            order: order.clone(),
            to: OrderState::Cancelled,
            payment: None,
        }];
        let (named, cancelled) = tokio::join!(
            env.name_session(&order, &newer, order.expires_at),
            env.transition(&cancellation)
        );
        let named = named.unwrap().is_some();
        let cancelled = cancelled.unwrap().remove(0).is_some();
        assert!(named != cancelled, "order {n}: {named}, {cancelled}");
        let session = env.named_session(order.id.as_uuid()).await.unwrap();
        assert_eq!(
            session.is_some(),
            named,
            "it is named or nothing is written"
        );
    }
}

/// A transaction of several sales that waits for the rows of one keeps those of the others.
#[tokio::test(flavor = "multi_thread")]
async fn holds_of_several_sales_do_not_wait_for_long_for_the_rows_of_one() {
    let env = TestEnv::new(Backend::Postgres).await;
    let (locked, _) = held(&env, "vase", 2).await;
    let (other, _) = held(&env, "bowl", 2).await;
    let mut connection = PgConnection::connect(env.url()).await.unwrap();
    let mut lock = connection.begin().await.unwrap();
    sqlx::query("SELECT FROM segments WHERE item = $1 FOR UPDATE")
        .bind(locked.id.as_str())
        .execute(&mut *lock)
        .await
        .unwrap();
    let of = async |item, n| env.order(order_id(item, n)).await.unwrap().unwrap();
    let orders = [of(&other, 0).await, of(&locked, 0).await];
    let error = env.expire_orders(&orders).await.unwrap_err();
    let LedgerError::TimedOut { limit, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(limit, TimeLimit::Lock);
    let ended = env.expire_orders(&orders[..1]).await.unwrap();
    assert_eq!(ended, [of(&other, 0).await]);
    // A transaction of one sale keeps no rows of others. It waits for longer than those of several.
    let ledger = env.ledger().await;
    let waiting = tokio::spawn(async move { ledger.expire_orders(&orders[1..]).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    lock.rollback().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}
