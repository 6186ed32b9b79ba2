//! A ledger that does not answer some transitions, or refuses some. On PostgreSQL, which locks
//! rows: SQLite would block all transactions.

use std::{pin::pin, time::Duration};

use futures::future::join_all;
use ledger::PoolSettings;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::{tested_in, timeout};

use crate::env::{Env, Options, Stores, TestEnv, a_session_waits, held, known, open};

/// For transitions that must time out.
const ORDER_TIMEOUT: Duration = Duration::from_millis(1500);

/// With a reconciler, which returns the units of a transition that commits after its request timed
/// out.
fn on_postgres(order_timeout: Duration) -> Options {
    Options {
        stores: Stores::Postgres,
        order_timeout,
        ..Options::reconciled()
    }
}

/// A locked row of a segment. Nothing else ends the lock: what waits for the row waits until the
/// test releases it.
struct Row(PgConnection);

impl Row {
    async fn release(self) {
        self.0.close().await.unwrap();
    }
}

/// Locks the segment's row, like a recorder that stalls.
async fn keep_row(env: &TestEnv, item: &str, segment: u16) -> Row {
    let mut row = PgConnection::connect(&env.database_url).await.unwrap();
    let lock = format!(
        "BEGIN; SELECT 1 FROM segments WHERE item = '{item}' AND segment = {segment} FOR UPDATE"
    );
    sqlx::raw_sql(AssertSqlSafe(&*lock))
        .execute(&mut row)
        .await
        .unwrap();
    Row(row)
}

/// An order of that segment.
async fn hold_in(env: &TestEnv, item: &str, segment: u16, name: &str) -> String {
    for n in 0.. {
        let order = held(env, item, &format!("{name}-{n}")).await.id();
        let recorded = env.engines[0]
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

/// Orders of one item: to pay, to cancel and to refund.
async fn three_orders(env: &TestEnv, item: &str) -> [String; 3] {
    let orders = [
        held(env, item, "ann").await.id(),
        held(env, item, "bob").await.id(),
        held(env, item, "carol").await.id(),
    ];
    let paid = known(async || env.pay(&orders[2], "pay-carol").await).await;
    paid.is_now("confirmed");
    env.settled_audit(item).await;
    orders
}

#[tested_in(open(on_postgres(timeout())))]
async fn a_locked_row_holds_up_its_own_transitions_only(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 1 })).await;
    let other = env.create(json!({ "stock": 20, "segments": 1 })).await;
    let [paid, cancelled, refunded] = three_orders(&env, &item).await;
    let others = env.hold(&other, "dan", "k").await;
    let row = keep_row(&env, &item, 0).await;
    let mut waiting = pin!(async {
        tokio::join!(
            env.pay(&paid, "pay-ann"),
            env.cancel("bob", &cancelled),
            env.refund(&refunded)
        )
    });
    let of_the_other = async {
        a_session_waits(&env).await;
        env.pay(&others, "pay-dan").await
    };
    tokio::select! {
        answers = &mut waiting => panic!("the row is locked: {answers:?}"),
        answer = of_the_other => { answer.is_now("confirmed"); }
    }
    row.release().await;
    let (pay, cancel, refund) = waiting.await;
    pay.is_now("confirmed");
    cancel.is_now("cancelled");
    refund.is_now("refunded");
}

#[tested_in(open(on_postgres(ORDER_TIMEOUT)))]
async fn a_transition_that_waits_for_a_locked_row_times_out_and_can_be_repeated(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 1 })).await;
    let [paid, cancelled, refunded] = three_orders(&env, &item).await;
    let row = keep_row(&env, &item, 0).await;
    let (pay, cancel, refund) = tokio::join!(
        env.pay(&paid, "pay-ann"),
        env.cancel("bob", &cancelled),
        env.refund(&refunded)
    );
    for answer in [pay, cancel, refund] {
        answer.is(503, "outcome_unknown");
    }
    row.release().await;
    // A repeat gets the final state, whether the transition committed or not.
    let paid = known(async || env.pay(&paid, "pay-ann").await).await;
    paid.is_now("confirmed");
    let cancelled = known(async || env.cancel("bob", &cancelled).await).await;
    cancelled.is_now("cancelled");
    let refunded = known(async || env.refund(&refunded).await).await;
    refunded.is_now("refunded");
}

#[tested_in(open(on_postgres(ORDER_TIMEOUT)))]
async fn a_batch_that_timed_out_does_not_block_the_next_batch_of_its_item(env: Env) {
    let item = env.create(json!({ "stock": 40, "segments": 2 })).await;
    let (stuck, free) = (
        hold_in(&env, &item, 0, "stuck").await,
        hold_in(&env, &item, 1, "free").await,
    );
    env.settled_audit(&item).await;
    let row = keep_row(&env, &item, 0).await;
    let refused = env.pay(&stuck, "pay-stuck").await;
    refused.is(503, "outcome_unknown");
    let paid = known(async || env.pay(&free, "pay-free").await).await;
    paid.is_now("confirmed");
    row.release().await;
    let paid = known(async || env.pay(&stuck, "pay-stuck").await).await;
    paid.is_now("confirmed");
}

