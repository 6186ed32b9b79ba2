//! Events: each is written with its change or not at all, and a reader misses none.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use domain::{Item, ItemState, Order, OrderId, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{
    Event, EventCursor, Events, ItemChange, ItemScope, LedgerError, NewJournalEntry, NewWebhook,
    SegmentReplay, Transition,
};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use testkit::{Backend, eventually, on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::{
    AnyLedger, TestEnv, again, becomes, happen, opened, order, order_id, row, segment, take, taken,
};

const MARKER: &str = "test.marker";

/// All events after the cursor that transactions have written until now. On PostgreSQL,
/// transactions of other tests on the same server delay them; a marker behind them tells when they
/// are there.
async fn settled(env: &TestEnv, cursor: EventCursor) -> Vec<Event> {
    static MARKERS: AtomicUsize = AtomicUsize::new(0);
    let marker = format!("{MARKER} {}", MARKERS.fetch_add(1, Ordering::Relaxed));
    let (now, id) = match env.backend {
        Backend::Sqlite => ("unixepoch() * 1000", "x''"),
        Backend::Postgres => ("now()", "''"),
    };
    env.sql(&format!(
        "INSERT INTO events (at, item, kind, orders, data) VALUES ({now}, 'vase', '{marker}', {id}, '{{}}')"
    )).await;
    let mut events = Vec::new();
    eventually("the marker", async || {
        events = after(env, cursor).await;
        events.last().is_some_and(|last| last.kind == marker)
    })
    .await;
    events.retain(|event| !event.kind.starts_with(MARKER));
    events
}

/// All events after the cursor.
async fn after(ledger: &impl AnyLedger, cursor: EventCursor) -> Vec<Event> {
    let (mut all, mut cursor) = (Vec::new(), cursor);
    loop {
        let Events::Page(page) = ledger.events(cursor, 100).await.unwrap() else {
            panic!("{cursor} is a cursor");
        };
        let Some(last) = page.last() else {
            return all;
        };
        cursor = last.cursor;
        all.extend(page);
    }
}

/// Kind and number of orders of all events of the item.
async fn kinds(env: &TestEnv, item: &Item) -> Vec<(String, usize)> {
    let events = settled(env, EventCursor::START).await;
    let events = events.into_iter().filter(|event| event.item == item.id);
    events
        .map(|event| (event.kind, event.orders.len()))
        .collect()
}

fn expected(kinds: &[(&str, usize)]) -> Vec<(String, usize)> {
    let owned = |(kind, orders): &(&str, usize)| ((*kind).to_owned(), *orders);
    kinds.iter().map(owned).collect()
}

async fn pay(ledger: &impl AnyLedger, id: OrderId, to: OrderState, payment: &str) -> Option<Order> {
    let order = ledger.order(id).await.unwrap().unwrap();
    let payment = PaymentId::new(payment).ok();
    let paid = [Transition { order, to, payment }];
    ledger.transition(&paid).await.unwrap().remove(0)
}

async fn set_state(ledger: &impl AnyLedger, item: &Item, state: ItemState) {
    let change = ItemChange {
        state: Some(state),
        ..ItemChange::default()
    };
    let changed = ledger.change_item(&item.id, &change, None, "admin").await;
    changed.unwrap();
}

#[tested(on_both_databases(crate::env::run))]
async fn every_transition_writes_its_event(env: &TestEnv) {
    let before = Timestamp::now().as_millisecond() - 1;
    let item = env.create("vase", 8, 1).await;
    let key = segment(&item, 0);
    let orders = (0..5).map(|n| order(&item, n, 2));
    happen(env, &key, [take(orders)]).await;
    let id = |n| order_id(&item, n);
    pay(env, id(0), OrderState::Confirmed, "pay-0")
        .await
        .unwrap();
    becomes(env, id(0), OrderState::Refunded).await;
    becomes(env, id(1), OrderState::Cancelled).await;
    becomes(env, id(2), OrderState::Expired).await;
    pay(env, id(2), OrderState::RefundDue, "pay-2")
        .await
        .unwrap();
    set_state(env, &item, ItemState::Paused).await;
    set_state(env, &item, ItemState::Paused).await;
    set_state(env, &item, ItemState::Open).await;
    set_state(env, &item, ItemState::Closed).await;
    let unmatched = NewJournalEntry {
        item: item.id.clone(),
        actor: "payment".into(),
        action: "unmatched_payment".into(),
        token: None,
        before: json!({ "order": id(1), "state": "cancelled" }),
        after: json!({ "payment": "pay-1", "amount": 5 }),
    };
    for is_new in [true, false] {
        assert_eq!(env.note_once(&unmatched, "pay-1").await.unwrap(), is_new);
    }

    let events = settled(env, EventCursor::START).await;
    let found: Vec<_> = events
        .iter()
        .map(|event| (&*event.kind, event.orders.clone(), event.data.clone()))
        .collect();
    let none = json!({});
    let table = [
        (
            "item.created",
            vec![],
            json!({ "state": "open", "stock": 8 }),
        ),
        ("order.held", vec![id(0), id(1), id(2), id(3)], none.clone()),
        ("order.rejected", vec![id(4)], none.clone()),
        (
            "order.confirmed",
            vec![id(0)],
            json!({ "payment": "pay-0" }),
        ),
        ("order.refunded", vec![id(0)], json!({ "payment": "pay-0" })),
        ("order.cancelled", vec![id(1)], none.clone()),
        ("order.expired", vec![id(2)], none.clone()),
        (
            "order.refund_due",
            vec![id(2)],
            json!({ "payment": "pay-2" }),
        ),
        ("item.paused", vec![], none.clone()),
        ("item.opened", vec![], none.clone()),
        ("item.closed", vec![], none.clone()),
        ("payment.unmatched", vec![id(1)], unmatched.after.clone()),
    ];
    assert_eq!(found, table);
    let now = Timestamp::now().as_millisecond() + 1;
    for event in &events {
        assert_eq!(event.item, item.id);
        assert!(
            (before..=now).contains(&event.at.as_millisecond()),
            "{event:?}"
        );
    }
    assert!(events.is_sorted_by(|a, b| a.cursor < b.cursor));
}

#[tested(on_both_databases(crate::env::run))]
async fn a_batch_is_one_event_for_each_item_and_state(env: &TestEnv) {
    let [vase, bowl] = [
        env.create_unlimited("vase", 100, 2).await,
        env.create_unlimited("bowl", 100, 1).await,
    ];
    let keys = [segment(&vase, 0), segment(&vase, 1), segment(&bowl, 0)];
    let claim = env.claim(&keys, 3).await.unwrap().unwrap();
    let replays = claim.rows().iter().enumerate().map(|(at, row)| {
        let item = if row.key.item == vase.id {
            &vase
        } else {
            &bowl
        };
        let orders = (0..4).map(|n| order(item, at * 10 + n, 1)).collect();
        SegmentReplay {
            row: row.clone(),
            entries: vec![
                opened(item, row.key.segment),
                taken(crate::env::id(5, 0), orders),
            ],
        }
    });
    let replays = replays.collect();
    claim.record(replays).await.unwrap();
    let due = env.due(ItemScope::ALL, Timestamp::MAX, 100).await.unwrap();
    assert_eq!(due.len(), 12);
    let expire = |order: Order| Transition {
        order,
        to: OrderState::Expired,
        payment: None,
    };
    let steps: Vec<_> = due.into_iter().map(expire).collect();
    env.transition(&steps).await.unwrap();
    for (item, orders) in [(&vase, 8), (&bowl, 4)] {
        assert_eq!(
            kinds(env, item).await,
            expected(&[
                ("item.created", 0),
                ("order.held", orders),
                ("order.expired", orders)
            ])
        );
    }
    // Held again, under the order's own id.
    let key = segment(&bowl, 0);
    happen(env, &key, [take([again(order(&bowl, 20, 1), 1)])]).await;
    let last = settled(env, EventCursor::START).await.pop().unwrap();
    assert_eq!(
        (&*last.kind, last.orders),
        ("order.held", vec![order_id(&bowl, 20)])
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_change_that_was_not_made_writes_no_event(env: &TestEnv) {
    let item = env.create("vase", 10, 1).await;
    let key = segment(&item, 0);
    happen(env, &key, [take([order(&item, 0, 1)])]).await;
    let held = expected(&[("item.created", 0), ("order.held", 1)]);
    assert_eq!(kinds(env, &item).await, held);

    // A repeat of a recorded order, an outdated transition, and one that the states do not allow.
    happen(env, &key, [take([order(&item, 0, 1)])]).await;
    let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    let outdated = Order {
        version: 9,
        ..order.clone()
    };
    for (order, to) in [
        (outdated, OrderState::Expired),
        (order, OrderState::Refunded),
    ] {
        let step = Transition {
            order,
            to,
            payment: None,
        };
        assert_eq!(env.transition(&[step]).await.unwrap(), [None]);
    }
    // Transactions that fail after their events were written: another recorder was faster, and a
    // counter that a constraint refuses.
    let claim = env.claim_one(&key).await;
    let mut outdated = row(env, &key).await;
    outdated.version += 1;
    let entries = vec![taken(
        crate::env::id(50, 0),
        vec![crate::env::order(&item, 1, 1)],
    )];
    let superseded = claim
        .unwrap()
        .record(vec![SegmentReplay {
            row: outdated,
            entries,
        }])
        .await;
    assert!(matches!(superseded, Err(LedgerError::Superseded(_))));
    let order = env.order(order_id(&item, 0)).await.unwrap().unwrap();
    let refused = Transition {
        order: Order {
            quantity: domain::Quantity::new(9).unwrap(),
            ..order
        },
        to: OrderState::Expired,
        payment: None,
    };
    env.transition(&[refused]).await.unwrap_err();
    assert_eq!(kinds(env, &item).await, held);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_large_batch_becomes_several_events(env: &TestEnv) {
    let item = env.create_unlimited("vase", 5000, 1).await;
    let orders = (0..2500).map(|n| order(&item, n, 1));
    happen(env, &segment(&item, 0), [take(orders)]).await;
    let events = settled(env, EventCursor::START).await;
    let sizes: Vec<_> = events.iter().map(|event| event.orders.len()).collect();
    assert_eq!(sizes, [0, 1000, 1000, 500]);
    let mut ids: Vec<_> = events.into_iter().flat_map(|event| event.orders).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2500);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_cursor_that_was_never_issued_is_recognised(env: &TestEnv) {
    let end = env.end_of_events().await.unwrap();
    assert_eq!(env.events(end, 9).await.unwrap(), Events::Page(Vec::new()));
    let item = env.create("vase", 10, 1).await;
    let events = settled(env, end).await;
    assert_eq!((events.len(), &events[0].item), (1, &item.id));
    let last = events[0].cursor;
    assert!(matches!(
        env.events(last, 9).await.unwrap(),
        Events::Page(_)
    ));
    let (xid, seq) = last.to_string().split_once('-').map(parts).unwrap();
    for forged in [
        format!("{xid}-{}", seq + 1000),
        format!("{}-{seq}", xid + 1_000_000),
    ] {
        let forged = forged.parse().unwrap();
        assert_eq!(env.events(forged, 9).await.unwrap(), Events::Unknown);
    }
}

fn parts((xid, seq): (&str, &str)) -> (u64, u64) {
    (xid.parse().unwrap(), seq.parse().unwrap())
}

#[tested(on_both_databases(crate::env::run))]
async fn old_events_are_removed_oldest_first_and_a_reader_learns_that_it_missed_some(
    env: &TestEnv,
) {
    for name in ["a", "b", "c", "d"] {
        env.create(name, 1, 1).await;
    }
    let events = settled(env, EventCursor::START).await;
    let cursors: Vec<_> = events.iter().map(|event| event.cursor).collect();
    assert_eq!(cursors.len(), 4);
    let long_ago = Timestamp::from_second(1_700_000_000).unwrap();
    assert_eq!(env.remove_events(long_ago, 10).await.unwrap(), 0);
    let later = Timestamp::now() + std::time::Duration::from_secs(60);
    assert_eq!(env.remove_events(later, 2).await.unwrap(), 2);
    let read = async |cursor| env.events(cursor, 10).await.unwrap();
    assert_eq!(read(EventCursor::START).await, Events::Removed(cursors[1]));
    assert_eq!(read(cursors[0]).await, Events::Removed(cursors[1]));
    let left = settled(env, cursors[1]).await;
    let left: Vec<_> = left.iter().map(|event| event.cursor).collect();
    assert_eq!(left, cursors[2..]);
}

/// Writers whose transactions overlap, and a reader that follows them from the start. On PostgreSQL
/// numbers are given out before transactions commit, in another order.
#[tested(on_both_databases(crate::env::run))]
async fn a_reader_misses_no_event_of_concurrent_transactions(env: &TestEnv) {
    const WRITERS: usize = 6;
    const ORDERS: usize = 12;
    let ledger = env.ledger().await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let ledger = env.ledger().await;
        let item = env
            .create_unlimited(&format!("vase-{writer}"), 100, 1)
            .await;
        writers.spawn(async move {
            for n in 0..ORDERS {
                happen(&ledger, &segment(&item, 0), [take([order(&item, n, 1)])]).await;
                becomes(&ledger, order_id(&item, n), OrderState::Cancelled).await;
            }
        });
    }
    let (mut seen, mut cursor) = (Vec::new(), EventCursor::START);
    eventually("all events", async || {
        let events = after(&ledger, cursor).await;
        cursor = events.last().map_or(cursor, |last| last.cursor);
        seen.extend(events);
        seen.len() >= WRITERS * (1 + 2 * ORDERS)
    })
    .await;
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let mut by_item: HashMap<_, Vec<_>> = HashMap::new();
    for event in seen {
        by_item.entry(event.item).or_default().push(event.kind);
    }
    assert_eq!(by_item.len(), WRITERS);
    for kinds in by_item.values() {
        let steps = (0..ORDERS).flat_map(|_| ["order.held", "order.cancelled"]);
        let expected: Vec<_> = std::iter::once("item.created").chain(steps).collect();
        assert_eq!(*kinds, expected, "in the order of the changes");
    }
}

const INSERT: &str =
    "INSERT INTO events (at, item, kind, orders, data) VALUES (now(), 'vase', $1, '', '{}')";

async fn insert(connection: &mut PgConnection, kind: &str) {
    sqlx::query(INSERT)
        .bind(kind)
        .execute(connection)
        .await
        .unwrap();
}

/// The first transaction gets the lower numbers and commits last. A reader that went by the highest
/// number that it has seen would miss its event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_delays_later_events_instead_of_being_missed() {
    let env = TestEnv::new(Backend::Postgres).await;
    let start = env.end_of_events().await.unwrap();
    let mut first = PgConnection::connect(env.url()).await.unwrap();
    let mut second = PgConnection::connect(env.url()).await.unwrap();
    let mut slow = first.begin().await.unwrap();
    insert(&mut slow, "test.slow").await;
    let mut fast = second.begin().await.unwrap();
    insert(&mut fast, "test.fast").await;
    fast.commit().await.unwrap();
    let visible = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM events")
        .fetch_one(&mut second)
        .await
        .unwrap();
    assert_eq!(visible, 1, "the fast transaction has committed");
    assert_eq!(after(&env, start).await, [], "its event waits");
    // The slow transaction writes once more. It may have seen what the fast one has done, so this
    // event comes last, although its transaction has the lower number.
    insert(&mut slow, "test.slow again").await;
    slow.commit().await.unwrap();
    let kinds = async || -> Vec<String> {
        let events = after(&env, start).await;
        events.into_iter().map(|event| event.kind).collect()
    };
    // Transactions of other tests on the same server may delay the events as well.
    eventually("all three events", async || kinds().await.len() == 3).await;
    assert_eq!(kinds().await, ["test.slow", "test.fast", "test.slow again"]);
}

/// A transaction that has its number early, and then waits for one with a later number: it changes
/// what that one has committed, so its event must come afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_follows_those_that_its_transaction_has_waited_for() {
    const CHANGE: &str = "WITH changed AS (UPDATE counters SET n = n + 1 RETURNING n) \
        INSERT INTO events (at, item, kind, orders, data) \
        SELECT now(), 'vase', 'test.' || n, '', '{}' FROM changed";
    const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted";
    let env = TestEnv::new(Backend::Postgres).await;
    env.sql("CREATE TABLE counters AS SELECT 0 AS n").await;
    let start = env.end_of_events().await.unwrap();
    let mut early = PgConnection::connect(env.url()).await.unwrap();
    let mut late = PgConnection::connect(env.url()).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut early)
        .await
        .unwrap();
    sqlx::raw_sql("BEGIN; SELECT pg_current_xact_id()")
        .execute(&mut early)
        .await
        .unwrap();
    let mut first = late.begin().await.unwrap();
    sqlx::query(CHANGE).execute(&mut *first).await.unwrap();
    let second = tokio::spawn(async move {
        sqlx::query(CHANGE).execute(&mut early).await.unwrap();
        sqlx::raw_sql("COMMIT").execute(&mut early).await.unwrap();
    });
    let mut watcher = PgConnection::connect(env.url()).await.unwrap();
    eventually("the second change waiting for the first one", async || {
        let query = sqlx::query_scalar::<_, i64>(WAITING).bind(pid);
        query.fetch_one(&mut watcher).await.unwrap() > 0
    })
    .await;
    first.commit().await.unwrap();
    second.await.unwrap();
    let kinds = async || -> Vec<String> {
        let events = after(&env, start).await;
        events.into_iter().map(|event| event.kind).collect()
    };
    eventually("both events", async || kinds().await.len() == 2).await;
    assert_eq!(kinds().await, ["test.1", "test.2"]);
}

