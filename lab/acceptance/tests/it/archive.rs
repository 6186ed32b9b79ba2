//! `stockade items archive`, and what is left of an archived item.

use std::process::Output;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use testbed::free_port;

use crate::{
    process::{Serving, audit, create, order, run, settled_audit, stderr, stdout, stockade},
    test_env::TestEnv,
};

fn archive(env: &TestEnv, item: &str) -> Output {
    run(stockade(env.dir()).args(["items", "archive", item]))
}

#[track_caller]
fn ends(output: &Output, code: i32, expected: &str) {
    let text = format!("{}{}", stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(expected), "{expected:?} is not in\n{text}");
}

async fn call(env: &TestEnv, url: &str, method: Method, path: &str, body: &Value) -> Value {
    let request = Client::new().request(method, format!("{url}{path}"));
    let response = request.bearer_auth(&env.admin).json(body).send().await;
    response.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_archives_a_closed_item_and_the_service_answers_from_the_ledger() {
    let env = TestEnv::new().await;
    let service = Serving::serve(env.dir(), free_port().await, &[]).await;
    let item = json!({ "id": "vase", "stock": 10, "segments": 2 });
    create(&service.url, &env.admin, &item).await;
    let held = env.hold(&service.url, "vase", "k").await;
    settled_audit(env.dir(), "vase").await;
    ends(&archive(&env, "none"), 2, "there is no item none");
    ends(
        &archive(&env, "vase"),
        1,
        "the item is open, close it first",
    );
    let closed = json!({ "state": "closed" });
    let state = call(
        &env,
        &service.url,
        Method::PUT,
        "/v1/items/vase/state",
        &closed,
    )
    .await;
    assert_eq!(state["state"], "closed", "{state}");
    settled_audit(env.dir(), "vase").await;
    ends(&archive(&env, "vase"), 1, "1 units of held orders");
    let path = format!("/v1/orders/{held}");
    call(&env, &service.url, Method::DELETE, &path, &json!(null)).await;
    settled_audit(env.dir(), "vase").await;
    ends(&archive(&env, "vase"), 0, "vase: archived");
    ends(&archive(&env, "vase"), 0, "vase: archived");

    let report = audit(env.dir(), "vase");
    assert!(report["archived_at"].is_string(), "{report:#}");
    assert_eq!(
        (&report["ok"], &report["available"]),
        (&json!(true), &json!(10))
    );
    let again = order(&Client::new(), &service.url, "vase", &env.ann, "k");
    let again: Value = again.send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&again["id"], &again["state"]),
        (&json!(held), &json!("cancelled"))
    );
    let refused = order(&Client::new(), &service.url, "vase", &env.ann, "k-2");
    let refused: Value = refused.send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&refused["code"], &refused["state"]),
        (&json!("not_open"), &json!("archived"))
    );
    for erased in [1, 0] {
        let output = run(stockade(env.dir()).args(["buyers", "erase", "ann"]));
        ends(
            &output,
            0,
            &format!("erased the name from {erased} orders; 0 orders keep it"),
        );
    }
    ends(
        &run(stockade(env.dir()).args(["reconcile", "vase"])),
        0,
        "vase: nothing to do",
    );
}
