//! Expiry of holds.

use std::{ops::Range, sync::Arc, time::Duration};

use domain::{Cart, CartId, CartLine, CartState, IdempotencyKey, Item, OrderState, Quantity};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use ledger::{CartStep, EventCursor, Events, Ledger};
use reconciler::ReconcilerSettings;
use testkit::{
    Sale, TestEnv, buyer, eventually, eventually_some, is_held, on_both_databases, tested, timeout,
};

use crate::{env::quick, unresponsive::UnresponsiveLedger};

fn short_holds(item: Item) -> Item {
    Item {
        hold_seconds: 1,
        limit_per_buyer: Some(domain::Quantity::ONE),
        ..item
    }
}

/// Waits until so many orders have expired.
async fn have_expired(sale: &Sale, orders: u64) {
    let what = format!("the end of {orders} holds");
    eventually(&what, async || {
        sale.orders().await.get("expired") == Some(&orders)
    })
    .await;
}

/// The first pass after the end of a hold ends it and returns its unit. So the interval of the
/// passes is what a buyer waits for, as long as the search for due holds is quick.
#[tested(on_both_databases(crate::env::run))]
async fn a_hold_expires_in_the_first_pass_after_its_end_and_its_unit_can_be_bought_again(
    env: &Arc<TestEnv>,
) {
    assert!(ReconcilerSettings::default().expiry_interval * 2 < Duration::from_secs(1));
    env.record().await;
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    let settings = ReconcilerSettings {
        // Only the pass itself returns units.
        return_delay: Duration::from_secs(3600),
        ..quick()
    };
    env.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    let sale = env.sell_with(200, 4, short_holds).await;
    let orders = sale.hold_many(0..200).await;
    let mut over = Timestamp::MIN;
    for order in &orders {
        over = over.max(sale.recorded(*order).await.expires_at);
    }
    // All orders are recorded. Passes that begin from now on see all of them.
    let before = ledger.passes().len();
    eventually("all units coming back", async || {
        sale.available().await.iter().sum::<u64>() == 200
    })
    .await;
    assert!(Timestamp::now() >= over, "not before their time");
    let passes = ledger.passes().split_off(before);
    let late = passes.iter().filter(|pass| pass.now >= over);
    // The first may have begun before.
    let too_late: Vec<_> = late.skip(2).filter(|pass| pass.found > 0).collect();
    assert!(too_late.is_empty(), "{too_late:?} after {over}");
    // The buyers' counts are released too: all of them may buy again.
    let again = join_all((0..200).map(|n| {
        let sale = Arc::clone(&sale);
        async move { sale.order(&buyer(n), "again", 1).await }
    }));
    assert!(again.await.iter().all(is_held));
    have_expired(&sale, 400).await;
}

/// The version of an order that has only been recorded. Reading it from one of them could be too
/// late: the holds are short.
const RECORDED: u64 = 1;

