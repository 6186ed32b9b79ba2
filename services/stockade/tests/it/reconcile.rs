//! `stockade reconcile`, and a reconciler that runs by itself.

use std::process::Output;

use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;

use crate::{
    process::{Serving, audit, create, run, settled_audit, stderr, stdout, stockade},
    site::Site,
};

fn reconcile(site: &Site, options: &[&str]) -> Output {
    run(stockade(site.dir()).arg("reconcile").args(options))
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
async fn it_says_what_is_wrong_and_puts_it_right() {
    let site = Site::new().await;
    let service = Serving::serve(
        site.dir(),
        free_port().await,
        &["--roles", "order,recorder"],
    )
    .await;
    create(
        &service.url,
        &site.admin,
        &json!({ "id": "vase", "stock": 10, "segments": 2, "limit_per_buyer": 1 }),
    )
    .await;
    let before = site.hold(&service.url, "vase", "k").await;
    settled_audit(site.dir(), "vase").await;
    ends(&reconcile(&site, &["vase"]), 0, &["vase: nothing to do"]);
    ends(
        &reconcile(&site, &["vase", "--dry-run"]),
        0,
        &["vase: nothing to do"],
    );

    site.redis(&["HINCRBY", "stock:{vase:1}", "available", "3"])
        .await;
    let dry = [
        "mend",
        "dry run: nothing was changed",
        "halt the segment",
        "segment 1, the last entries of its outbox",
    ];
    ends(&reconcile(&site, &["vase", "--dry-run"]), 1, &dry);
    let dry = reconcile(&site, &["vase", "--dry-run", "--json"]);
    ends(&dry, 1, &[]);
    let told: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    let expected = [
        ("item", json!("vase")),
        ("dry_run", json!(true)),
        ("ok", json!(false)),
    ];
    assert!(
        expected.iter().all(|(field, value)| told[field] == *value),
        "{told:#}"
    );
    let step = &told["steps"][0];
    assert_eq!(
        (&step["action"], &step["segment"], &step["units"]),
        (&json!("mend"), &json!(1), &json!(3)),
        "{told:#}"
    );
    assert!(
        step["entries"]
            .as_array()
            .is_some_and(|entries| !entries.is_empty()),
        "{told:#}"
    );
    assert_eq!(audit(site.dir(), "vase")["drift"], 3, "nothing was changed");

    ends(&reconcile(&site, &["vase"]), 0, &["mend", "vase: done"]);
    assert_eq!(site.heals("vase").await["available"], 9);
    site.redis(&[
        "DEL",
        "stock:{vase:0}",
        "answers:{vase:0}",
        "buyers:{vase:0}",
        "outbox:{vase:0}",
        "walks:{vase:0}",
    ])
    .await;
    let mended = reconcile(&site, &["vase", "--json"]);
    ends(&mended, 0, &[]);
    let told: Value = serde_json::from_str(&stdout(&mended)).unwrap();
    assert_eq!(
        (&told["dry_run"], &told["ok"], &told["left"]),
        (&json!(false), &json!(true), &json!([])),
        "{told:#}"
    );
    assert_eq!(told["steps"][0]["why"], "the segment is not in Redis");
    assert_eq!(site.heals("vase").await["available"], 9);
    assert_eq!(
        site.hold(&service.url, "vase", "k").await,
        before,
        "the order is the same"
    );
    ends(&reconcile(&site, &["vase"]), 0, &["vase: nothing to do"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_not_there_is_an_error() {
    let site = Site::new().await;
    let _service = Serving::serve(
        site.dir(),
        free_port().await,
        &["--roles", "order,recorder"],
    )
    .await;
    for item in ["no-such-item", "no such item"] {
        for options in [&[item][..], &[item, "--dry-run"], &[item, "--json"]] {
            let output = reconcile(&site, options);
            ends(&output, 2, &[]);
            assert!(!stderr(&output).is_empty());
        }
    }
    ends(
        &run(stockade(site.dir()).args(["reconcile", "vase", "--lock", "paper"])),
        2,
        &[],
    );
}

/// What waits for a recorder, where none runs.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_said_and_is_in_the_exit_status() {
    let site = Site::new().await;
    let mut service = Serving::serve(
        site.dir(),
        free_port().await,
        &["--roles", "order,recorder"],
    )
    .await;
    create(
        &service.url,
        &site.admin,
        &json!({ "id": "vase", "stock": 10 }),
    )
    .await;
    settled_audit(site.dir(), "vase").await;
    let moved = Client::new()
        .post(format!("{}/items/vase/stock", service.url))
        .bearer_auth(&site.admin)
        .header("Idempotency-Key", "k");
    let moved = moved.json(&json!({ "take_back": 4 })).send().await.unwrap();
    assert_eq!(moved.status(), 202, "nobody moves units");
    assert_eq!(service.interrupt(), Some(0));
    ends(
        &reconcile(&site, &["vase"]),
        1,
        &["take_back", "NOT all done; left:"],
    );
    let _recorder = Serving::recorder(site.dir());
    ends(&reconcile(&site, &["vase"]), 0, &["vase: done"]);
    assert_eq!(site.heals("vase").await["stock"], 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_works_by_itself_and_the_next_one_goes_on() {
    let site = Site::new().await;
    let service = Serving::serve(site.dir(), free_port().await, &["--roles", "order"]).await;
    let mut recorder = Serving::recorder(site.dir());
    let mut reconciler = Serving::in_the_background(site.dir(), "reconciler");
    create(
        &service.url,
        &site.admin,
        &json!({ "id": "vase", "stock": 10, "segments": 2, "hold_seconds": 1 }),
    )
    .await;
    for round in 0..3 {
        let order = site.hold(&service.url, "vase", &format!("k-{round}")).await;
        site.becomes(&service.url, &order, "expired").await;
        site.redis(&["HINCRBY", "stock:{vase:0}", "available", "2"])
            .await;
        assert_eq!(site.heals("vase").await["available"], 10);
        reconciler.kill();
        let order = site
            .hold(&service.url, "vase", &format!("again-{round}"))
            .await;
        tokio::time::sleep(std::time::Duration::from_millis(1300)).await;
        site.becomes(&service.url, &order, "held").await;
        reconciler = Serving::in_the_background(site.dir(), "reconciler");
        site.becomes(&service.url, &order, "expired").await;
    }
    assert_eq!(site.heals("vase").await["available"], 10);
    assert_eq!(reconciler.interrupt(), Some(0));
    assert_eq!(recorder.interrupt(), Some(0));
}
