//! Stores that answer, and take no orders: a service behind a balancer must say so.

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testbed::Redis;
use testkit::{eventually, tested_in, timeout};

use crate::{
    durability::run,
    env::{Env, Options, Stores, TestEnv, known, open},
};

/// What begins a refusal, the server's word for it, and what ends it.
const FAULTS: [([&str; 4], &str, [&str; 4]); 2] = [
    (
        ["CONFIG", "SET", "min-replicas-to-write", "1"],
        "NOREPLICAS",
        ["CONFIG", "SET", "min-replicas-to-write", "0"],
    ),
    (
        ["CONFIG", "SET", "maxmemory", "1"],
        "OOM",
        ["CONFIG", "SET", "maxmemory", "0"],
    ),
];

async fn tell(redis: &Redis, words: &[&str]) {
    run(&redis.url(), redis::cmd(words[0]).arg(&words[1..])).await;
}

fn at(redis: &Redis) -> Options {
    Options {
        redis_url: Some(redis.url()),
        // An order that is refused ends after a second, whatever its time limit.
        order_timeout: timeout(),
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_ready_exactly_while_its_redis_takes_orders() {
    let redis = Redis::start().await.unwrap();
    open(at(&redis), async |env| {
        let item = env.create(json!({ "stock": 9 })).await;
        let server = format!("Redis 127.0.0.1:{}", redis.port());
        for (n, (begin, word, end)) in FAULTS.iter().enumerate() {
            let buyer = format!("buyer-{n}");
            tell(&redis, begin).await;
            let refused = env.order(&item, &buyer, "k", 1).await;
            refused.is(503, "unavailable");
            // Whoever was refused and asks at once must not hear what an older look has seen.
            eventually("a look that names the server", async || {
                let unready = env.anyone_gets("/readyz").await;
                let retry_after = unready.is(503, "unavailable").header("retry-after");
                assert_eq!(retry_after, Some("1"));
                let detail = unready.body["detail"].as_str().unwrap();
                assert!(detail.contains(word), "{detail}");
                assert!(!detail.contains("the ledger"), "{detail}");
                detail.contains(&server)
            })
            .await;
            is_in_the_metrics(&env, &redis, 0).await;

            tell(&redis, end).await;
            env.becomes_ready().await;
            is_in_the_metrics(&env, &redis, 1).await;
            let repeat = known(async || env.order(&item, &buyer, "k", 1).await).await;
            repeat.is_held();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_whose_first_line_is_refused_has_reserved_nothing_and_its_key_decides_it() {
    let redis = Redis::start().await.unwrap();
    open(at(&redis), async |env| {
        let (vase, bowl) = (
            env.create(json!({ "stock": 9 })).await,
            env.create(json!({ "stock": 9 })).await,
        );
        let lines = [(&*vase, 1), (&*bowl, 1)];
        let (begin, _, end) = &FAULTS[1];
        tell(&redis, begin).await;
        env.cart("ann", "k", &lines).await.is(503, "unavailable");
        let unready = env.anyone_gets("/readyz").await;
        unready.is(503, "unavailable");
        tell(&redis, end).await;
        let placed = known(async || env.cart("ann", "k", &lines).await).await;
        placed.is_held();
        for item in [&vase, &bowl] {
            assert_eq!(env.settled_audit(item).await["held"], 1);
        }
    })
    .await;
}

/// The gauge of the server. All tests of the program share one registry, so the ledger's gauge may
/// be that of another test. The page of metrics is rendered once a second.
async fn is_in_the_metrics(env: &TestEnv, redis: &Redis, value: u8) {
    let labels = format!("store=\"redis\",server=\"127.0.0.1:{}\"", redis.port());
    let line = format!("stockade_store_writable{{{labels}}} {value}\n");
    eventually(&format!("the line {line}"), async || {
        let metrics = env.anyone_gets("/metrics").await;
        metrics.body.as_str().unwrap().contains(&line)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_makes_the_service_unready_until_it_is_a_master() {
    let redis = Redis::start().await.unwrap();
    open(at(&redis), async |env| {
        let item = env.create(json!({ "stock": 1 })).await;
        // Nothing listens at that port, so the server keeps its data.
        tell(&redis, &["REPLICAOF", "127.0.0.1", "1"]).await;
        env.becomes_unready().await.is(503, "unavailable");
        tell(&redis, &["REPLICAOF", "NO", "ONE"]).await;
        env.becomes_ready().await;
        let order = known(async || env.order(&item, "ann", "k", 1).await).await;
        order.is_held();
    })
    .await;
}

/// Lets new sessions of the database only read, or write again, and ends those that it has.
async fn set_read_only(env: &TestEnv, value: &str) {
    let database = env.database_url.rsplit('/').next().unwrap();
    let database = database.split('?').next().unwrap();
    let mut session = PgConnection::connect(&env.database_url).await.unwrap();
    for statement in [
        // This session itself may only read, when the others shall write again.
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        &format!("ALTER DATABASE \"{database}\" SET default_transaction_read_only = {value}"),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE datname = current_database() AND pid <> pg_backend_pid()",
    ] {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement));
        statement.execute(&mut session).await.unwrap();
    }
    session.close().await.unwrap();
}

#[tested_in(open(Options {
    stores: Stores::Postgres,
    order_timeout: timeout(),
    ..Options::default()
}))]
async fn a_ledger_that_only_reads_makes_the_service_unready(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    set_read_only(&env, "on").await;
    // At first it may say that its sessions were ended.
    eventually("a ledger that says that it only reads", async || {
        let unready = env.becomes_unready().await;
        let detail = unready.is(503, "unavailable").body["detail"].to_string();
        assert!(detail.contains("the ledger takes no orders"), "{detail}");
        assert!(!detail.contains("Redis"), "{detail}");
        detail.contains("read only") || detail.contains("read-only")
    })
    .await;
    set_read_only(&env, "off").await;
    env.becomes_ready().await;
    let order = known(async || env.order(&item, "ann", "k", 1).await).await;
    order.is_held();
}
