//! What the orders of an item add up to, from earlier sums and from those that have changed since.

use domain::{Change, Item, OrderState};
use jiff::Timestamp;
use ledger::{ByOrders, ComparedSums, GoodAudit, ItemTotals, Sums};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::{Backend, eventually, on_both_databases, tested};
use tokio::task::JoinSet;

use crate::env::{
    AnyLedger, TestEnv, again, assert_identity, becomes, counters, happen, order, order_id,
    release, segment, take,
};

/// Orders of one unit. An eighth of them may have changed.
const ORDERS: usize = 400;

/// Tasks that move orders at once. Each has every fourth order.
const MOVERS: usize = 4;

/// An item of two segments, which hold half of the orders each.
async fn sold(env: &TestEnv) -> Item {
    let item = env.create_unlimited("vase", 2000, 2).await;
    for (number, orders) in [(0, 0..ORDERS / 2), (1, ORDERS / 2..ORDERS)] {
        let orders = orders.map(|n| order(&item, n, 1));
        happen(env, &segment(&item, number), [take(orders)]).await;
    }
    item
}

async fn walked(ledger: &impl AnyLedger, item: &Item) -> Sums {
    let totals = ledger.totals(&item.id).await.unwrap().unwrap();
    totals.sums.unwrap()
}

async fn changed(ledger: &impl AnyLedger, item: &Item, since: &Sums) -> Option<ItemTotals> {
    ledger.walk_changes(&item.id, since).await.unwrap()
}

