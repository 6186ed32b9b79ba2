//! What became of the money of payments: reports in any order, and any number of times.

use domain::{Cart, CartState, Item, Order, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{
    CartStep, DropRequest, DroppedRows, ExportedRow, LedgerError, NewJournalEntry, NotedRefund,
    PaymentReturn, RefundReport, RefundState, ReturnedPayment, SaleTable, Transition,
};
use serde_json::json;
use testkit::{Backend, on_both_databases, tested};
use uuid::Uuid;

use crate::env::{
    AnyLedger, TestEnv, counters, happen, new_cart, order, order_id, segment, step, take,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn payment(id: &str) -> PaymentId {
    PaymentId::new(id).unwrap()
}

/// An item with some held orders.
async fn held(env: &TestEnv, orders: usize) -> Item {
    held_of(env, "vase", orders).await
}

async fn held_of(env: &TestEnv, name: &str, orders: usize) -> Item {
    let item = env.create_unlimited(name, 100, 1).await;
    let orders = (0..orders).map(|n| order(&item, n, 1));
    happen(env, &segment(&item, 0), [take(orders)]).await;
    item
}

async fn pay(ledger: &impl AnyLedger, item: &Item, n: usize, id: &str) -> Option<Order> {
    paid_to(ledger, item, n, OrderState::Confirmed, id).await
}

/// The transition of the order `n` by a payment.
async fn paid_to(
    ledger: &impl AnyLedger,
    item: &Item,
    n: usize,
    to: OrderState,
    id: &str,
) -> Option<Order> {
    let order = ledger.order(order_id(item, n)).await.unwrap().unwrap();
    step_of(ledger, order, to, id).await
}

async fn step_of(ledger: &impl AnyLedger, order: Order, to: OrderState, id: &str) -> Option<Order> {
    let payment = Some(payment(id));
    let paid = [Transition { order, to, payment }];
    ledger.transition(&paid).await.unwrap().remove(0)
}

/// A step of the order `n` that has bound the payment and then lost a race.
async fn lose_race(ledger: &impl AnyLedger, item: &Item, n: usize, of: &str) {
    let order = ledger.order(order_id(item, n)).await.unwrap().unwrap();
    let stale = Order {
        version: order.version + 7,
        ..order
    };
    let lost = step_of(ledger, stale, OrderState::Confirmed, of).await;
    assert_eq!(lost, None);
}

fn returned(id: &str, second: i64) -> PaymentReturn {
    PaymentReturn {
        payment: payment(id),
        payer: None,
        at: Some(at(second)),
    }
}

/// A report of a refund that was made at `created`, and has its state since `second`.
fn refund(
    id: &str,
    of: &str,
    state: RefundState,
    amount: u64,
    [created, second]: [i64; 2],
) -> RefundReport {
    RefundReport {
        id: id.into(),
        payment: payment(of),
        payer: None,
        state,
        amount,
        currency: Some("EUR".into()),
        created_at: Some(at(created)),
        at: Some(at(second)),
    }
}

/// The payments that are due, with the failed refund and the amount.
async fn due(ledger: &impl AnyLedger) -> Vec<(String, Option<String>, Option<u64>)> {
    let page = ledger.list_payments_due(None, 100).await.unwrap();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    page.rows
        .iter()
        .map(|row| &row.entry.after)
        .map(|after| {
            let payment = text(&after["payment"]).unwrap();
            (payment, text(&after["refund"]), after["due"].as_u64())
        })
        .collect()
}

fn failed(of: &str, refund: &str, amount: u64) -> (String, Option<String>, Option<u64>) {
    (of.into(), Some(refund.into()), Some(amount))
}

/// Notes that the order `n` could not take the payment.
async fn unmatched(ledger: &impl AnyLedger, item: &Item, n: usize, of: &str) {
    let entry = NewJournalEntry {
        item: item.id.clone(),
        actor: "payment".into(),
        action: "unmatched_payment".into(),
        token: None,
        before: json!({ "order": order_id(item, n), "state": "held" }),
        after: json!({ "payment": of, "amount": 99 }),
    };
    let once = format!("unmatched_payment {n} {of}");
    assert!(ledger.note_once(&entry, &once).await.unwrap());
}

/// The number of the entry of a payment that the order `n` could not take.
async fn row_of(ledger: &impl AnyLedger, item: &Item, n: usize) -> u64 {
    let journal = ledger.journal(&item.id, 1000).await.unwrap();
    let order = json!(order_id(item, n));
    let row = journal
        .iter()
        .find(|row| row.entry.action == "unmatched_payment" && row.entry.before["order"] == order);
    row.unwrap().id
}

/// The order `n`, whose payment came after its hold and found no units.
async fn refund_due(ledger: &impl AnyLedger, item: &Item, n: usize, of: &str) -> Order {
    step(ledger, order_id(item, n), OrderState::Expired).await;
    let due = paid_to(ledger, item, n, OrderState::RefundDue, of).await;
    due.unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn a_refund_that_fails_is_due_again_whatever_the_order_of_the_reports(env: &TestEnv) {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let item = held(env, orders.len()).await;
    for (n, arrival) in orders.into_iter().enumerate() {
        let (of, id) = (format!("pi_{n}"), format!("re_{n}"));
        assert!(pay(env, &item, n, &of).await.is_some());
        let succeeded = refund(&id, &of, RefundState::Succeeded, 5, [10, 10]);
        let fails = refund(&id, &of, RefundState::Failed, 5, [10, 50]);
        for report in arrival.into_iter().chain(arrival) {
            match report {
                0 => {
                    env.note_return(&returned(&of, 10)).await.unwrap();
                    step(env, order_id(&item, n), OrderState::Refunded).await;
                }
                1 => drop(env.note_refund(&succeeded).await.unwrap()),
                _ => drop(env.note_refund(&fails).await.unwrap()),
            }
        }
        assert_eq!(
            due(env).await.last(),
            Some(&failed(&of, &id, 5)),
            "{arrival:?}"
        );
        assert_eq!(due(env).await.len(), n + 1, "once each");
    }
    let by_item = env.failed_refunds_by_item().await.unwrap();
    assert_eq!(by_item, [(item.id.clone(), orders.len() as u64)]);
    let journal = env.list_journal(&item.id, None, 100).await.unwrap();
    let noted = journal
        .rows
        .iter()
        .filter(|row| row.entry.action == "refund_failed");
    assert_eq!(noted.count(), orders.len());
}

#[tested(on_both_databases(crate::env::run))]
async fn the_money_of_a_failed_refund_is_due_until_a_later_one_succeeds(env: &TestEnv) {
    let item = held(env, 1).await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    let report = async |id: &str, state, times| {
        let report = refund(id, "pi_1", state, 5, times);
        env.note_refund(&report).await.unwrap()
    };
    report("re_1", RefundState::Failed, [10, 50]).await;
    // The old return again, and an attempt that is on its way.
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    report("re_2", RefundState::Pending, [60, 60]).await;
    assert_eq!(due(env).await, [failed("pi_1", "re_1", 5)]);
    for _ in 0..2 {
        report("re_2", RefundState::Succeeded, [60, 70]).await;
        assert_eq!(due(env).await, []);
    }
    let journal = env.list_journal(&item.id, None, 100).await.unwrap();
    assert_eq!(journal.rows[0].entry.action, "payment_refunded");
    // It comes back as well, and is due once.
    report("re_2", RefundState::Failed, [60, 90]).await;
    assert_eq!(due(env).await, [failed("pi_1", "re_2", 5)]);
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    env.note_return(&returned("pi_1", 60)).await.unwrap();
    assert_eq!(due(env).await, [failed("pi_1", "re_2", 5)], "old ones");
    env.note_return(&returned("pi_1", 100)).await.unwrap();
    assert_eq!(due(env).await, []);
    // And again, whatever was reported late before.
    env.note_return(&returned("pi_1", 60)).await.unwrap();
    report("re_1", RefundState::Failed, [10, 50]).await;
    assert_eq!(due(env).await, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_failed_refund_is_due_once_its_order_is_not_paid_for_any_more(env: &TestEnv) {
    let item = held(env, 1).await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    let fails = refund("re_1", "pi_1", RefundState::Canceled, 5, [10, 50]);
    env.note_refund(&fails).await.unwrap();
    assert_eq!(due(env).await, [], "the order has its units");
    assert_eq!(env.failed_refunds_by_item().await.unwrap(), []);
    // Its entry is no row of the list yet, so that it cannot be noted.
    let journal = env.journal(&item.id, 9).await.unwrap();
    let entry = journal
        .iter()
        .find(|entry| entry.entry.action == "refund_failed")
        .unwrap();
    assert!(!env.note_refund_done(entry.id, "eve").await.unwrap());
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    assert_eq!(due(env).await, [failed("pi_1", "re_1", 5)]);
    assert!(env.note_refund_done(entry.id, "eve").await.unwrap());
    assert_eq!(due(env).await, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_payment_that_nothing_took_leaves_the_list_by_its_id_alone(env: &TestEnv) {
    let item = held(env, 2).await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    unmatched(env, &item, 0, "pi_2").await;
    unmatched(env, &item, 1, "pi_2").await;
    assert_eq!(due(env).await.len(), 2);
    let early = refund("re_2", "pi_2", RefundState::Failed, 99, [10, 50]);
    env.note_refund(&early).await.unwrap();
    assert_eq!(due(env).await.len(), 2, "listed already");
    for _ in 0..2 {
        let noted = env.note_return(&returned("pi_2", 10)).await.unwrap();
        let ReturnedPayment::Of(payer) = noted else {
            panic!("{noted:?}");
        };
        assert!(
            !payer.is_paid && payer.order == order_id(&item, 0),
            "{payer:?}"
        );
    }
    assert_eq!(due(env).await, [failed("pi_2", "re_2", 99)]);
    env.note_return(&returned("pi_2", 60)).await.unwrap();
    assert_eq!(due(env).await, []);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_payment_that_was_returned_pays_nothing(env: &TestEnv) {
    let item = held(env, 2).await;
    let named = PaymentReturn {
        payer: Some(order_id(&item, 0).as_uuid()),
        ..returned("pi_1", 10)
    };
    assert!(!env.is_returned(&payment("pi_1")).await.unwrap());
    env.note_return(&named).await.unwrap();
    assert!(env.is_returned(&payment("pi_1")).await.unwrap());
    for n in 0..2 {
        assert_eq!(pay(env, &item, n, "pi_1").await, None, "{n}");
    }
    assert!(pay(env, &item, 0, "pi_2").await.is_some());
}

/// Either the payment was taken first, and the return says what is to be refunded; or it was
/// returned first, and is not taken.
#[tested(on_both_databases(crate::env::run))]
async fn a_payment_is_taken_or_returned_and_both_sides_know_which(env: &TestEnv) {
    const ROUNDS: usize = 20;
    let item = held(env, ROUNDS).await;
    for n in 0..ROUNDS {
        let of = format!("pi_{n}");
        // In every other round the order has the payment already, by a step that lost a race.
        if n % 2 == 0 {
            lose_race(env, &item, n, &of).await;
        }
        let back = PaymentReturn {
            payer: Some(order_id(&item, n).as_uuid()),
            ..returned(&of, 10)
        };
        let (paid, noted) = tokio::join!(pay(env, &item, n, &of), env.note_return(&back));
        let noted = noted.unwrap();
        let ReturnedPayment::Of(payer) = noted else {
            panic!("{noted:?}");
        };
        assert_eq!(payer.is_paid, paid.is_some(), "{n}");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn an_admin_notes_what_is_due_and_nothing_else(env: &TestEnv) {
    let item = held(env, 3).await;
    let entry = async || env.list_payments_due(None, 1).await.unwrap().rows[0].id;
    assert!(!env.note_refund_done(1_000_000, "eve").await.unwrap());
    // Its order takes it after all.
    unmatched(env, &item, 0, "pi_1").await;
    let accepted = entry().await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    assert!(!env.note_refund_done(accepted, "eve").await.unwrap());
    assert!(!env.is_returned(&payment("pi_1")).await.unwrap());
    // Nothing takes it: once noted, nothing does.
    unmatched(env, &item, 1, "pi_2").await;
    let stray = entry().await;
    for _ in 0..2 {
        assert!(env.note_refund_done(stray, "eve").await.unwrap());
    }
    for n in [1, 2] {
        assert_eq!(pay(env, &item, n, "pi_2").await, None, "{n}");
    }
    // Another order has it, and keeps it.
    unmatched(env, &item, 2, "pi_1").await;
    assert_eq!(due(env).await, []);
    let of_another = row_of(env, &item, 2).await;
    assert!(!env.note_refund_done(of_another, "eve").await.unwrap());
    assert!(!env.is_returned(&payment("pi_1")).await.unwrap());
    // A failed refund, and one that has replaced its row.
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    let first = refund("re_1", "pi_1", RefundState::Failed, 5, [10, 50]);
    env.note_refund(&first).await.unwrap();
    let replaced = entry().await;
    let second = refund("re_2", "pi_1", RefundState::Failed, 5, [60, 70]);
    env.note_refund(&second).await.unwrap();
    assert!(!env.note_refund_done(replaced, "eve").await.unwrap());
    assert_eq!(due(env).await, [failed("pi_1", "re_2", 5)]);
    let latest = entry().await;
    for _ in 0..2 {
        assert!(env.note_refund_done(latest, "eve").await.unwrap());
        assert_eq!(due(env).await, []);
    }
    let journal = env.list_journal(&item.id, None, 100).await.unwrap();
    let noted = journal.rows.iter().map(|row| &row.entry);
    let noted = noted.filter(|entry| entry.action == "payment_refunded");
    let noted: Vec<_> = noted.map(|entry| &*entry.actor).collect();
    assert_eq!(noted, ["eve"; 2]);
}

/// One row stands for all that is due of a payment, and its amount follows what becomes of the
/// others.
#[tested(on_both_databases(crate::env::run))]
async fn failed_parts_of_a_return_are_all_due(env: &TestEnv) {
    let arrivals = [[0, 1], [1, 0]];
    let item = held(env, arrivals.len()).await;
    for (n, arrival) in arrivals.into_iter().enumerate() {
        let (of, [first, second]) = (
            format!("pi_{n}"),
            [1, 2].map(|part| format!("re_{n}_{part}")),
        );
        pay(env, &item, n, &of).await.unwrap();
        env.note_return(&returned(&of, 12)).await.unwrap();
        step(env, order_id(&item, n), OrderState::Refunded).await;
        let parts = [
            refund(&first, &of, RefundState::Failed, 50, [10, 20]),
            refund(&second, &of, RefundState::Failed, 50, [12, 25]),
        ];
        for (part, amount) in arrival.into_iter().zip([50, 100]) {
            env.note_refund(&parts[part]).await.unwrap();
            let [(_, _, due)] = &due(env).await[..] else {
                panic!("one row for the payment");
            };
            assert_eq!(*due, Some(amount), "{arrival:?}");
        }
        assert_eq!(due(env).await, [failed(&of, &second, 100)]);
        // A part of it is returned again.
        let again = format!("re_{n}_3");
        let again = refund(&again, &of, RefundState::Succeeded, 30, [30, 30]);
        env.note_refund(&again).await.unwrap();
        assert_eq!(due(env).await, [failed(&of, &second, 70)]);
        let row = env.list_payments_due(None, 1).await.unwrap().rows.remove(0);
        assert!(env.note_refund_done(row.id, "eve").await.unwrap());
        assert_eq!(due(env).await, []);
        let journal = env.list_journal(&item.id, None, 1).await.unwrap();
        assert_eq!(journal.rows[0].entry.after["due"], 70, "what eve returned");
        let repeated = env.journal_entry(row.id).await.unwrap();
        assert_eq!(repeated, Some(row));
    }
}

/// The note has our time, and the failure the provider's, which may be an earlier one.
#[tested(on_both_databases(crate::env::run))]
async fn a_refund_that_fails_after_an_admin_has_returned_the_payment_is_due(env: &TestEnv) {
    let item = held(env, 2).await;
    unmatched(env, &item, 0, "pi_1").await;
    let known = refund("re_1", "pi_1", RefundState::Failed, 99, [10, 11]);
    env.note_refund(&known).await.unwrap();
    let stray = env.list_payments_due(None, 1).await.unwrap().rows[0].id;
    assert!(env.note_refund_done(stray, "eve").await.unwrap());
    env.note_refund(&known).await.unwrap();
    assert_eq!(due(env).await, [], "eve knew of this one");
    let late = refund("re_2", "pi_1", RefundState::Failed, 99, [10, 12]);
    let noted = env.note_refund(&late).await.unwrap();
    assert!(
        matches!(noted, NotedRefund::Of { is_due: true, .. }),
        "{noted:?}"
    );
    assert_eq!(due(env).await, [failed("pi_1", "re_2", 99)]);
}

#[tested(on_both_databases(crate::env::run))]
async fn what_an_admin_returns_settles_the_failures_before_it(env: &TestEnv) {
    let item = held(env, 1).await;
    let paid = pay(env, &item, 0, "pi_1").await.unwrap();
    let first = refund("re_1", "pi_1", RefundState::Failed, 5, [10, 20]);
    env.note_refund(&first).await.unwrap();
    // A concurrent step came first: nothing of it remains.
    let stale = Order {
        version: paid.version - 1,
        ..paid.clone()
    };
    assert_eq!(env.return_order(&stale, &"eve".into()).await.unwrap(), None);
    assert!(!env.is_returned(&payment("pi_1")).await.unwrap());
    let returned = env
        .return_order(&paid, &"eve".into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(returned.state, OrderState::Refunded);
    assert_eq!(
        env.return_order(&returned, &"eve".into()).await.unwrap(),
        None
    );
    env.note_refund(&first).await.unwrap();
    assert_eq!(due(env).await, []);
    let later = refund("re_2", "pi_1", RefundState::Failed, 5, [30, 40]);
    env.note_refund(&later).await.unwrap();
    assert_eq!(due(env).await, [failed("pi_1", "re_2", 5)]);
}

/// Its report for another order is refused, and asks for no money: that was returned with the
/// order.
#[tested(on_both_databases(crate::env::run))]
async fn what_an_admin_has_returned_pays_nothing_else(env: &TestEnv) {
    let item = held(env, 2).await;
    let paid = pay(env, &item, 0, "pi_1").await.unwrap();
    unmatched(env, &item, 1, "pi_1").await;
    let row = row_of(env, &item, 1).await;
    env.return_order(&paid, &"eve".into())
        .await
        .unwrap()
        .unwrap();
    assert!(env.is_returned(&payment("pi_1")).await.unwrap());
    assert_eq!(due(env).await, []);
    assert!(!env.note_refund_done(row, "eve").await.unwrap());
    assert_eq!(pay(env, &item, 1, "pi_1").await, None);
}

/// Also once that was refunded: its own refund returns the money.
#[tested(on_both_databases(crate::env::run))]
async fn a_payment_that_has_paid_something_is_no_row_whatever_else_it_was_reported_for(
    env: &TestEnv,
) {
    let item = held(env, 6).await;
    let lamp = held_of(env, "lamp", 1).await;
    let cart = paid_cart(env, &[&lamp], "pi_cart").await;
    pay(env, &item, 0, "pi_paid").await.unwrap();
    pay(env, &item, 1, "pi_refunded").await.unwrap();
    let refund_due = refund_due(env, &item, 2, "pi_late").await;
    let reported = [
        (3, "pi_paid"),
        (4, "pi_refunded"),
        (5, "pi_late"),
        (0, "pi_cart"),
    ];
    for (n, of) in reported {
        unmatched(env, &item, n, of).await;
    }
    let is_no_row = async |step: &str| {
        assert_eq!(due(env).await, [], "{step}");
        for (n, of) in reported {
            let row = row_of(env, &item, n).await;
            let done = env.note_refund_done(row, "eve").await;
            assert!(!done.unwrap(), "{step}: {of}");
        }
    };
    is_no_row("paid").await;
    for of in reported.map(|(_, of)| payment(of)) {
        assert!(!env.is_returned(&of).await.unwrap(), "{of}");
    }
    let left = env.cart(cart.id).await.unwrap().unwrap();
    assert_eq!(left.state, CartState::Confirmed);
    let left = env.list_refunds_due(None, 9).await.unwrap().rows;
    assert_eq!(left.len(), 1, "that of the order which found no units");
    // An admin of an earlier release has noted nothing of the payment beside the refund.
    step(env, order_id(&item, 1), OrderState::Refunded).await;
    let eve = "eve".into();
    env.note_order_done(&refund_due, &eve)
        .await
        .unwrap()
        .unwrap();
    is_no_row("refunded").await;
    let gone = drop_orders(env, &item).await;
    assert_eq!((gone.deleted, gone.changed), (6, 0));
    is_no_row("dropped").await;
    env.sql("UPDATE segments SET available = available + confirmed + held, confirmed = 0, held = 0 WHERE item = 'vase'").await;
}

/// A step has lost a race after it bound the payment, and its order has expired: nothing was paid.
#[tested(on_both_databases(crate::env::run))]
async fn a_payment_that_has_paid_nothing_is_a_row_although_another_order_has_it(env: &TestEnv) {
    let item = held(env, 2).await;
    lose_race(env, &item, 0, "pi_1").await;
    step(env, order_id(&item, 0), OrderState::Expired).await;
    unmatched(env, &item, 1, "pi_1").await;
    assert_eq!(due(env).await, [("pi_1".into(), None, None)]);
    let row = row_of(env, &item, 1).await;
    assert!(env.note_refund_done(row, "eve").await.unwrap());
    assert_eq!(due(env).await, []);
    let late = paid_to(env, &item, 0, OrderState::RefundDue, "pi_1").await;
    assert_eq!(late, None, "spent");
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_that_an_admin_notes_beside_its_acceptance_is_noted_or_accepted(env: &TestEnv) {
    const ROUNDS: usize = 20;
    let item = held(env, ROUNDS).await;
    for n in 0..ROUNDS {
        let of = format!("pi_{n}");
        unmatched(env, &item, n, &of).await;
        let row = env.list_payments_due(None, 1).await.unwrap().rows[0].id;
        let (paid, noted) = tokio::join!(pay(env, &item, n, &of), env.note_refund_done(row, "eve"));
        let noted = noted.unwrap();
        assert_ne!(paid.is_some(), noted, "{n}");
        assert_eq!(env.is_returned(&payment(&of)).await.unwrap(), noted, "{n}");
        assert_eq!(due(env).await, [], "{n}");
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_that_has_left_the_list_cannot_be_noted(env: &TestEnv) {
    let item = held(env, 3).await;
    let last = async || env.list_payments_due(None, 9).await.unwrap().rows;
    // The provider has returned it.
    unmatched(env, &item, 0, "pi_1").await;
    let row = last().await[0].id;
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    assert!(!env.note_refund_done(row, "eve").await.unwrap());
    // It was noted for another order.
    unmatched(env, &item, 1, "pi_2").await;
    unmatched(env, &item, 2, "pi_2").await;
    let rows = last().await;
    let [first, second] = [&rows[0], &rows[1]].map(|row| row.id);
    assert!(env.note_refund_done(first, "eve").await.unwrap());
    assert_eq!(due(env).await, []);
    assert!(!env.note_refund_done(second, "eve").await.unwrap());
    assert!(
        env.note_refund_done(first, "eve").await.unwrap(),
        "a repeat"
    );
    // A later refund has succeeded.
    pay(env, &item, 0, "pi_3").await.unwrap();
    env.note_return(&returned("pi_3", 10)).await.unwrap();
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    let fails = refund("re_3", "pi_3", RefundState::Failed, 5, [10, 20]);
    env.note_refund(&fails).await.unwrap();
    let row = last().await[0].id;
    let again = refund("re_4", "pi_3", RefundState::Succeeded, 5, [30, 30]);
    env.note_refund(&again).await.unwrap();
    assert_eq!(due(env).await, []);
    assert!(!env.note_refund_done(row, "eve").await.unwrap());
}

/// The provider names nothing, or something that does not exist.
#[tested(on_both_databases(crate::env::run))]
async fn a_return_that_comes_before_all_else_is_remembered(env: &TestEnv) {
    let item = held(env, 2).await;
    let fails = refund("re_1", "pi_1", RefundState::Failed, 5, [10, 50]);
    let noted = env.note_refund(&fails).await.unwrap();
    assert_eq!(noted, NotedRefund::Unknown);
    let unknown = PaymentReturn {
        payer: Some(Uuid::from_u128(7)),
        ..returned("pi_1", 10)
    };
    for report in [unknown, returned("pi_1", 10)] {
        let noted = env.note_return(&report).await.unwrap();
        assert_eq!(noted, ReturnedPayment::Unknown);
    }
    assert!(env.is_returned(&payment("pi_1")).await.unwrap());
    assert_eq!(pay(env, &item, 0, "pi_1").await, None);
    assert_eq!(due(env).await, [], "nothing says whose it is");
    // A report says it. The refund had failed after the return.
    let named = PaymentReturn {
        payer: Some(order_id(&item, 0).as_uuid()),
        at: None,
        ..returned("pi_1", 10)
    };
    for _ in 0..2 {
        let noted = env.note_return(&named).await.unwrap();
        assert!(matches!(noted, ReturnedPayment::Of(_)), "{noted:?}");
        assert_eq!(due(env).await, [failed("pi_1", "re_1", 5)]);
    }
    let journal = env.list_journal(&item.id, None, 9).await.unwrap();
    let noted = journal.rows.iter().map(|row| &*row.entry.action);
    let noted: Vec<_> = noted.collect();
    assert_eq!(noted, ["refund_failed", "payment_refunded"]);
    env.note_return(&returned("pi_1", 60)).await.unwrap();
    assert_eq!(due(env).await, []);
    // The report of a failed refund says it as well.
    env.note_return(&returned("pi_2", 10)).await.unwrap();
    let fails = RefundReport {
        payer: Some(order_id(&item, 1).as_uuid()),
        ..refund("re_2", "pi_2", RefundState::Failed, 5, [10, 50])
    };
    env.note_refund(&fails).await.unwrap();
    assert_eq!(due(env).await, [failed("pi_2", "re_2", 5)]);
    assert_eq!(pay(env, &item, 1, "pi_2").await, None);
}

/// The number of a row is no id of a payment.
#[tested(on_both_databases(crate::env::run))]
async fn a_payment_whose_id_is_a_number_hides_no_row(env: &TestEnv) {
    let item = held(env, 2).await;
    unmatched(env, &item, 0, "pi_1").await;
    let row = env.list_payments_due(None, 1).await.unwrap().rows[0].id;
    let back = PaymentReturn {
        payer: Some(order_id(&item, 1).as_uuid()),
        ..returned(&row.to_string(), 10)
    };
    let noted = env.note_return(&back).await.unwrap();
    assert!(matches!(noted, ReturnedPayment::Of(_)), "{noted:?}");
    assert_eq!(due(env).await, [("pi_1".into(), None, None)]);
    assert!(env.note_refund_done(row, "eve").await.unwrap());
    assert!(env.is_returned(&payment("pi_1")).await.unwrap());
}

/// A release before this one has deleted orders, and has not marked their payments.
#[tested(on_both_databases(crate::env::run))]
async fn a_payment_that_paid_a_dropped_order_is_not_due(env: &TestEnv) {
    let item = held(env, 2).await;
    unmatched(env, &item, 0, "pi_1").await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    step(env, order_id(&item, 0), OrderState::Refunded).await;
    unmatched(env, &item, 1, "pi_2").await;
    step(env, order_id(&item, 1), OrderState::Cancelled).await;
    env.sql("DELETE FROM orders").await;
    let rows = env.list_payments_due(None, 9).await.unwrap().rows;
    assert_eq!(rows.len(), 2, "what the migration mends");
    let mended = match env.backend {
        Backend::Sqlite => include_str!(
            "../../../../migrations/sqlite/20261126003001_settle_payments_of_dropped_orders.sql"
        ),
        Backend::Postgres => include_str!(
            "../../../../migrations/postgres/20261126003001_settle_payments_of_dropped_orders.sql"
        ),
    };
    env.sql(mended).await;
    assert_eq!(due(env).await, [("pi_2".into(), None, None)]);
    assert!(!env.note_refund_done(rows[0].id, "eve").await.unwrap());
    assert!(env.note_refund_done(rows[1].id, "eve").await.unwrap());
}

/// A paid cart of the first of these held orders. Its payment is that of each of its lines.
pub async fn paid_cart(ledger: &impl AnyLedger, items: &[&Item], of: &str) -> Cart {
    paid_cart_of(ledger, items, 0, of).await
}

async fn paid_cart_of(ledger: &impl AnyLedger, items: &[&Item], n: usize, of: &str) -> Cart {
    let cart = new_cart(ledger, items, n).await;
    let held = CartStep::to(&cart, CartState::Held);
    let held = ledger.step_cart(&held).await.unwrap().unwrap().cart;
    let paid = CartStep {
        payment: Some(payment(of)),
        ..CartStep::to(&held, CartState::Confirmed)
    };
    ledger.step_cart(&paid).await.unwrap().unwrap().cart
}

/// Asks for the drop of an item that is archived by hand. Returns its orders that go.
async fn to_drop(env: &TestEnv, item: &Item) -> Vec<ExportedRow> {
    let time = match env.backend {
        Backend::Sqlite => "1",
        Backend::Postgres => "now()",
    };
    let archive = format!(
        "UPDATE items SET state = 'closed', archived_at = {time} WHERE id = '{}'",
        item.id
    );
    env.sql(&archive).await;
    let asked = env.request_drop(&item.id, Timestamp::MAX, "eve");
    assert_eq!(asked.await.unwrap(), DropRequest::Noted);
    let page = env.export_page(&item.id, SaleTable::Orders, None, 99);
    page.await.unwrap().rows
}

/// The units of the vases whose orders are gone were sold, and no order tells so any more.
async fn forget_sold(env: &TestEnv) {
    env.sql(
        "UPDATE segments SET available = available + confirmed, confirmed = 0 WHERE item = 'vase'",
    )
    .await;
}

/// The same, of the one unit that was sold.
async fn forget_one_sold(env: &TestEnv, vase: &Item) {
    assert_eq!(counters(env, &segment(vase, 0)).await, [99, 0, 1, 0]);
    forget_sold(env).await;
}

async fn drop_orders(env: &TestEnv, item: &Item) -> DroppedRows {
    let rows = to_drop(env, item).await;
    let dropped = env.drop_rows(&item.id, SaleTable::Orders, &rows);
    dropped.await.unwrap().unwrap()
}

/// Both lock the payment before the order, so that neither fails because of the other.
#[tested(on_both_databases(crate::env::run))]
async fn an_order_that_is_refunded_beside_its_drop_is_refunded_or_gone(env: &TestEnv) {
    const ROUNDS: usize = 20;
    let item = held(env, ROUNDS).await;
    let mut paid = Vec::new();
    for n in 0..ROUNDS {
        let order = pay(env, &item, n, &format!("pi_{n}")).await;
        paid.push(order.unwrap());
    }
    let rows = to_drop(env, &item).await;
    assert_eq!(rows.len(), ROUNDS);
    let eve = "eve".into();
    for order in paid {
        let key = order.id.as_uuid().as_u128();
        let row = rows.iter().filter(|row| row.key == key).cloned();
        let row: Vec<_> = row.collect();
        let (dropped, returned) = tokio::join!(
            env.drop_rows(&item.id, SaleTable::Orders, &row),
            env.return_order(&order, &eve)
        );
        let (dropped, returned) = (dropped.unwrap().unwrap(), returned.unwrap());
        assert_eq!(dropped.deleted == 1, returned.is_none(), "{dropped:?}");
        let left = env.order(order.id).await.unwrap();
        let state = left.map(|order| order.state);
        assert_eq!(state, returned.map(|order| order.state));
    }
    forget_sold(env).await;
}

/// Both lock the cart, then its payment, then its orders.
#[tested(on_both_databases(crate::env::run))]
async fn a_cart_that_is_refunded_beside_the_drop_of_an_item_is_refunded(env: &TestEnv) {
    const ROUNDS: usize = 20;
    let vase = held(env, ROUNDS).await;
    let lamp = held_of(env, "lamp", ROUNDS).await;
    let mut carts = Vec::new();
    for n in 0..ROUNDS {
        carts.push(paid_cart_of(env, &[&vase, &lamp], n, &format!("pi_{n}")).await);
    }
    let rows = to_drop(env, &vase).await;
    assert_eq!(rows.len(), ROUNDS);
    for (n, cart) in carts.iter().enumerate() {
        let key = order_id(&vase, n).as_uuid().as_u128();
        let row = rows.iter().filter(|row| row.key == key).cloned();
        let row: Vec<_> = row.collect();
        let refund = CartStep {
            actor: Some("eve".into()),
            returns_money: true,
            ..CartStep::to(cart, CartState::Refunded)
        };
        let (dropped, refunded) = tokio::join!(
            env.drop_rows(&vase.id, SaleTable::Orders, &row),
            env.step_cart(&refund)
        );
        assert!(refunded.unwrap().is_some(), "{n}");
        let dropped = dropped.unwrap().unwrap();
        assert_eq!(dropped.deleted + dropped.changed, 1, "{dropped:?}");
        let left = env.order(order_id(&lamp, n)).await.unwrap().unwrap();
        assert_eq!(left.state, OrderState::Refunded);
    }
    forget_sold(env).await;
}

/// The report of a refund that has failed is delivered again after one of the cart's items was
/// dropped: its money was returned long ago.
#[tested(on_both_databases(crate::env::run))]
async fn a_cart_keeps_its_refunds_until_the_last_of_its_orders_is_dropped(env: &TestEnv) {
    let vase = held(env, 1).await;
    let lamp = held_of(env, "lamp", 1).await;
    let paid = paid_cart(env, &[&vase, &lamp], "pi_1").await;
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    let refunded = CartStep::to(&paid, CartState::Refunded);
    env.step_cart(&refunded).await.unwrap().unwrap();
    let fails = refund("re_1", "pi_1", RefundState::Failed, 10, [10, 20]);
    env.note_refund(&fails).await.unwrap();
    assert_eq!(due(env).await, [failed("pi_1", "re_1", 10)]);
    let row = env.list_payments_due(None, 1).await.unwrap().rows[0].id;
    assert!(env.note_refund_done(row, "eve").await.unwrap());

    let one = DroppedRows {
        deleted: 1,
        changed: 0,
    };
    assert_eq!(drop_orders(env, &vase).await, one);
    let again = env.note_refund(&fails).await.unwrap();
    assert!(
        matches!(again, NotedRefund::Of { is_due: false, .. }),
        "{again:?}"
    );
    assert_eq!(due(env).await, []);
    assert_eq!(drop_orders(env, &lamp).await, one);
    assert_eq!(env.cart(paid.id).await.unwrap(), None);
    let late = env.note_refund(&fails).await.unwrap();
    assert!(
        matches!(late, NotedRefund::Of { is_due: false, .. }),
        "{late:?}"
    );
    assert_eq!(due(env).await, []);
}

/// The provider tells of it long after it has reported that the money was returned.
#[tested(on_both_databases(crate::env::run))]
async fn a_refund_that_fails_after_its_order_was_dropped_is_due(env: &TestEnv) {
    let item = held(env, 2).await;
    let lamp = held_of(env, "lamp", 1).await;
    // An admin, and the provider.
    let paid = pay(env, &item, 0, "pi_0").await.unwrap();
    let eve = "eve".into();
    env.return_order(&paid, &eve).await.unwrap().unwrap();
    pay(env, &item, 1, "pi_1").await.unwrap();
    env.note_return(&returned("pi_1", 10)).await.unwrap();
    step(env, order_id(&item, 1), OrderState::Refunded).await;
    let cart = paid_cart(env, &[&lamp], "pi_2").await;
    env.note_return(&returned("pi_2", 10)).await.unwrap();
    let refunded = CartStep::to(&cart, CartState::Refunded);
    env.step_cart(&refunded).await.unwrap().unwrap();
    let payments = ["pi_0", "pi_1", "pi_2"];
    let report = async |of: &str, id: &str, state, second| {
        let report = refund(&format!("{id}_{of}"), of, state, 5, [second, second]);
        env.note_refund(&report).await.unwrap()
    };
    for of in payments {
        report(of, "re", RefundState::Succeeded, 10).await;
    }
    for (item, orders) in [(&item, 2), (&lamp, 1)] {
        assert_eq!(drop_orders(env, item).await.deleted, orders);
    }
    assert_eq!(env.cart(cart.id).await.unwrap(), None);

    let expected: Vec<_> = payments
        .iter()
        .map(|of| failed(of, &format!("re_{of}"), 5))
        .collect();
    for _ in 0..2 {
        for of in payments {
            let fails = refund(&format!("re_{of}"), of, RefundState::Failed, 5, [10, 50]);
            let noted = env.note_refund(&fails).await.unwrap();
            let NotedRefund::Of { payer, is_due } = noted else {
                panic!("{of}: {noted:?}");
            };
            assert!(is_due && payer.is_paid, "{payer:?}");
            assert_eq!(payer.is_cart, of == "pi_2", "{payer:?}");
            assert_eq!(payer.cart, Some(cart.id).filter(|_| payer.is_cart));
        }
        assert_eq!(due(env).await, expected);
    }
    let mut by_item = env.failed_refunds_by_item().await.unwrap();
    by_item.sort_unstable();
    assert_eq!(by_item, [(lamp.id.clone(), 1), (item.id.clone(), 2)]);
    // An admin notes the first, and a later refund returns the second, the return of all the third.
    let row = env.list_payments_due(None, 1).await.unwrap().rows[0].id;
    assert!(env.note_refund_done(row, "eve").await.unwrap());
    report("pi_1", "again", RefundState::Succeeded, 60).await;
    assert_eq!(due(env).await, expected[2..]);
    env.note_return(&returned("pi_2", 60)).await.unwrap();
    assert_eq!(due(env).await, []);
}

/// A part was to be given back, and the order was kept.
#[tested(on_both_databases(crate::env::run))]
async fn a_failed_refund_of_an_order_that_was_dropped_as_paid_is_not_due(env: &TestEnv) {
    let item = held(env, 1).await;
    pay(env, &item, 0, "pi_1").await.unwrap();
    let fails = refund("re_1", "pi_1", RefundState::Failed, 5, [10, 20]);
    env.note_refund(&fails).await.unwrap();
    assert_eq!(drop_orders(env, &item).await.deleted, 1);
    let later = refund("re_2", "pi_1", RefundState::Failed, 5, [30, 40]);
    env.note_refund(&later).await.unwrap();
    assert_eq!(due(env).await, []);
    let journal = env.journal(&item.id, 9).await.unwrap();
    let failed = journal.iter();
    let failed = failed.filter(|row| row.entry.action == "refund_failed");
    for row in failed {
        assert!(!env.note_refund_done(row.id, "eve").await.unwrap());
    }
    forget_one_sold(env, &item).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cart_is_refunded_although_one_of_its_orders_was_dropped(env: &TestEnv) {
    let vase = held(env, 1).await;
    let lamp = held_of(env, "lamp", 1).await;
    let paid = paid_cart(env, &[&vase, &lamp], "pi_1").await;
    let dropped = drop_orders(env, &vase).await;
    assert_eq!((dropped.deleted, dropped.changed), (1, 0));
    let refunded = CartStep {
        returns_money: true,
        ..CartStep::to(&paid, CartState::Refunded)
    };
    let refunded = env.step_cart(&refunded).await.unwrap().unwrap().cart;
    assert_eq!(refunded.state, CartState::Refunded);
    let line = env.order(order_id(&lamp, 0)).await.unwrap().unwrap();
    assert_eq!(line.state, OrderState::Refunded);
    assert!(env.is_returned(&payment("pi_1")).await.unwrap());
    forget_one_sold(env, &vase).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cart_that_lacks_an_order_without_a_drop_is_left_alone(env: &TestEnv) {
    let vase = held(env, 1).await;
    let lamp = held_of(env, "lamp", 1).await;
    let paid = paid_cart(env, &[&vase, &lamp], "pi_1").await;
    env.sql("DELETE FROM orders WHERE item = 'vase'").await;
    let refunded = CartStep::to(&paid, CartState::Refunded);
    let refused = env.step_cart(&refunded).await;
    assert!(
        matches!(refused, Err(LedgerError::BrokenCart(id)) if id == paid.id),
        "{refused:?}"
    );
    let line = env.order(order_id(&lamp, 0)).await.unwrap().unwrap();
    assert_eq!(line.state, OrderState::Confirmed);
    forget_one_sold(env, &vase).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_of_an_order_is_noted_once_and_not_after_another_end(env: &TestEnv) {
    let item = held(env, 3).await;
    let eve = "eve".into();
    // It is paid, and no row of the list.
    let paid = pay(env, &item, 0, "pi_1").await.unwrap();
    assert_eq!(env.note_order_done(&paid, &eve).await.unwrap(), None);
    assert!(!env.is_returned(&payment("pi_1")).await.unwrap());
    let mut listed = Vec::new();
    for (n, of) in [(1, "pi_2"), (2, "pi_3")] {
        listed.push(refund_due(env, &item, n, of).await);
    }
    let [done, other] = [&listed[0], &listed[1]];
    let noted = env.note_order_done(done, &eve).await.unwrap().unwrap();
    assert_eq!(noted.state, OrderState::Refunded);
    assert!(env.is_returned(&payment("pi_2")).await.unwrap());
    assert_eq!(env.note_order_done(&noted, &eve).await.unwrap(), None);
    assert!(env.is_order_done(&noted).await.unwrap());
    let journal = env.journal(&item.id, 99).await.unwrap();
    let named: Vec<_> = journal
        .iter()
        .filter(|entry| entry.entry.action == "refund")
        .map(|entry| (&*entry.entry.actor, entry.entry.before["order"].clone()))
        .collect();
    assert_eq!(named, [("eve", json!(done.id))]);
    // The other one was returned without its row.
    env.return_order(other, &eve).await.unwrap().unwrap();
    let other = env.order(other.id).await.unwrap().unwrap();
    assert_eq!(other.state, OrderState::Refunded);
    assert!(!env.is_order_done(&other).await.unwrap());
}