/// An order whose hold ends in ten minutes, beside a reconciler with this clock.
async fn reconciled_by(env: &Arc<TestEnv>, clock: fn() -> Timestamp) -> Arc<Sale> {
    env.record().await;
    env.reconcile(ReconcilerSettings { clock, ..quick() }).await;
    let sale = env.sell(10, 2).await;
    sale.hold_many(0..5).await;
    sale
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reconciler_whose_clock_runs_ahead_ends_no_hold_before_its_time(env: &Arc<TestEnv>) {
    for clock in [
        (|| Timestamp::now() + SignedDuration::from_mins(15)) as fn() -> Timestamp,
        || Timestamp::now() + SignedDuration::from_hours(-1),
    ] {
        let sale = reconciled_by(env, clock).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(sale.orders().await.get("held"), Some(&5));
    }
    // Four seconds are tolerated, and the holds end by the clock that set their end.
    env.reconcile(ReconcilerSettings {
        clock: || Timestamp::now() + SignedDuration::from_secs(4),
        ..quick()
    })
    .await;
    let sale = env.sell_with(10, 2, short_holds).await;
    let order = sale.hold(&buyer(0), "key", 1).await;
    let over = sale.recorded(order).await.expires_at;
    have_expired(&sale, 1).await;
    assert!(Timestamp::now() >= over, "not before its time");
}

#[tested(on_both_databases(crate::env::run))]
async fn several_expirers_end_each_hold_once(env: &Arc<TestEnv>) {
    env.record().await;
    for _ in 0..3 {
        env.reconcile(quick()).await;
    }
    let sale = env.sell_with(600, 3, short_holds).await;
    let orders = sale.hold_many(0..600).await;
    have_expired(&sale, 600).await;
    sale.comes_to_rest().await;
    for order in orders {
        let order = sale.recorded(order).await;
        assert_eq!(
            (order.state, order.version),
            (OrderState::Expired, RECORDED + 1),
            "one step, and no other"
        );
    }
    assert_eq!(sale.available().await.iter().sum::<u64>(), 600);
    assert!(sale.journal("drift").await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn paid_and_cancelled_orders_do_not_expire(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(30, 3, short_holds).await;
    let orders = sale.hold_many(0..30).await;
    for (n, order) in orders.iter().enumerate() {
        match n % 3 {
            0 => drop(sale.step(*order, OrderState::Confirmed).await),
            1 => drop(sale.step(*order, OrderState::Cancelled).await),
            _ => {}
        }
    }
    env.reconcile(quick()).await;
    have_expired(&sale, 10).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    sale.comes_to_rest().await;
    assert_eq!(sum_of(&sale).await, [20, 0, 10]);
}

#[tested(on_both_databases(crate::env::run))]
async fn expiry_retries_after_a_ledger_did_not_answer(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(20, 2, short_holds).await;
    sale.hold_many(0..20).await;
    let ledger = Arc::new(UnresponsiveLedger::new(env.ledger().await, 2, 2));
    env.reconcile_on(Arc::clone(&ledger) as _, impatient())
        .await;
    have_expired(&sale, 20).await;
    assert_eq!(
        ledger.left(),
        [0, 0],
        "each call was left unanswered exactly as often as configured"
    );
}

/// The database refuses to end what `buyers` have in this table, a condition.
async fn refuse_to_end(env: &TestEnv, table: &str, buyers: &str) {
    env.sql_of(
        &format!(
            "ALTER TABLE {table} ADD CONSTRAINT not_this_one CHECK (NOT ({buyers}) OR state <> 'expired')"
        ),
        &format!(
            "CREATE TRIGGER not_this_one BEFORE UPDATE ON {table} WHEN new.{buyers} AND new.state = 'expired' \
             BEGIN SELECT raise(ABORT, 'not this one'); END"
        ),
    )
    .await;
}

async fn refuse_none(env: &TestEnv, table: &str) {
    env.sql_of(
        &format!("ALTER TABLE {table} DROP CONSTRAINT not_this_one"),
        "DROP TRIGGER not_this_one",
    )
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_hold_that_the_ledger_refuses_to_end_blocks_no_other(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(20, 2, short_holds).await;
    let orders = sale.hold_many(0..20).await;
    refuse_to_end(env, "orders", "buyer = 'buyer-3'").await;
    env.reconcile(quick()).await;
    have_expired(&sale, 19).await;
    assert_eq!(sale.state(orders[3]).await, Some(OrderState::Held));
    refuse_none(env, "orders").await;
    have_expired(&sale, 20).await;
}

/// Settings under which a locked sale is given up soon.
fn impatient() -> ReconcilerSettings {
    ReconcilerSettings {
        ledger_timeout: Duration::from_millis(300),
        ..quick()
    }
}

/// More holds than one search finds.
const MANY: usize = 510;

#[tested(on_both_databases(crate::env::run))]
async fn holds_of_a_locked_sale_keep_no_other_from_its_end(env: &Arc<TestEnv>) {
    env.record().await;
    let locked = env.sell_with(MANY as u64, 2, short_holds).await;
    locked.hold_many(0..MANY).await;
    let other = env.sell_with(20, 2, short_holds).await;
    other.hold_many(0..20).await;
    let ledger = UnresponsiveLedger::with_a_locked_sale(env.ledger().await, locked.item.id.clone());
    env.reconcile_on(Arc::clone(&ledger) as _, impatient())
        .await;
    have_expired(&other, 20).await;
    assert_eq!(locked.orders().await.get("held"), Some(&(MANY as u64)));
    ledger.unlock();
    have_expired(&locked, MANY as u64).await;
}

async fn sum_of(sale: &Sale) -> [u64; 3] {
    let report = sale.report().await;
    [report.available, report.held, report.confirmed]
}

/// A cart of the n-th buyer whose request has died a minute ago. Its line is the order that the buyer
/// places alone.
fn abandoned_cart(sale: &Sale, n: usize) -> Cart {
    let (item, buyer, key) = (&sale.item, buyer(n), "key");
    let line = CartLine {
        order: sale.order_id(&buyer, key),
        item: item.id.clone(),
        quantity: Quantity::ONE,
    };
    let key = IdempotencyKey::new(key).unwrap();
    let deadline = Timestamp::now() - SignedDuration::from_mins(1);
    Cart {
        id: CartId::derive(&buyer, &key),
        buyer,
        state: CartState::Placing,
        lines: vec![line],
        amount: 0,
        is_checked: true,
        price: Some(0),
        currency: item.currency.clone(),
        deadline,
        expires_at: deadline,
        payment: None,
        refusal: None,
        version: 1,
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn more_carts_than_one_search_finds_end(env: &Arc<TestEnv>) {
    env.record().await;
    let (sale, ledger) = (env.sell(10, 1).await, env.ledger().await);
    let carts: Vec<_> = (0..510).map(|n| abandoned_cart(&sale, n)).collect();
    for cart in &carts {
        ledger.create_cart(cart).await.unwrap();
    }
    env.reconcile(quick()).await;
    let ids: Vec<_> = carts.iter().map(|cart| cart.id).collect();
    eventually("all carts failing", async || {
        let carts = ledger.list_carts(&ids).await.unwrap();
        carts.len() == ids.len() && carts.iter().all(|cart| cart.state == CartState::Failed)
    })
    .await;
}

/// A cart that is held, of a unit of the n-th buyer.
async fn held_cart(sale: &Sale, ledger: &dyn Ledger, n: usize) -> Cart {
    let cart = abandoned_cart(sale, n);
    ledger.create_cart(&cart).await.unwrap();
    sale.hold(&buyer(n), "key", 1).await;
    let held = CartStep::to(&cart, CartState::Held);
    ledger.step_cart(&held).await.unwrap().unwrap().cart
}

/// Carts of an item, one of each of its buyers, whose holds have just ended.
struct EndedHolds {
    sale: Arc<Sale>,
    ledger: Arc<dyn Ledger>,
    carts: Vec<Cart>,
}

impl EndedHolds {
    async fn of(env: &TestEnv, buyers: Range<usize>) -> Self {
        env.record().await;
        let sale = env.sell_with(buyers.len() as u64, 3, short_holds).await;
        let ledger = env.ledger().await;
        let carts = buyers.map(|n| held_cart(&sale, &*ledger, n));
        let carts = join_all(carts).await;
        let over = carts.iter().map(|cart| cart.expires_at).max().unwrap();
        eventually("the end of all holds", async || Timestamp::now() > over).await;
        Self {
            sale,
            ledger,
            carts,
        }
    }

    /// Waits until so many units have returned. Returns how many carts have ended.
    async fn have_returned(&self, units: u64) -> usize {
        eventually(&format!("{units} units coming back"), async || {
            self.sale.available().await.iter().sum::<u64>() == units
        })
        .await;
        self.ended().await
    }

    /// How many carts have ended.
    async fn ended(&self) -> usize {
        let ids: Vec<_> = self.carts.iter().map(|cart| cart.id).collect();
        let carts = self.ledger.list_carts(&ids).await.unwrap();
        let ended = carts.iter().filter(|cart| cart.state == CartState::Expired);
        ended.count()
    }
}

/// Nothing ends a call of the ledger.
fn patient() -> ReconcilerSettings {
    ReconcilerSettings {
        ledger_timeout: timeout(),
        ..quick()
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn held_carts_end_together_and_their_units_return(env: &Arc<TestEnv>) {
    let holds = EndedHolds::of(env, 0..60).await;
    env.reconcile(patient()).await;
    assert_eq!(holds.have_returned(60).await, 60);
    // One stands for all orders of an item that a transaction has moved.
    let transactions = eventually_some("the events of all ends", async || {
        let page = holds.ledger.events(EventCursor::START, 1000).await.unwrap();
        let Events::Page(events) = page else {
            panic!("no event was removed");
        };
        let ended = events.iter().filter(|event| event.kind == "order.expired");
        let ended: Vec<_> = ended.map(|event| event.orders.len()).collect();
        (ended.iter().sum::<usize>() == 60).then_some(ended)
    })
    .await;
    assert_eq!(transactions, [60]);
}

/// In the round that finds all of them: there is no other.
#[tested(on_both_databases(crate::env::run))]
async fn abandoned_carts_end_beside_held_ones(env: &Arc<TestEnv>) {
    let holds = EndedHolds::of(env, 0..12).await;
    let abandoned: Vec<_> = (12..20).map(|n| abandoned_cart(&holds.sale, n)).collect();
    for cart in &abandoned {
        holds.ledger.create_cart(cart).await.unwrap();
    }
    env.reconcile(ReconcilerSettings {
        expiry_interval: Duration::from_secs(3600),
        ..patient()
    })
    .await;
    assert_eq!(holds.have_returned(12).await, 12);
    let ids: Vec<_> = abandoned.iter().map(|cart| cart.id).collect();
    eventually("the abandoned carts failing", async || {
        let carts = holds.ledger.list_carts(&ids).await.unwrap();
        carts.iter().all(|cart| cart.state == CartState::Failed)
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cart_that_the_ledger_refuses_to_end_keeps_no_other_from_its_end(env: &Arc<TestEnv>) {
    let holds = EndedHolds::of(env, 0..25).await;
    // All but the last ten, and more than are tried at a time.
    refuse_to_end(env, "carts", "buyer NOT LIKE 'buyer-1_'").await;
    env.reconcile(patient()).await;
    assert_eq!(holds.have_returned(10).await, 10);
    refuse_none(env, "carts").await;
    assert_eq!(holds.have_returned(25).await, 25);
}

#[tested(on_both_databases(crate::env::run))]
async fn carts_of_a_locked_sale_keep_no_other_from_its_end(env: &Arc<TestEnv>) {
    let locked = EndedHolds::of(env, 0..MANY).await;
    let other = EndedHolds::of(env, MANY..MANY + 12).await;
    let item = locked.sale.item.id.clone();
    let ledger = UnresponsiveLedger::with_a_locked_sale(env.ledger().await, item);
    env.reconcile_on(Arc::clone(&ledger) as _, impatient())
        .await;
    assert_eq!(other.have_returned(12).await, 12);
    assert_eq!(locked.ended().await, 0);
    ledger.unlock();
    assert_eq!(locked.have_returned(MANY as u64).await, MANY);
}
