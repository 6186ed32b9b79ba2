//! Carts whose holds have expired: many end in one transaction, each of them whole.

use std::collections::BTreeSet;

use cost::statements;
use domain::{Cart, CartRefusal, CartState, Item, ItemId, OrderState, PaymentId, RefusalReason};
use futures::future::join_all;
use ledger::{CartStep, Event, ExpiredCarts, LedgerError, SteppedCart};
use testkit::{on_both_databases, tested};

use crate::env::{
    AnyLedger, TestEnv, becomes, counters, events_of_kind, held_cart, new_cart, returning, segment,
    state,
};

/// Two items, and carts of a unit of each.
struct Carts {
    items: [Item; 2],
    carts: Vec<Cart>,
}

impl Carts {
    async fn held(env: &TestEnv, carts: usize) -> Self {
        let items = [
            env.create_unlimited("bowl", 100, 1).await,
            env.create_unlimited("vase", 100, 1).await,
        ];
        let mut held = Vec::new();
        for n in 0..carts {
            held.push(held_cart(env, &items.each_ref(), n).await);
        }
        Self { items, carts: held }
    }

    /// Held, confirmed and returning units of each item.
    async fn have(&self, ledger: &impl AnyLedger, units: [u64; 3]) {
        for item in &self.items {
            let [_, held, confirmed, returning] = counters(ledger, &segment(item, 0)).await;
            assert_eq!([held, confirmed, returning], units, "{}", item.id);
        }
    }
}

async fn lines(ledger: &impl AnyLedger, cart: &Cart) -> Vec<OrderState> {
    let lines = cart.lines.iter().map(|line| state(ledger, line.order));
    let lines = join_all(lines).await;
    lines.into_iter().map(Option::unwrap).collect()
}

fn paid(cart: &Cart) -> CartStep {
    CartStep {
        payment: Some(PaymentId::new(format!("pay-{}", cart.id)).unwrap()),
        ..CartStep::to(cart, CartState::Confirmed)
    }
}

/// The same of any cart: how it is after its end, and of its orders how they were before.
fn shape(expired: &SteppedCart) -> impl PartialEq + std::fmt::Debug {
    let SteppedCart {
        cart,
        freed,
        recorded,
    } = expired;
    let lines: Vec<_> = cart.lines.iter().map(|line| line.order).collect();
    let mut freed = freed.clone();
    freed.sort_unstable_by_key(|order| lines.iter().position(|line| *line == order.id));
    let freed: Vec<_> = freed
        .iter()
        .map(|order| (order.item.clone(), order.state, order.version))
        .collect();
    (cart.state, cart.version, cart.expires_at, freed, *recorded)
}