#[tested_in(open(on_postgres(timeout())))]
async fn a_transition_that_the_ledger_refuses_does_not_fail_its_batch(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 1 })).await;
    let mut orders = Vec::new();
    for buyer in ["ann", "bob", "carol", "dan"] {
        orders.push(env.hold(&item, buyer, "k").await);
    }
    env.settled_audit(&item).await;
    run(
        &env,
        "ALTER TABLE orders ADD CONSTRAINT not_bob CHECK (buyer <> 'bob' OR state <> 'confirmed')",
    )
    .await;
    let row = keep_row(&env, &item, 0).await;
    let pay = async |buyer: usize| env.pay(&orders[buyer], &format!("pay-{buyer}")).await;
    // The first transition waits for the row; those that arrive meanwhile form the next batch.
    let later = async {
        a_session_waits(&env).await;
        tokio::join!(pay(1), pay(2), pay(3))
    };
    let release = async {
        a_session_waits(&env).await;
        // Nothing shows that the later ones are queued.
        tokio::time::sleep(Duration::from_millis(600)).await;
        row.release().await;
    };
    let (ann, (bob, carol, dan), ()) = tokio::join!(pay(0), later, release);
    for answer in [ann, carol, dan] {
        answer.is_now("confirmed");
    }
    assert!(bob.status >= 500, "the ledger refused this one: {bob:?}");
    run(&env, "ALTER TABLE orders DROP CONSTRAINT not_bob").await;
    pay(1).await.is_now("confirmed");
}

/// Makes every change of an order fail with this SQLSTATE: at the change, or at the commit.
async fn refuse_changes(env: &TestEnv, code: &str, when: When) {
    let trigger = match when {
        When::AtOnce => "CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW",
        When::AtCommit => {
            "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON orders \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        }
    };
    run(
        env,
        &format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;
             {trigger} EXECUTE FUNCTION refuse()"
        ),
    )
    .await;
}

#[derive(Clone, Copy)]
enum When {
    AtOnce,
    AtCommit,
}

/// The server itself gives these codes when it is read only and when its disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_proves_unchanged_is_no_unknown_outcome() {
    for (code, when, expected) in [
        ("25006", When::AtOnce, "unavailable"),
        ("53100", When::AtOnce, "unavailable"),
        ("53100", When::AtCommit, "outcome_unknown"),
    ] {
        open(on_postgres(timeout()), async |env| {
            let item = env.create(json!({ "stock": 20, "segments": 1 })).await;
            let [paid, cancelled, refunded] = three_orders(&env, &item).await;
            refuse_changes(&env, code, when).await;
            let (pay, cancel, refund) = tokio::join!(
                env.pay(&paid, "pay-ann"),
                env.cancel("bob", &cancelled),
                env.refund(&refunded)
            );
            for answer in [pay, cancel, refund] {
                assert!(
                    answer.is(503, expected).header("retry-after").is_some(),
                    "{code}"
                );
            }
            run(&env, "DROP TRIGGER refuse ON orders").await;
            env.confirm(&paid, "pay-ann").await;
            env.cancel("bob", &cancelled).await.is_now("cancelled");
            env.refund(&refunded).await.is_now("refunded");
        })
        .await;
    }
}

/// What a reload makes of a server: its sessions refuse changes, and new ones can only read. While
/// the pool looks for a server that can write, each transaction waits 3 s for a connection.
#[tokio::test(flavor = "multi_thread")]
async fn payments_that_meet_a_read_only_ledger_share_one_wait_and_one_answer() {
    const PAYMENTS: usize = 20;
    let options = Options {
        pool: Some(PoolSettings::new(8)),
        ..on_postgres(Duration::from_secs(40))
    };
    open(options, async |env| {
        let item = env.create(json!({ "stock": 40, "segments": 1 })).await;
        let mut orders = Vec::new();
        for n in 0..PAYMENTS {
            orders.push(held(&env, &item, &format!("buyer-{n}")).await.id());
        }
        env.settled_audit(&item).await;
        refuse_changes(&env, "25006", When::AtOnce).await;
        set_database(&env, "SET default_transaction_read_only = on").await;
        let pay = |n: usize| {
            let (env, order) = (&env, &orders[n]);
            async move { env.pay(order, &format!("pay-{n}")).await }
        };
        // One wait for each payment would take longer than a request may, and one for all is far
        // from that on a busy machine, too.
        for answer in join_all((0..PAYMENTS).map(pay)).await {
            answer.is(503, "unavailable");
        }
        set_database(&env, "RESET default_transaction_read_only").await;
        run(&env, "DROP TRIGGER refuse ON orders").await;
        for n in 0..PAYMENTS {
            known(async || pay(n).await).await.is_now("confirmed");
        }
    })
    .await;
}

/// A setting for the next sessions of the database.
async fn set_database(env: &TestEnv, setting: &str) {
    // This session itself may be one that can only read.
    let statement = format!(
        "BEGIN READ WRITE; \
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {setting}', current_database()); END $$; \
         COMMIT"
    );
    run(env, &statement).await;
}

/// Runs a statement directly on the database.
async fn run(env: &TestEnv, statement: &str) {
    let mut connection = PgConnection::connect(&env.database_url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await
        .unwrap();
}
