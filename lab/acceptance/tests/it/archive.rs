//! `stockade items archive` and `items drop`, and what is left of the item.

use std::process::Output;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    process::{audit, order, polling_client, run, settled_audit, stderr, stdout, stockade},
    test_env::TestEnv,
};

const PAGE: &str = include_str!("../../../../docs/operations.md");

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
    let request = polling_client().request(method, format!("{url}{path}"));
    let response = request.bearer_auth(&env.admin).json(body).send().await;
    response.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_archives_a_closed_item_and_the_service_answers_from_the_ledger() {
    let env = TestEnv::new().await;
    let service = env.serve(&[]).await;
    let item = json!({ "id": "vase", "stock": 10, "segments": 2 });
    env.create(&service.url, &item).await;
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
    assert_eq!(report["ok"], true);
    assert_eq!(report["available"], 10);
    let again = order(&polling_client(), &service.url, "vase", &env.ann, "k");
    let again: Value = again.send().await.unwrap().json().await.unwrap();
    assert_eq!(again["id"], json!(held));
    assert_eq!(again["state"], "cancelled");
    let refused = order(&polling_client(), &service.url, "vase", &env.ann, "k-2");
    let refused: Value = refused.send().await.unwrap().json().await.unwrap();
    assert_eq!(refused["code"], "not_open");
    assert_eq!(refused["state"], "archived");
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

/// The commands of the page that drop an old sale.
fn documented() -> Vec<&'static str> {
    let (_, section) = PAGE.split_once("### Dropping old sales\n").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.lines().collect()
}

fn command(env: &TestEnv, line: &str) -> Output {
    run(stockade(env.dir()).args(line.split_whitespace()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_drop_an_old_sale_and_its_audit_still_answers() {
    let env = TestEnv::new().await;
    let service = env.serve(&[]).await;
    let item = json!({ "id": "vase", "stock": 10, "segments": 2 });
    env.create(&service.url, &item).await;
    let held = env.hold(&service.url, "vase", "k").await;
    let ask =
        async |method, path: &str, body: Value| call(&env, &service.url, method, path, &body).await;
    let order_path = format!("/v1/orders/{held}");
    ask(Method::DELETE, &order_path, json!(null)).await;
    let closed = json!({ "state": "closed" });
    ask(Method::PUT, "/v1/items/vase/state", closed).await;
    settled_audit(env.dir(), "vase").await;
    let open = command(&env, "items drop vase");
    ends(&open, 1, "vase: NOT dropped: it is not archived");
    ends(
        &command(&env, "items drop none"),
        2,
        "there is no item none",
    );
    ends(&archive(&env, "vase"), 0, "vase: archived");
    let early = command(&env, "items drop vase --after 1");
    ends(&early, 1, "vase: NOT dropped: it keeps its orders until 2");

    let outputs: Vec<_> = documented()
        .into_iter()
        .map(|line| {
            let line = line.strip_prefix("stockade ").unwrap();
            let output = command(&env, &line.replace("ITEM", "vase"));
            assert!(output.status.success(), "{line}: {}", stderr(&output));
            stdout(&output)
        })
        .collect();
    let [archived, dropped, audited] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(archived, "vase: archived\n");
    assert!(audited.contains("dropped at 2"), "{audited}");
    let (text, export) = dropped.trim_end().split_once("\nexport: ").unwrap();
    assert_eq!(text, "vase: dropped, 1 orders deleted");
    let export = std::fs::read_to_string(export).unwrap();
    assert!(export.contains(&held.replace('-', "")), "{export}");

    let report = audit(env.dir(), "vase");
    assert!(report["dropped_at"].is_string(), "{report:#}");
    assert_eq!(report["ok"], true);
    let answered = ask(Method::GET, "/v1/items/vase/audit", json!(null)).await;
    assert_eq!(answered, report);
    let gone = ask(Method::GET, &order_path, json!(null)).await;
    assert_eq!(gone["code"], "order_not_found");
    let again = order(&polling_client(), &service.url, "vase", &env.ann, "k");
    let again: Value = again.send().await.unwrap().json().await.unwrap();
    assert_eq!(again["code"], "not_open");
    assert_eq!(again["state"], "archived");
    let again = command(&env, "items drop vase");
    ends(&again, 0, "vase: dropped, 1 orders deleted");
}