/// The statements of docs/events.md.
const AFTER_A_DUMP: &str = "UPDATE events SET xid = '0'; \
    UPDATE events_removed SET xid = '0'; \
    UPDATE webhooks SET xid = '0', seq = greatest(seq - 1000, 0);
    UPDATE sinks SET xid = '0', seq = greatest(seq - 1000, 0);";

/// A server that got a dump has lower transaction numbers than the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restored_dump_its_events_can_be_numbered_anew() {
    let docs = include_str!("../../../../docs/events.md");
    for statement in AFTER_A_DUMP.split_inclusive(';') {
        assert!(docs.contains(statement.trim()), "{statement}");
    }
    let env = TestEnv::new(Backend::Postgres).await;
    let webhook = NewWebhook {
        id: uuid::Uuid::new_v4(),
        url: "https://shop.example".into(),
        kinds: Vec::new(),
        secret: "whsec_".into(),
    };
    env.add_webhook(&webhook, 100).await.unwrap();
    let old = env.create("old", 1, 1).await;
    let dumped = "UPDATE events SET xid = '900000000'; UPDATE webhooks SET xid = '900000000';";
    env.sql(dumped).await;
    let cursor = env.webhooks().await.unwrap().remove(0).cursor;
    assert_eq!(env.events(cursor, 9).await.unwrap(), Events::Unknown);
    assert_eq!(after(&env, EventCursor::START).await, []);
    env.sql(AFTER_A_DUMP).await;
    let new = env.create("new", 1, 1).await;
    let cursor = env.webhooks().await.unwrap().remove(0).cursor;
    let events = settled(&env, cursor).await;
    let items: Vec<_> = events.iter().map(|event| &event.item).collect();
    assert_eq!(items, [&old.id, &new.id]);
}