#[tested(on_both_databases(crate::env::run))]
async fn carts_end_together_as_each_does_by_a_step_of_its_own(env: &TestEnv) {
    let all = Carts::held(env, 3).await;
    let [first, second, alone] = &all.carts[..] else {
        panic!("three carts");
    };
    let step = CartStep::to(alone, CartState::Expired);
    let alone = env.step_cart(&step).await.unwrap().unwrap();
    let ended = env.expire_carts(&[second.clone(), first.clone()]).await;
    let ExpiredCarts { ended, left } = ended.unwrap();
    assert_eq!((ended.len(), left.len()), (2, 0));
    for cart in &ended {
        assert_eq!(shape(cart), shape(&alone));
        assert_eq!(
            env.cart(cart.cart.id).await.unwrap().as_ref(),
            Some(&cart.cart)
        );
        assert_eq!(lines(env, &cart.cart).await, [OrderState::Expired; 2]);
    }
    all.have(env, [0, 0, 3]).await;
    for item in &all.items {
        assert_eq!(returning(env, item).await.len(), 3);
    }
    let due = env.due_carts(&[], first.expires_at, 9).await.unwrap();
    assert_eq!(due, [], "none is to be looked at again");
    let events = events_of_kind(env, "cart.expired", 3).await;
    assert_eq!(events.len(), 3);
    for cart in &all.carts {
        let is_of_cart = |event: &&Event| event.item.as_str() == cart.id.to_string();
        let event = events.iter().find(is_of_cart).unwrap();
        let lines: Vec<_> = cart.lines.iter().map(|line| line.order).collect();
        assert_eq!(event.orders, lines);
    }
    // A reconciler that has read them before comes too late.
    for carts in [&*all.carts, &[]] {
        let again = env.expire_carts(carts).await.unwrap();
        assert_eq!(again, ExpiredCarts::default());
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cart_that_was_paid_or_is_broken_keeps_no_other_from_its_end(env: &TestEnv) {
    let all = Carts::held(env, 3).await;
    let [ended, bought, broken] = &all.carts[..] else {
        panic!("three carts");
    };
    env.step_cart(&paid(bought)).await.unwrap().unwrap();
    // In another way than with its cart.
    becomes(env, broken.lines[0].order, OrderState::Expired).await;
    let expired = env.expire_carts(&all.carts).await.unwrap();
    let ids: Vec<_> = expired.ended.iter().map(|ended| ended.cart.id).collect();
    assert_eq!((ids, expired.left), (vec![ended.id], vec![broken.id]));
    assert_eq!(lines(env, bought).await, [OrderState::Confirmed; 2]);
    assert_eq!(
        lines(env, broken).await,
        [OrderState::Expired, OrderState::Held]
    );
    let kept = env.cart(broken.id).await.unwrap().unwrap();
    assert_eq!(kept, *broken);
    let step = CartStep::to(broken, CartState::Expired);
    let step = env.step_cart(&step).await;
    assert!(matches!(step, Err(LedgerError::BrokenCart(id)) if id == broken.id));
}

#[tested(on_both_databases(crate::env::run))]
async fn of_a_payment_and_several_that_end_carts_one_has_each_cart(env: &TestEnv) {
    let all = Carts::held(env, 24).await;
    let others = [env.ledger().await, env.ledger().await];
    let reversed: Vec<_> = all.carts.iter().rev().cloned().collect();
    let pay = join_all(all.carts.iter().step_by(3).map(async |cart| {
        let paid = env.step_cart(&paid(cart)).await.unwrap();
        paid.map(|paid| paid.cart.id)
    }));
    let (forwards, backwards, bought) = tokio::join!(
        others[0].expire_carts(&all.carts),
        others[1].expire_carts(&reversed),
        pay
    );
    let expired = [forwards.unwrap().ended, backwards.unwrap().ended].concat();
    let bought: Vec<_> = bought.into_iter().flatten().collect();
    let mut ends: Vec<_> = expired.iter().map(|expired| expired.cart.id).collect();
    ends.extend(&bought);
    ends.sort_unstable();
    let mut carts: Vec<_> = all.carts.iter().map(|cart| cart.id).collect();
    carts.sort_unstable();
    assert_eq!(ends, carts, "each has one end");
    let (bought, expired) = (bought.len() as u64, expired.len() as u64);
    all.have(env, [0, bought, expired]).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn the_number_of_statements_does_not_depend_on_the_number_of_carts(env: &TestEnv) {
    let all = Carts::held(env, 24).await;
    let ledger = env.ledger_of_one_connection().await;
    let end = async |carts: &[Cart]| {
        let (ended, statements) = statements(ledger.expire_carts(carts)).await;
        assert_eq!(ended.unwrap().ended.len(), carts.len());
        statements
    };
    // Statements are prepared.
    end(&all.carts[..1]).await;
    let one = end(&all.carts[1..2]).await;
    assert_eq!(end(&all.carts[2..]).await, one);
}

/// Carts that are held, and carts whose placing has not ended, are searched for apart.
#[tested(on_both_databases(crate::env::run))]
async fn due_carts_are_found_without_those_of_some_items(env: &TestEnv) {
    let [bowl, vase, jug] = [
        env.create_unlimited("bowl", 100, 1).await,
        env.create_unlimited("vase", 100, 1).await,
        env.create_unlimited("jug", 100, 1).await,
    ];
    let held = [
        held_cart(env, &[&bowl, &vase], 0).await,
        held_cart(env, &[&jug], 1).await,
    ];
    let placing = [
        new_cart(env, &[&bowl, &vase], 2).await,
        new_cart(env, &[&jug], 3).await,
    ];
    let failed = new_cart(env, &[&bowl], 4).await;
    let failure = CartStep {
        refusal: Some(CartRefusal {
            reason: RefusalReason::TimedOut,
            item: None,
        }),
        ..CartStep::to(&failed, CartState::Failed)
    };
    let failed = env.step_cart(&failure).await.unwrap().unwrap().cart;
    let later = placing[0].deadline;
    let of = |carts: &[&Cart]| carts.iter().map(|cart| cart.id).collect::<BTreeSet<_>>();
    let due = async |except: &[ItemId], at_most| {
        let held = env.due_carts(except, later, at_most).await.unwrap();
        let abandoned = env.abandoned_carts(except, later, at_most).await.unwrap();
        [held, abandoned].map(|carts| of(&carts.iter().collect::<Vec<_>>()))
    };
    let all = [
        of(&[&held[0], &held[1]]),
        of(&[&placing[0], &placing[1], &failed]),
    ];
    assert_eq!(due(&[], 9).await, all);
    let others = [of(&[&held[1]]), of(&[&placing[1]])];
    assert_eq!(due(std::slice::from_ref(&bowl.id), 9).await, others);
    let others = [of(&[&held[1]]), of(&[&placing[1], &failed])];
    assert_eq!(due(std::slice::from_ref(&vase.id), 9).await, others);
    assert_eq!(due(&[bowl.id, jug.id], 9).await, [of(&[]), of(&[])]);
    assert_eq!(due(&[vase.id], 1).await[0].len(), 1);
}
