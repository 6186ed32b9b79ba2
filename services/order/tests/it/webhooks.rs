//! Webhooks over HTTP. `services/publisher` tests what is sent to them.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use events::TargetPolicy;
use futures::future::join_all;
use order::{Admin, Limits, Scope};
use reqwest::Method;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use testkit::tested_in;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::env::{ADMIN, Answer, Env, Options, TestEnv, on_both_ledgers, open, patient};

fn options(private: bool) -> Options {
    Options {
        limits: Limits {
            webhook_targets: TargetPolicy { private },
            ..patient()
        },
        ..Options::default()
    }
}

impl TestEnv {
    async fn webhook(&self, method: Method, path: &str) -> Answer {
        Answer::of(self.admin(method, &format!("/v1/webhooks{path}"))).await
    }

    async fn create_webhook(&self, body: Value) -> Answer {
        self.admin_posts("/v1/webhooks", &body).await
    }
}

#[tested_in(on_both_ledgers(options(true)))]
async fn a_secret_is_shown_once(env: Env) {
    let body = json!({ "url": "https://127.0.0.1/hook", "kinds": ["order.expired"] });
    let created = env.create_webhook(body).await;
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.body["id"].as_str().unwrap();
    assert_eq!(
        created.header("location"),
        Some(&*format!("/v1/webhooks/{id}"))
    );
    let secret = created.body["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_"));
    let list = env.webhook(Method::GET, "").await;
    assert_eq!(list.status, 200);
    let [shown] = &list.rows()[..] else {
        panic!("{list:?}");
    };
    assert_eq!(
        (
            &shown["id"],
            &shown["url"],
            &shown["kinds"],
            &shown["failures"]
        ),
        (
            &json!(id),
            &json!("https://127.0.0.1/hook"),
            &json!(["order.expired"]),
            &json!(0)
        )
    );
    assert!(!list.body.to_string().contains(secret));
    let path = format!("/{id}");
    let enable = env.webhook(Method::POST, &format!("{path}/enable")).await;
    assert_eq!(enable.status, 204);
    assert_eq!(env.webhook(Method::DELETE, &path).await.status, 204);
    let refused = env.webhook(Method::DELETE, &path).await;
    refused.is(404, "webhook_not_found");
    for (method, path) in [
        (Method::DELETE, "/x".to_owned()),
        (Method::POST, format!("{path}/enable")),
        (Method::POST, format!("{path}/test")),
    ] {
        let refused = env.webhook(method, &path).await;
        refused.is(404, "webhook_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_as_many_webhooks_as_allowed_whatever_instance_creates_them() {
    let mut options = options(true).with_instances(2);
    options.limits.webhooks = 3;
    on_both_ledgers(options, async |env| {
        let create = async |n: usize| {
            let request = env
                .at(n % 2, Method::POST, "/v1/webhooks")
                .bearer_auth(ADMIN);
            let body = json!({ "url": format!("https://127.0.0.1/{n}") });
            Answer::of(request.json(&body)).await
        };
        let created = join_all((0..10).map(create)).await;
        let (created, refused): (Vec<_>, Vec<_>) =
            created.into_iter().partition(|answer| answer.status == 201);
        assert_eq!(created.len(), 3);
        for answer in refused {
            answer.is(409, "too_many_webhooks");
        }
        let shown = env.webhook(Method::GET, "").await;
        assert_eq!(shown.rows().len(), 3);
        let id = created[0].body["id"].as_str().unwrap();
        let removed = env.webhook(Method::DELETE, &format!("/{id}")).await;
        assert_eq!(removed.status, 204);
        assert_eq!(create(10).await.status, 201);
        create(11).await.is(409, "too_many_webhooks");
    })
    .await;
}

#[tested_in(open(options(false)))]
async fn a_private_address_and_an_unknown_kind_are_refused_by_name(env: Env) {
    let urls = [
        "https://127.0.0.1/hook",
        "https://localhost/hook",
        "https://[::1]/hook",
        "https://[::ffff:10.0.0.1]/hook",
        "https://[fe80::1]/hook",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest/meta-data",
        "http://1.1.1.1/hook",
        "ftp://1.1.1.1/hook",
        "hook",
    ];
    for url in urls {
        let answer = env.create_webhook(json!({ "url": url })).await;
        answer.is(400, "invalid_request");
        assert_eq!(answer.body["errors"][0]["pointer"], "/url", "{url}");
    }
    let body = json!({ "url": "https://1.1.1.1/", "kinds": ["order.held", "order.lost"] });
    let answer = env.create_webhook(body).await;
    answer.is(400, "invalid_request");
    assert_eq!(answer.body["errors"][0]["pointer"], "/kinds/1");
    for (body, pointer) in [
        (json!({ "url": "https://1.1.1.1/", "kind": [] }), "/kind"),
        (json!({ "url": 7 }), "/url"),
        (json!({}), "/url"),
        (
            json!({ "url": "https://1.1.1.1/", "kinds": [7] }),
            "/kinds/0",
        ),
    ] {
        let answer = env.create_webhook(body).await;
        answer.is(400, "invalid_request");
        assert_eq!(answer.body["errors"][0]["pointer"], pointer, "{answer:?}");
    }
    assert_eq!(
        env.webhook(Method::GET, "").await.body,
        json!({ "data": [] })
    );
    for method in [Method::GET, Method::POST] {
        let answer = Answer::of(env.buyer("ann", method, "/v1/webhooks")).await;
        answer.is(403, "forbidden");
    }
}

type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

async fn receive(State(seen): State<Seen>, headers: HeaderMap, body: Bytes) {
    let body = serde_json::from_slice(&body).unwrap();
    seen.lock().unwrap().push((headers, body));
}

#[tested_in(open(options(true)))]
async fn a_test_event_is_sent_at_once_and_its_failure_is_told(env: Env) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(Arc::clone(&seen));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let test = async |path: &str| {
        let url = format!("http://{address}{path}");
        let created = env.create_webhook(json!({ "url": url })).await;
        let id: Uuid = created.body["id"].as_str().unwrap().parse().unwrap();
        let answer = env.webhook(Method::POST, &format!("/{id}/test")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    let expected = json!({ "delivered": true, "status": 200, "error": null });
    assert_eq!(test("/hook").await, expected);
    let (headers, event) = seen.lock().unwrap().remove(0);
    assert_eq!(event["type"], "stockade.webhook.test");
    assert_eq!(headers["webhook-id"], event["id"].as_str().unwrap());
    assert!(
        headers["webhook-signature"]
            .to_str()
            .unwrap()
            .starts_with("v1,")
    );
    let failed = test("/elsewhere").await;
    assert_eq!(
        failed,
        json!({ "delivered": false, "status": null, "error": "the receiver answered 404 Not Found" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_who_may_not_change_webhooks_sees_no_secret_of_their_urls() {
    let hash = digest(&SHA256, b"a reader's token");
    let reader = Admin::new(
        "reader",
        hash.as_ref().try_into().unwrap(),
        vec![Scope::Read],
    );
    let options = Options {
        admins: vec![reader],
        ..options(true)
    };
    open(options, async |env| {
        let url = "https://127.0.0.1:8443/T0KEN?key=T0KEN";
        let created = env.create_webhook(json!({ "url": url })).await;
        assert_eq!(created.status, 201, "{created:?}");
        let list = env.anyone(Method::GET, "/v1/webhooks");
        let list = Answer::of(list.bearer_auth("a reader's token")).await;
        assert_eq!(list.body["data"][0]["url"], "https://127.0.0.1:8443");
        assert!(!list.body.to_string().contains("T0KEN"), "{list:?}");
        let list = env.webhook(Method::GET, "").await;
        assert_eq!(list.body["data"][0]["url"], url);
    })
    .await;
}
