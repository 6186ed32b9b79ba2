//! Carts that are paid late: lines of an expired cart that take units again.

use std::time::Duration;

use domain::{Cart, CartState, Item, OrderId, OrderState, PaymentId, TakenOrder};
use jiff::Timestamp;
use ledger::{CartStep, ItemScope, LedgerError, Transition};
use serde_json::json;
use testkit::{on_both_databases, tested};

use crate::env::{
    AnyLedger, TestEnv, again, counters, events_of_kind, happen, held_cart, order, order_id,
    release, segment, state, take,
};

/// A cart of two items that has expired, and whose units have returned.
struct Expired {
    cart: Cart,
    items: [Item; 2],
}

impl Expired {
    async fn new(env: &TestEnv) -> Self {
        let items = [
            env.create_unlimited("bowl", 4, 1).await,
            env.create_unlimited("vase", 4, 1).await,
        ];
        let held = held_cart(env, &items.each_ref(), 0).await;
        let expired = CartStep::to(&held, CartState::Expired);
        let cart = stepped(env, &expired).await.unwrap();
        for item in &items {
            happens(env, item, release([order(item, 0, 1)])).await;
            assert_eq!(units(env, item).await, [4, 0, 0, 0]);
        }
        Self { cart, items }
    }

    /// The ledger records that the line has taken its unit again.
    async fn take_again(&self, ledger: &impl AnyLedger, line: usize, attempt: u8) {
        happens(ledger, &self.items[line], take([self.again(line, attempt)])).await;
    }

    fn again(&self, line: usize, attempt: u8) -> TakenOrder {
        again(order(&self.items[line], 0, 1), attempt)
    }

    /// The step of a late payment.
    fn paid(&self, to: CartState, payment: &str) -> CartStep {
        CartStep {
            payment: Some(PaymentId::new(payment).unwrap()),
            ..CartStep::to(&self.cart, to)
        }
    }

    async fn states(&self, ledger: &impl AnyLedger) -> [OrderState; 2] {
        let [bowl, vase] = [0, 1].map(|line| self.line(line));
        [state(ledger, bowl).await, state(ledger, vase).await].map(Option::unwrap)
    }

    fn line(&self, line: usize) -> OrderId {
        self.cart.lines[line].order
    }
}

async fn happens(ledger: &impl AnyLedger, item: &Item, change: domain::Change) {
    happen(ledger, &segment(item, 0), [change]).await;
}

async fn stepped(ledger: &impl AnyLedger, step: &CartStep) -> Option<Cart> {
    let stepped = ledger.step_cart(step).await.unwrap();
    stepped.map(|stepped| stepped.cart)
}

/// Available, held, confirmed and returning.
async fn units(ledger: &impl AnyLedger, item: &Item) -> [u64; 4] {
    counters(ledger, &segment(item, 0)).await
}

