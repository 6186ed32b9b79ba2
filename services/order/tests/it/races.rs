//! Two conflicting requests for one order at the same moment: one succeeds, and the other gets the
//! resulting state.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use serde_json::json;
use testkit::tested_in;

use crate::env::{Answer, Env, Options, TestEnv, known, open, open_each};

const ORDERS: usize = 200;

async fn held(env: &TestEnv, item: &str, orders: usize) -> Vec<String> {
    join_all(
        (0..orders)
            .map(|buyer| async move { env.hold(item, &format!("buyer-{buyer}"), "k").await }),
    )
    .await
}

/// The orders of as many buyers, placed at both instances.
async fn placed(env: &TestEnv, item: &str) -> Vec<Answer> {
    let orders = (0..ORDERS).map(|n| env.order_at(n % 2, item, &format!("buyer-{n}"), "k", 1));
    join_all(orders.map(Answer::of)).await
}

/// Waits until so many milliseconds after the end of the hold. Returns the id of the order.
async fn around_the_end(order: &Answer, ms: i64) -> &str {
    let over = order.is_held().body["expires_at"].as_str().unwrap();
    let over: jiff::Timestamp = over.parse().unwrap();
    let left = over.as_millisecond() + ms - jiff::Timestamp::now().as_millisecond();
    tokio::time::sleep(Duration::from_millis(left.try_into().unwrap_or(0))).await;
    order.body["id"].as_str().unwrap()
}

/// Counts of each pair of answers, by state or code.
#[derive(Debug, Default)]
struct Outcomes(BTreeMap<(String, String), usize>);

impl Outcomes {
    fn count(&mut self, one: &Answer, other: &Answer) {
        let word = |answer: &Answer| {
            answer.body[if answer.status == 200 {
                "state"
            } else {
                "code"
            }]
            .as_str()
            .unwrap()
            .to_owned()
        };
        *self.0.entry((word(one), word(other))).or_default() += 1;
    }

