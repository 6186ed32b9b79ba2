//! `--lock`: the backends that may keep the locks of items.

use serde_json::{Value, json};
use testbed::Postgres;
use testkit::eventually_some;

use crate::{
    lock,
    process::{Serving, audit_becomes, create, run, stderr, stdout, stockade, token},
    test_env::{TestEnv, becomes, run_redis},
};

/// Differences are repaired, holds end, and units that are taken back leave, and so they do when
/// Redis was emptied.
async fn works(env: &TestEnv, options: &[&str]) {
    let mut service = env.serve(options).await;
    env.create(&service.url, &json!({ "id": "vase", "stock": 10, "segments": 2, "hold_seconds": 1, "limit_per_buyer": 1 })).await;
    let order = env.hold(&service.url, "vase", "k").await;
    env.becomes(&service.url, &order, "expired").await;
    env.redis(&["HINCRBY", "stock:{vase:1}", "available", "-2"])
        .await;
    let healed = env.heals_at(&service.url, "vase").await;
    assert_eq!(healed["available"], 10, "{options:?}");
    env.redis(&["FLUSHALL"]).await;
    let healed = env.heals_at(&service.url, "vase").await;
    assert_eq!(healed["available"], 10, "{options:?}");
    let output = run(stockade(env.dir())
        .args(["reconcile", "vase"])
        .args(options));
    assert_eq!(
        output.status.code(),
        Some(0),
        "{options:?}: {}{}",
        stdout(&output),
        stderr(&output)
    );
    assert_eq!(service.interrupt(), Some(0), "{options:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledgers_database_keeps_the_locks_by_default() {
    works(&TestEnv::new().await, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_keeps_them() {
    works(&TestEnv::new().await, &["--lock", "sqlite"]).await;
    let postgres = Postgres::start().await.unwrap();
    let database = postgres.create_database("shop").await.unwrap();
    works(
        &TestEnv::with_ledger(tempfile::tempdir().unwrap(), &database).await,
        &["--lock", "postgres"],
    )
    .await;
    // Not in the ledger.
    let locks = postgres.create_database("locks").await.unwrap();
    works(
        &TestEnv::new().await,
        &["--lock", "postgres", "--lock-urls", &locks],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_redis_of_the_stock_keeps_them_also_when_it_has_forgotten_them() {
    works(&TestEnv::new().await, &["--lock", "redis"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_redis_servers_keep_them() {
    let servers = lock::test_env::start(3).await;
    let nodes = lock::test_env::urls(&servers);
    for options in [
        &["--lock-urls", &nodes][..],
        &["--lock", "redlock", "--lock-urls", &nodes],
    ] {
        works(
            &TestEnv::new().await,
            &[options, &["--lock-lease-ms", "1000"]].concat(),
        )
        .await;
    }
}

/// Servers of an earlier `up` must not override the user's own settings.
#[tokio::test(flavor = "multi_thread")]
async fn up_takes_another_lock_too() {
    let folder = tempfile::tempdir().unwrap();
    for options in [
        &[][..],
        &["--lock", "sqlite"],
        &["--lock", "redis"],
        &["--lock", "redlock"],
    ] {
        let mut up = Serving::up_with(folder.path(), options);
        let admin = token(folder.path(), &["admin"]);
        let (item, ann) = (
            format!("vase-{}", options.concat()),
            token(folder.path(), &["buyer", "ann"]),
        );
        create(
            &up.url,
            &admin,
            &json!({ "id": item, "stock": 10, "hold_seconds": 1 }),
        )
        .await;
        let client = reqwest::Client::new();
        let held = crate::process::order(&client, &up.url, &item, &ann, "k")
            .send()
            .await
            .unwrap();
        let held: Value = held.json().await.unwrap();
        becomes(&up.url, &admin, held["id"].as_str().unwrap(), "expired").await;
        let run_file: toml::Table = std::fs::read_to_string(folder.path().join("run.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let stock = format!("stock:{{{item}:0}}");
        run_redis(
            run_file["redis_url"].as_str().unwrap(),
            &["HINCRBY", &stock, "available", "4"],
        )
        .await;
        let is_clean = |report: &Value| report["ok"] == json!(true);
        audit_becomes(&up.url, &admin, &item, is_clean).await;
        let report = eventually_some(&format!("{options:?}: a clean audit"), async || {
            let report = crate::process::audit(folder.path(), &item);
            is_clean(&report).then_some(report)
        })
        .await;
        assert_eq!(report["available"], 10, "{options:?}: {report:#}");
        assert_eq!(up.interrupt(), Some(0), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_keep_them_is_refused_by_name() {
    let env = TestEnv::new().await;
    let table = [
        (
            &["--lock", "paper"][..],
            &["--lock", "paper", "redlock", "sqlite"][..],
        ),
        (&["--lock", "zookeeper"], &["LOCK_URLS", "zookeeper"]),
        (&["--lock", "redlock"], &["LOCK_URLS", "redlock"]),
        (
            &["--lock", "sqlite", "--lock-urls", "redis://127.0.0.1:1"],
            &["--lock-urls", "sqlite://"],
        ),
        (
            &[
                "--lock",
                "redis",
                "--lock-urls",
                "redis://127.0.0.1:1,redis://127.0.0.1:2",
            ],
            &["LOCK_URLS", "one server", "found 2"],
        ),
        #[cfg(not(feature = "etcd"))]
        (
            &["--lock", "etcd", "--lock-urls", "http://127.0.0.1:1"],
            &["--features etcd"],
        ),
    ];
    for (options, expected) in table {
        let output = run(stockade(env.dir())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options));
        assert_eq!(
            output.status.code(),
            Some(2),
            "{options:?}: {}",
            stderr(&output)
        );
        for expected in expected {
            assert!(
                stderr(&output).contains(expected),
                "{options:?}: {expected:?} is not in {}",
                stderr(&output)
            );
        }
    }
}