/// The sums after what has changed, which are those of a walk.
async fn compared(ledger: &impl AnyLedger, item: &Item, since: &Sums) -> Sums {
    let followed = changed(ledger, item, since).await.unwrap();
    assert_identity(&followed);
    let walked = ledger.totals(&item.id).await.unwrap().unwrap();
    assert_eq!(followed.by_orders, walked.by_orders);
    assert_eq!(followed.segments, walked.segments);
    let counts = |totals: &ItemTotals| {
        let rows = totals.rows();
        let orders = (rows.rejected_orders, rows.refund_due_orders);
        (orders, rows.in_transit)
    };
    assert_eq!(counts(&followed), counts(&walked));
    followed.sums.unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn what_has_changed_adds_up_to_what_a_walk_finds(env: &TestEnv) {
    let item = sold(env).await;
    let keys = [0, 1].map(|number| segment(&item, number));
    let first = walked(env, &item).await;
    let mut sums = compared(env, &item, &first).await;
    for (n, to) in [
        (0, OrderState::Confirmed),
        (1, OrderState::Cancelled),
        (2, OrderState::Expired),
        (3, OrderState::Confirmed),
        (3, OrderState::Refunded),
        (ORDERS - 1, OrderState::Confirmed),
    ] {
        becomes(env, order_id(&item, n), to).await;
        sums = compared(env, &item, &sums).await;
    }
    // New orders, one that the row cannot cover, and units that have come back.
    let orders = [(1000, 1), (1001, 5000)].map(|(n, units)| order(&item, n, units));
    let changes: [Change; 2] = [take(orders), release([order(&item, 1, 1)])];
    let recorded = happen(env, &keys[0], changes).await;
    assert_eq!((recorded.rejected.len(), recorded.returned), (1, 1));
    compared(env, &item, &sums).await;
    compared(env, &item, &first).await;
    // Several steps of one order at once.
    for to in [OrderState::Confirmed, OrderState::Refunded] {
        becomes(env, order_id(&item, 1000), to).await;
    }
    compared(env, &item, &sums).await;
    compared(env, &item, &first).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_are_followed_while_they_move(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = sold(env).await;
    let mut since = walked(&ledger, &item).await;
    let mut movers = JoinSet::new();
    for mover in 0..MOVERS {
        let (ledger, item) = (env.ledger().await, item.clone());
        movers.spawn(async move {
            for n in (mover..ORDERS).step_by(MOVERS) {
                let path: &[OrderState] = match n % 3 {
                    0 => &[OrderState::Cancelled],
                    1 => &[OrderState::Confirmed, OrderState::Refunded],
                    _ => &[OrderState::Expired],
                };
                for to in path {
                    becomes(&ledger, order_id(&item, n), *to).await;
                }
            }
        });
    }
    let mut followed = 0;
    while !movers.is_empty() {
        since = if let Some(totals) = changed(&ledger, &item, &since).await {
            followed += 1;
            assert_identity(&totals);
            totals.sums.unwrap()
        } else {
            walked(&ledger, &item).await
        };
        while let Some(moved) = movers.try_join_next() {
            moved.unwrap();
        }
    }
    assert!(followed > 0);
}

/// SQLite has one writer at a time.
#[tested(on_both_databases(crate::env::run))]
async fn a_transaction_that_was_open_in_the_snapshot_is_followed(env: &TestEnv) {
    if env.backend == Backend::Sqlite {
        return;
    }
    let item = sold(env).await;
    let mut connection = PgConnection::connect(env.url()).await.unwrap();
    let mut late = connection.begin().await.unwrap();
    // What the ledger does for a payment.
    let id = order_id(&item, 0);
    for sql in [
        format!("UPDATE orders SET state = 'confirmed', version = version + 1 WHERE id = '{id}'"),
        format!(
            "UPDATE segments SET held = held - 1, confirmed = confirmed + 1, version = version + 1 \
             WHERE item = '{}' AND segment = 0",
            item.id
        ),
        format!(
            "INSERT INTO events (at, item, kind, data, orders) \
             VALUES (now(), '{}', 'order.confirmed', '{{}}', uuid_send('{id}'))",
            item.id
        ),
    ] {
        sqlx::query(AssertSqlSafe(sql))
            .execute(&mut *late)
            .await
            .unwrap();
    }
    // This one begins later, and commits before it.
    let other = order_id(&item, ORDERS - 1);
    becomes(env, other, OrderState::Confirmed).await;
    let since = walked(env, &item).await;
    compared(env, &item, &since).await;
    late.commit().await.unwrap();
    becomes(env, other, OrderState::Refunded).await;
    becomes(env, id, OrderState::Refunded).await;
    compared(env, &item, &since).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_order_that_was_reacquired_is_walked(env: &TestEnv) {
    let item = sold(env).await;
    let before = walked(env, &item).await;
    let id = order_id(&item, 0);
    becomes(env, id, OrderState::Expired).await;
    let expired = compared(env, &item, &before).await;
    let other = segment(&item, 1);
    let reacquired = [take([again(order(&item, 0, 1), 1)])];
    happen(env, &other, reacquired).await;
    assert_eq!(counters(env, &other).await[1], 201);
    compared(env, &item, &expired).await;
    let had_units = changed(env, &item, &before).await;
    assert!(had_units.is_none(), "in which segment?");
    let held = compared(env, &item, &expired).await;
    becomes(env, id, OrderState::Confirmed).await;
    assert!(changed(env, &item, &held).await.is_none());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_refund_beside_one_that_is_due_is_walked(env: &TestEnv) {
    let item = sold(env).await;
    let before = walked(env, &item).await;
    let [due, paid] = [0, 1].map(|n| order_id(&item, n));
    for to in [OrderState::Expired, OrderState::RefundDue] {
        becomes(env, due, to).await;
    }
    becomes(env, paid, OrderState::Confirmed).await;
    let since = compared(env, &item, &before).await;
    for order in [due, paid] {
        becomes(env, order, OrderState::Refunded).await;
        assert!(changed(env, &item, &since).await.is_none());
    }
    compared(env, &item, &before).await;
    let since = walked(env, &item).await;
    compared(env, &item, &since).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn more_changes_than_are_worth_it_are_walked(env: &TestEnv) {
    let item = sold(env).await;
    let since = walked(env, &item).await;
    let key = segment(&item, 0);
    let orders = |range: std::ops::Range<usize>| take(range.map(|n| order(&item, n, 1)));
    happen(env, &key, [orders(1000..1050)]).await;
    compared(env, &item, &since).await;
    happen(env, &key, [orders(1050..1051)]).await;
    assert!(changed(env, &item, &since).await.is_none());
}

#[tested(on_both_databases(crate::env::run))]
async fn events_that_were_removed_are_walked(env: &TestEnv) {
    let item = sold(env).await;
    let since = walked(env, &item).await;
    let id = order_id(&item, 0);
    becomes(env, id, OrderState::Confirmed).await;
    compared(env, &item, &since).await;
    let later = Timestamp::now() + std::time::Duration::from_secs(60);
    eventually("the removal of the last event", async || {
        env.remove_events(later, 100).await.unwrap();
        changed(env, &item, &since).await.is_none()
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_that_an_order_has_not_changed_is_seen(env: &TestEnv) {
    let item = sold(env).await;
    let since = walked(env, &item).await;
    becomes(env, order_id(&item, 0), OrderState::Confirmed).await;
    let row = |by: i64| {
        format!(
            "UPDATE segments SET held = held + {by}, confirmed = confirmed - {by} \
             WHERE item = '{}' AND segment = 0",
            item.id
        )
    };
    env.sql(&row(1)).await;
    let found = changed(env, &item, &since).await.unwrap();
    let expected = ByOrders {
        held: 199,
        confirmed: 1,
        returning: 0,
    };
    assert_eq!(found.by_orders[0], expected);
    assert_eq!(
        (found.segments[0].held, found.segments[0].confirmed),
        (200, 0)
    );
    env.sql(&row(-1)).await;
    compared(env, &item, &since).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn the_last_sums_are_kept(env: &TestEnv) {
    let item = sold(env).await;
    assert_eq!(env.last_sums(&item.id).await.unwrap(), None);
    let sums = walked(env, &item).await;
    assert_eq!(sums.orders(), ORDERS as u64);
    let compared = |second: i64| ComparedSums {
        audit: GoodAudit {
            at: Timestamp::from_second(1_700_000_000 + second).unwrap(),
            revision: u64::MAX - second.cast_unsigned(),
        },
        sums: sums.clone(),
    };
    for second in [7, 6] {
        let noted = env.note_sums(&item.id, &compared(second)).await;
        noted.unwrap();
        let last = env.last_audits(&item.id).await.unwrap();
        assert_eq!(last.compared, Some(compared(7).audit), "the newer one");
        assert_eq!(last.good, None);
    }
    let last = env.last_sums(&item.id).await.unwrap();
    assert_eq!(last, Some(sums.clone()));
    // What another release has stored is not read.
    env.sql("UPDATE order_sums SET sums = '{}'").await;
    assert_eq!(env.last_sums(&item.id).await.unwrap(), None);
}
