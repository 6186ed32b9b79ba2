//! `stockade reconcile`, and a reconciler that runs by itself.

use std::process::Output;

use reqwest::Client;
use serde_json::{Value, json};

use crate::{
    process::{Serving, audit, run, settled_audit, stderr, stdout, stockade},
    test_env::TestEnv,
};

fn reconcile(env: &TestEnv, options: &[&str]) -> Output {
    run(stockade(env.dir()).arg("reconcile").args(options))
}

#[track_caller]
fn ends(output: &Output, code: i32, expected: &[&str]) {
    let text = stdout(output);
    assert_eq!(output.status.code(), Some(code), "{text}{}", stderr(output));
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_reports_and_repairs_anomalies() {
    let env = TestEnv::new().await;
    let service = env.serve(&["--roles", "order,recorder"]).await;
    env.create(
        &service.url,
        &json!({ "id": "vase", "stock": 10, "segments": 2, "limit_per_buyer": 1 }),
    )
    .await;
    let before = env.hold(&service.url, "vase", "k").await;
    settled_audit(env.dir(), "vase").await;
    ends(&reconcile(&env, &["vase"]), 0, &["vase: nothing to do"]);
    ends(
        &reconcile(&env, &["vase", "--dry-run"]),
        0,
        &["vase: nothing to do"],
    );

    env.redis(&["HINCRBY", "stock:{vase:1}", "available", "3"])
        .await;
    let dry = [
        "repair",
        "dry run: nothing was changed",
        "halt the segment",
        "segment 1, the last entries of its outbox",
    ];
    ends(&reconcile(&env, &["vase", "--dry-run"]), 1, &dry);
    let dry = reconcile(&env, &["vase", "--dry-run", "--json"]);
    ends(&dry, 1, &[]);
    let report: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    let expected = [
        ("item", json!("vase")),
        ("dry_run", json!(true)),
        ("ok", json!(false)),
    ];
    assert!(
        expected
            .iter()
            .all(|(field, value)| report[field] == *value),
        "{report:#}"
    );
    let step = &report["steps"][0];
    assert_eq!(
        (&step["action"], &step["segment"], &step["units"]),
        (&json!("repair"), &json!(1), &json!(3)),
        "{report:#}"
    );
    assert!(
        step["entries"]
            .as_array()
            .is_some_and(|entries| !entries.is_empty()),
        "{report:#}"
    );
    assert_eq!(audit(env.dir(), "vase")["drift"], 3, "nothing was changed");

    ends(&reconcile(&env, &["vase"]), 0, &["repair", "vase: done"]);
    assert_eq!(env.heals("vase").await["available"], 9);
    env.redis(&[
        "DEL",
        "stock:{vase:0}",
        "decisions:{vase:0}",
        "buyers:{vase:0}",
        "outbox:{vase:0}",
        "spillovers:{vase:0}",
    ])
    .await;
    let repaired = reconcile(&env, &["vase", "--json"]);
    ends(&repaired, 0, &[]);
    let report: Value = serde_json::from_str(&stdout(&repaired)).unwrap();
    assert_eq!(
        (&report["dry_run"], &report["ok"], &report["left"]),
        (&json!(false), &json!(true), &json!([])),
        "{report:#}"
    );
    assert_eq!(report["steps"][0]["why"], "the segment is not in Redis");
    assert_eq!(env.heals("vase").await["available"], 9);
    assert_eq!(
        env.hold(&service.url, "vase", "k").await,
        before,
        "the order is the same"
    );
    ends(&reconcile(&env, &["vase"]), 0, &["vase: nothing to do"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_not_there_is_an_error() {
    let env = TestEnv::new().await;
    let _service = env.serve(&["--roles", "order,recorder"]).await;
    for item in ["no-such-item", "no such item"] {
        for options in [&[item][..], &[item, "--dry-run"], &[item, "--json"]] {
            let output = reconcile(&env, options);
            ends(&output, 2, &[]);
            assert!(!stderr(&output).is_empty());
        }
    }
    ends(
        &run(stockade(env.dir()).args(["reconcile", "vase", "--lock", "paper"])),
        2,
        &[],
    );
}

/// Work that waits for a recorder, while none runs.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_left_is_reported_and_sets_the_exit_status() {
    let env = TestEnv::new().await;
    let mut service = env.serve(&["--roles", "order,recorder"]).await;
    env.sells(&service.url, "vase", 10).await;
    settled_audit(env.dir(), "vase").await;
    let moved = Client::new()
        .post(format!("{}/v1/items/vase/stock", service.url))
        .bearer_auth(&env.admin)
        .header("Idempotency-Key", "k");
    let moved = moved.json(&json!({ "withdraw": 4 })).send().await.unwrap();
    assert_eq!(moved.status(), 202, "no process moves units");
    assert_eq!(service.interrupt(), Some(0));
    ends(
        &reconcile(&env, &["vase"]),
        1,
        &["withdraw", "NOT all done; left:"],
    );
    let _recorder = Serving::recorder(env.dir());
    ends(&reconcile(&env, &["vase"]), 0, &["vase: done"]);
    assert_eq!(env.heals("vase").await["stock"], 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_works_by_itself_and_the_next_one_goes_on() {
    let env = TestEnv::new().await;
    let service = env.serve(&["--roles", "order"]).await;
    let mut recorder = Serving::recorder(env.dir());
    let mut reconciler = Serving::in_the_background(env.dir(), "reconciler");
    env.create(
        &service.url,
        &json!({ "id": "vase", "stock": 10, "segments": 2, "hold_seconds": 1 }),
    )
    .await;
    for round in 0..3 {
        let order = env.hold(&service.url, "vase", &format!("k-{round}")).await;
        env.becomes(&service.url, &order, "expired").await;
        env.redis(&["HINCRBY", "stock:{vase:0}", "available", "2"])
            .await;
        assert_eq!(env.heals_at(&service.url, "vase").await["available"], 10);
        reconciler.kill();
        let order = env
            .hold(&service.url, "vase", &format!("again-{round}"))
            .await;
        tokio::time::sleep(std::time::Duration::from_millis(1300)).await;
        env.becomes(&service.url, &order, "held").await;
        reconciler = Serving::in_the_background(env.dir(), "reconciler");
        env.becomes(&service.url, &order, "expired").await;
    }
    assert_eq!(env.heals_at(&service.url, "vase").await["available"], 10);
    assert_eq!(reconciler.interrupt(), Some(0));
    assert_eq!(recorder.interrupt(), Some(0));
}
