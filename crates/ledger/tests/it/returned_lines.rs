//! Single lines of confirmed carts that are returned.

use std::sync::Arc;

use domain::{Cart, CartState, Item, OrderId, OrderState, PaymentId};
use ledger::{CartStep, RefundReport, RefundState};
use serde_json::json;
use testkit::{on_both_databases, tested};

use crate::{
    env::{AnyLedger, TestEnv, counters, events_of_kind, happen, order, segment, state, take},
    refunds::paid_cart,
};

const PAYMENT: &str = "pi_1";

/// A confirmed cart of two items.
async fn confirmed(env: &TestEnv) -> (Cart, [Item; 2]) {
    let items = [
        env.create_unlimited("bowl", 4, 1).await,
        env.create_unlimited("vase", 4, 1).await,
    ];
    for item in &items {
        let taken = [take([order(item, 0, 1)])];
        happen(env, &segment(item, 0), taken).await;
    }
    let cart = paid_cart(env, &[&items[0], &items[1]], PAYMENT).await;
    (cart, items)
}

async fn returned(ledger: &impl AnyLedger, cart: &Cart, line: usize) -> Option<Cart> {
    let eve: Arc<str> = "eve".into();
    let line = cart.lines[line].order;
    let returned = ledger.return_cart_line(cart, line, &eve).await.unwrap();
    returned.map(|returned| {
        assert_eq!(
            (returned.line.id, returned.line.state),
            (line, OrderState::Refunded)
        );
        returned.cart
    })
}

async fn states(ledger: &impl AnyLedger, cart: &Cart) -> [Option<OrderState>; 2] {
    let [bowl, vase]: [OrderId; 2] = [0, 1].map(|line: usize| cart.lines[line].order);
    [state(ledger, bowl).await, state(ledger, vase).await]
}

fn payment() -> PaymentId {
    PaymentId::new(PAYMENT).unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn a_line_is_returned_for_a_version_of_its_cart_and_once(env: &TestEnv) {
    use OrderState::{Confirmed, Refunded};
    let (cart, items) = confirmed(env).await;
    let after = returned(env, &cart, 0).await.unwrap();
    assert_eq!(
        (after.state, after.version, &after.payment),
        (CartState::Confirmed, cart.version + 1, &cart.payment)
    );
    assert_eq!(env.cart(cart.id).await.unwrap(), Some(after.clone()));
    assert_eq!(states(env, &cart).await, [Some(Refunded), Some(Confirmed)]);
    let [bowl, vase] = [0, 1].map(|line: usize| segment(&items[line], 0));
    assert_eq!(counters(env, &bowl).await, [3, 0, 0, 1]);
    assert_eq!(counters(env, &vase).await, [3, 0, 1, 0]);
    // The cart has another version, and the line was returned.
    assert_eq!(returned(env, &cart, 1).await, None);
    assert_eq!(returned(env, &after, 0).await, None);
    assert_eq!(counters(env, &bowl).await, [3, 0, 0, 1]);
    let refunded = events_of_kind(env, "order.refunded", 1).await;
    assert_eq!(refunded[0].data["payment"], json!(PAYMENT));
    let journal = env.journal(&items[0].id, 9).await.unwrap();
    let entry = &journal[0].entry;
    assert_eq!(
        (&*entry.actor, &*entry.action, &entry.before["cart"]),
        ("eve", "refund", &json!(cart.id))
    );
    assert!(!env.is_returned(&payment()).await.unwrap());
    let whole = CartStep {
        returns_money: true,
        ..CartStep::to(&after, CartState::Refunded)
    };
    let whole = env.step_cart(&whole).await.unwrap().unwrap();
    assert_eq!(whole.freed.len(), 1, "the other line has no units");
    assert_eq!(states(env, &cart).await, [Some(Refunded), Some(Refunded)]);
    assert_eq!(counters(env, &bowl).await, [3, 0, 0, 1]);
    assert_eq!(counters(env, &vase).await, [3, 0, 0, 1]);
    assert!(env.is_returned(&payment()).await.unwrap());
}

#[tested(on_both_databases(crate::env::run))]
async fn the_last_line_takes_the_cart_with_it_and_spends_the_payment(env: &TestEnv) {
    let (cart, _) = confirmed(env).await;
    let after = returned(env, &cart, 1).await.unwrap();
    assert!(!env.is_returned(&payment()).await.unwrap());
    let last = returned(env, &after, 0).await.unwrap();
    assert_eq!(last.state, CartState::Refunded);
    assert_eq!(returned(env, &last, 0).await, None);
    assert!(env.is_returned(&payment()).await.unwrap());
    let refunded = events_of_kind(env, "cart.refunded", 1).await;
    assert_eq!(refunded[0].data["cart"], json!(cart.id));
}

/// The provider's refund of the first line has failed: what is returned later does not include it.
async fn a_failed_refund_of_a_line_is_due(env: &TestEnv, is_whole: bool) {
    let (cart, items) = confirmed(env).await;
    let after = returned(env, &cart, 0).await.unwrap();
    let failed = RefundReport {
        id: "re_1".into(),
        payment: payment(),
        payer: Some(cart.id.as_uuid()),
        state: RefundState::Failed,
        amount: 5,
        currency: None,
        created_at: None,
        at: None,
    };
    env.note_refund(&failed).await.unwrap();
    let due = async || env.list_payments_due(None, 9).await.unwrap().rows;
    assert!(due().await.is_empty(), "what the cart has is paid");
    if is_whole {
        let whole = CartStep {
            returns_money: true,
            ..CartStep::to(&after, CartState::Refunded)
        };
        assert!(env.step_cart(&whole).await.unwrap().is_some());
    } else {
        assert!(returned(env, &after, 1).await.is_some());
    }
    let listed = due().await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].entry.item, items[0].id);
    assert_eq!(listed[0].entry.after["due"], 5);
    let noted = env.note_refund_done(listed[0].id, "eve").await;
    assert!(noted.unwrap());
    assert!(due().await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_failed_refund_of_a_line_is_due_after_the_last_line(env: &TestEnv) {
    a_failed_refund_of_a_line_is_due(env, false).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_failed_refund_of_a_line_is_due_after_the_refund_of_the_rest(env: &TestEnv) {
    a_failed_refund_of_a_line_is_due(env, true).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cart_that_lost_a_line_with_a_drop_stays_paid(env: &TestEnv) {
    let (cart, _) = confirmed(env).await;
    env.sql("DELETE FROM orders WHERE item = 'bowl'").await;
    assert_eq!(returned(env, &cart, 0).await, None);
    let after = returned(env, &cart, 1).await.unwrap();
    assert_eq!(after.state, CartState::Confirmed);
    assert!(!env.is_returned(&payment()).await.unwrap());
    env.sql("UPDATE segments SET confirmed = 0, available = available + 1 WHERE item = 'bowl'")
        .await;
}