#[tested(on_both_databases(crate::env::run))]
async fn an_expired_cart_is_confirmed_only_once_every_line_is_held_again(env: &TestEnv) {
    let late = Expired::new(env).await;
    let pay = late.paid(CartState::Confirmed, "pay-1");
    assert_eq!(stepped(env, &pay).await, None);
    late.take_again(env, 0, 1).await;
    assert_eq!(stepped(env, &pay).await, None, "one line is missing");
    assert_eq!(
        late.states(env).await,
        [OrderState::Held, OrderState::Expired]
    );
    late.take_again(env, 1, 1).await;
    let paid = stepped(env, &pay).await.unwrap();
    assert_eq!(
        (paid.state, paid.payment, paid.version),
        (
            CartState::Confirmed,
            pay.payment.clone(),
            late.cart.version + 1
        )
    );
    assert_eq!(late.states(env).await, [OrderState::Confirmed; 2]);
    for item in &late.items {
        assert_eq!(units(env, item).await, [3, 0, 1, 0]);
    }
    // A report that has read the expired cart comes too late.
    for to in [CartState::Confirmed, CartState::RefundDue] {
        assert_eq!(stepped(env, &late.paid(to, "pay-2")).await, None);
    }
    let confirmed = events_of_kind(env, "cart.confirmed", 1).await;
    assert_eq!(confirmed[0].data["payment"], json!("pay-1"));
    assert_eq!(events_of_kind(env, "order.confirmed", 2).await.len(), 2);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_payment_of_something_else_confirms_no_expired_cart(env: &TestEnv) {
    let late = Expired::new(env).await;
    let lamp = env.create_unlimited("lamp", 4, 1).await;
    happens(env, &lamp, take([order(&lamp, 0, 1)])).await;
    let other = Transition {
        order: env.order(order_id(&lamp, 0)).await.unwrap().unwrap(),
        to: OrderState::Confirmed,
        payment: Some(PaymentId::new("pay-1").unwrap()),
    };
    assert!(env.transition(&[other]).await.unwrap()[0].is_some());
    for line in 0..2 {
        late.take_again(env, line, 1).await;
    }
    for to in [CartState::Confirmed, CartState::RefundDue] {
        assert_eq!(stepped(env, &late.paid(to, "pay-1")).await, None);
    }
    assert_eq!(late.states(env).await, [OrderState::Held; 2]);
}

#[tested(on_both_databases(crate::env::run))]
async fn money_that_is_due_frees_the_lines_that_were_held_again(env: &TestEnv) {
    let late = Expired::new(env).await;
    late.take_again(env, 0, 1).await;
    let due = late.paid(CartState::RefundDue, "pay-1");
    let due = env.step_cart(&due).await.unwrap().unwrap();
    let freed: Vec<_> = due.freed.iter().map(domain::Order::take_id).collect();
    assert_eq!(freed, [late.line(0).reacquire(1)]);
    assert_eq!(late.states(env).await, [OrderState::RefundDue; 2]);
    assert_eq!(units(env, &late.items[0]).await, [3, 0, 0, 1]);
    assert_eq!(units(env, &late.items[1]).await, [4, 0, 0, 0]);
    happens(env, &late.items[0], release([late.again(0, 1)])).await;
    assert_eq!(units(env, &late.items[0]).await, [4, 0, 0, 0]);
    for (item, was) in late.items.iter().zip(["held", "expired"]) {
        let journal = env.journal(&item.id, 9).await.unwrap();
        let entry = &journal[0].entry;
        assert_eq!(
            (
                &*entry.action,
                &entry.before["state"],
                &entry.after["payment"]
            ),
            ("refund_due", &json!(was), &json!("pay-1"))
        );
    }
    let refund = CartStep::to(&due.cart, CartState::Refunded);
    assert!(stepped(env, &refund).await.is_some());
    assert_eq!(late.states(env).await, [OrderState::Refunded; 2]);
}

#[tested(on_both_databases(crate::env::run))]
async fn units_that_are_recorded_after_the_cart_go_straight_back(env: &TestEnv) {
    let late = Expired::new(env).await;
    let due = late.paid(CartState::RefundDue, "pay-1");
    assert!(stepped(env, &due).await.is_some());
    late.take_again(env, 0, 1).await;
    assert_eq!(late.states(env).await, [OrderState::RefundDue; 2]);
    assert_eq!(units(env, &late.items[0]).await, [3, 0, 0, 1]);
    happens(env, &late.items[0], release([late.again(0, 1)])).await;
    assert_eq!(units(env, &late.items[0]).await, [4, 0, 0, 0]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_line_that_is_held_again_expires_alone_and_no_other_does(env: &TestEnv) {
    let late = Expired::new(env).await;
    let due = async || {
        let later = Timestamp::now() + Duration::from_secs(3600);
        env.due(ItemScope::ALL, later, 9).await.unwrap()
    };
    assert!(due().await.is_empty());
    late.take_again(env, 0, 1).await;
    let found = due().await;
    assert_eq!(
        found.iter().map(|line| line.id).collect::<Vec<_>>(),
        [late.line(0)]
    );
    let expire = [Transition {
        order: found[0].clone(),
        to: OrderState::Expired,
        payment: None,
    }];
    assert!(env.transition(&expire).await.unwrap()[0].is_some());
    assert!(due().await.is_empty());
    assert_eq!(units(env, &late.items[0]).await, [3, 0, 0, 1]);
    happens(env, &late.items[0], release([late.again(0, 1)])).await;
    // The next report takes it under the id of another attempt, and the other line under its first
    // one.
    late.take_again(env, 0, 2).await;
    late.take_again(env, 1, 1).await;
    assert_eq!(due().await.len(), 2);
    let pay = late.paid(CartState::Confirmed, "pay-1");
    assert!(stepped(env, &pay).await.is_some());
    assert!(due().await.is_empty());
    // What an expirer has read before has changed.
    assert_eq!(env.transition(&expire).await.unwrap(), [None]);
    assert_eq!(late.states(env).await, [OrderState::Confirmed; 2]);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_line_that_is_held_again_ends_in_no_other_way(env: &TestEnv) {
    let late = Expired::new(env).await;
    for line in 0..2 {
        late.take_again(env, line, 1).await;
    }
    for to in [OrderState::Confirmed, OrderState::Cancelled] {
        let alone = [Transition {
            order: env.order(late.line(0)).await.unwrap().unwrap(),
            to,
            payment: None,
        }];
        assert_eq!(env.transition(&alone).await.unwrap(), [None], "{to}");
    }
    for to in [CartState::Cancelled, CartState::Held, CartState::Failed] {
        let step = CartStep::to(&late.cart, to);
        assert_eq!(stepped(env, &step).await, None, "{to}");
    }
    let extended = env.extend_cart(&late.cart, Duration::from_secs(9999));
    assert_eq!(extended.await.unwrap(), None);
    // A line that lost its unit in another way than by its hold's end breaks the cart.
    env.sql("UPDATE orders SET state = 'cancelled' WHERE item = 'bowl'")
        .await;
    let broken = env
        .step_cart(&late.paid(CartState::RefundDue, "pay-1"))
        .await;
    assert!(
        matches!(broken, Err(LedgerError::BrokenCart(id)) if id == late.cart.id),
        "{broken:?}"
    );
    env.sql("UPDATE orders SET state = 'held' WHERE item = 'bowl'")
        .await;
}