    fn of(&self, one: &str, other: &str) -> usize {
        self.0
            .get(&(one.to_owned(), other.to_owned()))
            .copied()
            .unwrap_or_default()
    }
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn of_a_payment_and_a_cancellation_exactly_one_wins(env: Env) {
    let item = env.create(json!({ "stock": 300, "segments": 3 })).await;
    let orders = held(&env, &item, ORDERS).await;
    let races = orders.iter().enumerate().map(|(buyer, order)| {
        let (env, late) = (&env, Duration::from_micros(buyer as u64 % 20 * 200));
        // Each request is the later one for some orders, so that each wins some.
        let (pay_late, cancel_late) = if buyer % 3 == 0 {
            (late, Duration::ZERO)
        } else {
            (Duration::ZERO, late)
        };
        async move {
            let cancel = async {
                tokio::time::sleep(cancel_late).await;
                let name = format!("buyer-{buyer}");
                known(async || env.cancel_at(buyer / 2 % 2, &name, order).await).await
            };
            let pay = async {
                tokio::time::sleep(pay_late).await;
                let payment = format!("pay-{buyer}");
                known(async || env.pay_at(buyer % 2, order, &payment).await).await
            };
            tokio::join!(pay, cancel)
        }
    });
    let mut outcomes = Outcomes::default();
    for (buyer, (paid, cancelled)) in join_all(races).await.iter().enumerate() {
        outcomes.count(paid, cancelled);
        let (winner, loser) = if paid.status == 200 {
            ("confirmed", cancelled)
        } else {
            ("cancelled", paid)
        };
        assert_eq!(
            loser.body["state"], winner,
            "the losing request gets the winner's state"
        );
        assert_eq!(env.state_of(&orders[buyer]).await, winner);
    }
    let (paid, cancelled) = (
        outcomes.of("confirmed", "order_not_cancellable"),
        outcomes.of("order_not_payable", "cancelled"),
    );
    eprintln!("{paid} paid, {cancelled} cancelled");
    assert_eq!(paid + cancelled, ORDERS, "{outcomes:?}");
    assert!(
        paid > 0 && cancelled > 0,
        "one request won every race: {outcomes:?}"
    );
    assert_eq!(env.units(&item).await, [300 - paid as u64, 0, paid as u64]);
    assert_eq!(
        env.unmatched_payments(&item).await.len(),
        cancelled,
        "payments that were refused are in the journal"
    );
    let due = env.admin_gets("/v1/refunds-due?limit=1000").await;
    let due = due.rows().clone();
    let of_item = due.iter().filter(|row| row["item"] == item);
    assert_eq!(of_item.count(), cancelled, "and due back");
}

#[tested_in(open_each(Options::reconciled().with_instances(2)))]
async fn a_payment_that_races_the_end_of_the_hold_is_never_lost(env: Env) {
    let item = json!({ "stock": 300, "segments": 3, "hold_seconds": 1, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let placed = placed(&env, &item).await;
    let races = placed.iter().enumerate().map(|(buyer, order)| {
        let env = &env;
        async move {
            // From shortly before the end to shortly after it.
            let ms = i64::try_from(buyer).unwrap() % 100 - 30;
            let id = around_the_end(order, ms).await;
            env.pay_at(buyer % 2, id, &format!("pay-{buyer}")).await
        }
    });
    let paid = join_all(races).await;
    let reacquired = paid
        .iter()
        .zip(&placed)
        .filter(|(paid, placed)| paid.body["expires_at"] != placed.body["expires_at"])
        .count();
    eprintln!("{ORDERS} paid, of which {reacquired} after their hold");
    for answer in &paid {
        answer.is_now("confirmed");
    }
    assert_eq!(
        env.units(&item).await,
        [300 - ORDERS as u64, 0, ORDERS as u64]
    );
    assert!(env.unmatched_payments(&item).await.is_empty());
}

#[tested_in(open(Options::reconciled().with_instances(2)))]
async fn of_a_cancellation_and_the_end_of_the_hold_exactly_one_wins(env: Env) {
    let item = json!({ "stock": 300, "segments": 3, "hold_seconds": 1 });
    let item = env.create(item).await;
    let placed = placed(&env, &item).await;
    let races = placed.iter().enumerate().map(|(buyer, order)| {
        let env = &env;
        async move {
            let ms = i64::try_from(buyer).unwrap() % 60 - 20;
            let id = around_the_end(order, ms).await;
            env.cancel_at(buyer % 2, &format!("buyer-{buyer}"), id)
                .await
        }
    });
    let (mut cancelled, mut expired) = (0, 0);
    for answer in join_all(races).await {
        if answer.status == 200 {
            answer.is_now("cancelled");
            cancelled += 1;
        } else {
            assert_eq!(
                answer.is(409, "order_not_cancellable").body["state"],
                "expired"
            );
            expired += 1;
        }
    }
    eprintln!("{cancelled} cancelled, {expired} expired");
    assert_eq!(cancelled + expired, ORDERS);
    assert_eq!(env.units(&item).await, [300, 0, 0]);
}

/// All buyers without a unit try to buy the returned ones, and all buyers whose holds expired pay
/// late.
#[tokio::test(flavor = "multi_thread")]
async fn late_payers_and_new_buyers_share_returned_units_without_overselling() {
    const STOCK: usize = 60;
    open_each(Options::reconciled().with_instances(2), async |env| {
        let item = env
            .create(
                json!({ "stock": STOCK, "segments": 3, "hold_seconds": 1, "limit_per_buyer": 1 }),
            )
            .await;
        let late = held(&env, &item, STOCK).await;
        for order in &late {
            env.becomes(order, "expired").await;
        }
        let crowd = join_all((0..STOCK).map(|n| {
            let (env, item) = (&env, &item);
            async move {
                let order =
                    Answer::of(env.order_at(n % 2, item, &format!("other-{n}"), "k", 1)).await;
                if order.status != 201 {
                    order.is(409, "sold_out");
                    return 0;
                }
                let paid = env
                    .pay_at(
                        n % 2,
                        order.body["id"].as_str().unwrap(),
                        &format!("pay-other-{n}"),
                    )
                    .await;
                u64::from(paid.is_now("confirmed").status == 200)
            }
        }));
        let payers = join_all(late.iter().enumerate().map(|(n, order)| {
            let env = &env;
            async move { env.pay_at(n % 2, order, &format!("pay-{n}")).await }
        }));
        let (crowd, payers) = tokio::join!(crowd, payers);
        let (others, mut confirmed) = (crowd.iter().sum::<u64>(), 0);
        for (order, answer) in late.iter().zip(&payers) {
            if answer.body["state"] == "confirmed" {
                confirmed += 1;
            } else {
                answer.is_now("refund_due");
                env.refund(order).await.is_now("refunded");
            }
        }
        eprintln!(
            "{others} new buyers, {confirmed} late payers, {} refunds",
            STOCK as u64 - confirmed
        );
        let [available, held, paid] = env.units(&item).await;
        assert_eq!(available + held + paid, STOCK as u64);
        assert_eq!(paid, others + confirmed);
        assert_eq!((available, held), (0, 0), "all remaining units were sold");
    })
    .await;
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_refund_requested_at_all_instances_returns_units_once(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 4 })).await;
    let orders = held(&env, &item, 20).await;
    for (n, order) in orders.iter().enumerate() {
        env.confirm(order, &format!("pay-{n}")).await;
    }
    let refunds = orders
        .iter()
        .flat_map(|order| (0..4).map(|n| env.refund_at(n % 2, order)));
    for answer in join_all(refunds).await {
        answer.is_now("refunded");
    }
    assert_eq!(env.units(&item).await, [20, 0, 0]);
}
