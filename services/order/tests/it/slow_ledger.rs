//! A ledger that does not answer some transitions, or refuses some. On PostgreSQL, which locks rows: SQLite would keep everybody waiting.

use std::time::{Duration, Instant};

use domain::SegmentKey;
use ledger::Claim;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::shop::{Options, Shop, Stores, open};

const WITHIN: Duration = Duration::from_millis(700);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(3);

/// With a reconciler: a step that is made after its caller was told that nobody knows leaves its units to it.
fn on_postgres(order_within: Duration) -> Options {
    Options {
        stores: Stores::Postgres,
        order_within,
        ..Options::reconciled()
    }
}

/// Keeps the segment's row from whoever wants it, as a recorder does that was stopped. The server ends it after ten seconds.
async fn keep_row(shop: &Shop, item: &str, segment: u16) -> Box<dyn Claim> {
    let key = SegmentKey {
        item: item.parse().unwrap(),
        segment,
    };
    loop {
        // The recorder has its turns at it, too.
        if let Some(claim) = shop.engines[0]
            .ledger
            .claim(std::slice::from_ref(&key), 1)
            .await
            .unwrap()
        {
            return claim;
        }
    }
}

/// An order of that segment.
async fn hold_in(shop: &Shop, item: &str, segment: u16, name: &str) -> String {
    for n in 0.. {
        let order = shop.hold(item, &format!("{name}-{n}"), "k").await;
        let recorded = shop.engines[0]
            .ledger
            .order(order.parse().unwrap())
            .await
            .unwrap()
            .unwrap();
        if recorded.segment == segment {
            return order;
        }
    }
    unreachable!("buyers live everywhere")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_keeps_makes_its_transitions_unknown_in_time_and_no_others() {
    open(on_postgres(WITHIN), async |shop| {
        let item = shop.create(json!({ "stock": 20, "segments": 1 })).await;
        let other = shop.create(json!({ "stock": 20, "segments": 1 })).await;
        let (paid, cancelled, refunded) = (
            shop.hold(&item, "ann", "k").await,
            shop.hold(&item, "bob", "k").await,
            shop.hold(&item, "carol", "k").await,
        );
        shop.pay(&refunded, "pay-carol").await.is_now("confirmed");
        let others = shop.hold(&other, "dan", "k").await;
        shop.settled_audit(&item).await;
        let row = keep_row(&shop, &item, 0).await;
        let began = Instant::now();
        let of_the_other = async {
            // By now the other three wait for the row.
            tokio::time::sleep(WITHIN / 7).await;
            shop.pay(&others, "pay-dan").await
        };
        let (pay, cancel, refund, of_the_other) = tokio::join!(
            shop.pay(&paid, "pay-ann"),
            shop.cancel("bob", &cancelled),
            shop.refund(&refunded),
            of_the_other
        );
        for answer in [pay, cancel, refund] {
            answer.is(503, "outcome_unknown");
        }
        of_the_other.is_now("confirmed");
        assert!(began.elapsed() < WITHIN + SLACK, "{:?}", began.elapsed());
        row.release().await;
        // Whoever asks again is told, whether or not it was made after all.
        shop.pay(&paid, "pay-ann").await.is_now("confirmed");
        shop.cancel("bob", &cancelled).await.is_now("cancelled");
        shop.refund(&refunded).await.is_now("refunded");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_given_up_makes_room_for_the_next_one_of_its_item() {
    open(on_postgres(WITHIN), async |shop| {
        let item = shop.create(json!({ "stock": 40, "segments": 2 })).await;
        let (stuck, free) = (
            hold_in(&shop, &item, 0, "stuck").await,
            hold_in(&shop, &item, 1, "free").await,
        );
        shop.settled_audit(&item).await;
        let row = keep_row(&shop, &item, 0).await;
        let began = Instant::now();
        shop.pay(&stuck, "pay-stuck")
            .await
            .is(503, "outcome_unknown");
        let mut answer = shop.pay(&free, "pay-free").await;
        while answer.status == 503 && began.elapsed() < WITHIN + SLACK {
            answer = shop.pay(&free, "pay-free").await;
        }
        answer.is_now("confirmed");
        row.release().await;
        shop.pay(&stuck, "pay-stuck").await.is_now("confirmed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_transition_that_the_ledger_refuses_does_not_stop_those_that_came_with_it() {
    open(on_postgres(Duration::from_secs(5)), async |shop| {
        let item = shop.create(json!({ "stock": 20, "segments": 1 })).await;
        let mut orders = Vec::new();
        for buyer in ["ann", "bob", "carol", "dan"] {
            orders.push(shop.hold(&item, buyer, "k").await);
        }
        shop.settled_audit(&item).await;
        run(&shop, "ALTER TABLE orders ADD CONSTRAINT not_bob CHECK (buyer <> 'bob' OR state <> 'confirmed')").await;
        let row = keep_row(&shop, &item, 0).await;
        let pay = |buyer: usize| shop.pay(&orders[buyer], "pay");
        // The first one waits for the row, and those that come meanwhile are the next batch.
        let later = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            tokio::join!(pay(1), pay(2), pay(3))
        };
        let release = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            row.release().await;
        };
        let (ann, (bob, carol, dan), ()) = tokio::join!(pay(0), later, release);
        for answer in [ann, carol, dan] {
            answer.is_now("confirmed");
        }
        assert!(bob.status >= 500, "the ledger refused this one: {bob:?}");
        run(&shop, "ALTER TABLE orders DROP CONSTRAINT not_bob").await;
        shop.pay(&orders[1], "pay").await.is_now("confirmed");
    })
    .await;
}

/// Behind everybody's back.
async fn run(shop: &Shop, statement: &str) {
    let mut connection = PgConnection::connect(&shop.database_url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await
        .unwrap();
}
