//! Events over HTTP: pages, long polls and streams.

use std::time::Duration;

use order::Limits;
use reqwest::{Method, Response, header};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testkit::{eventually, in_time, tested_in, timeout};
use tokio::time::Instant;

use crate::env::{
    ADMIN, Answer, Env, Options, Stores, TestEnv, a_session_waits, on_both_ledgers, open, patient,
};

/// The longest time that a request may wait.
const WAIT_SECONDS: u64 = 60;

impl TestEnv {
    async fn events(&self, query: &str) -> Answer {
        self.admin_gets(&format!("/v1/events?{query}")).await
    }

    /// Reads pages of the item until it has so many events.
    async fn all_events(&self, item: &str, count: usize, limit: usize) -> Vec<Value> {
        let (mut found, mut after) = (Vec::new(), String::new());
        eventually("all events", async || {
            let page = self.events(&format!("wait=1&limit={limit}{after}")).await;
            assert_eq!(page.status, 200, "{page:?}");
            after = format!("&after={}", page.body["next"].as_str().unwrap());
            let data = page.rows();
            assert!(data.len() <= limit);
            found.extend(data.iter().filter(|one| one["subject"] == item).cloned());
            found.len() >= count
        })
        .await;
        found
    }

    async fn cancelled_order(&self, item: &str, key: &str) -> String {
        let order = self.hold(item, "ann", key).await;
        self.cancel("ann", &order).await.is_now("cancelled");
        order
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn pages_have_every_event_once_and_in_order(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let order = env.cancelled_order(&item, "key-1").await;
    let second = env.cancelled_order(&item, "key-2").await;
    for limit in [1, 2, 100] {
        let events = env.all_events(&item, 5, limit).await;
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str()).collect();
        let expected = ["item.created", "order.held", "order.cancelled"];
        let expected = [&expected[..], &expected[1..]].concat();
        let expected: Vec<_> = expected
            .iter()
            .map(|kind| format!("stockade.{kind}"))
            .collect();
        assert_eq!(
            kinds,
            expected
                .iter()
                .map(|kind| Some(&**kind))
                .collect::<Vec<_>>()
        );
        assert_eq!(events[1]["data"], json!({ "orders": [order] }));
        assert_eq!(events[4]["data"], json!({ "orders": [second] }));
        for event in &events {
            assert_eq!(
                (
                    &event["specversion"],
                    &event["source"],
                    &event["datacontenttype"]
                ),
                (
                    &json!("1.0"),
                    &json!("stockade"),
                    &json!("application/json")
                )
            );
            assert!(event["time"].as_str().unwrap().ends_with('Z'));
        }
        // An event's id is a cursor.
        let id = events[3]["id"].as_str().unwrap();
        let rest = env.events(&format!("after={id}&limit=1&wait=60")).await;
        assert_eq!(rest.body["data"][0], events[4]);
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_waiting_request_answers_as_soon_as_something_happens(env: Env) {
    let now = env.events("after=now").await;
    assert_eq!(now.body["data"], json!([]));
    let after = now.body["next"].as_str().unwrap();
    let began = Instant::now();
    let empty = env.events(&format!("after={after}&wait=1")).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(empty.body, json!({ "data": [], "next": after }));
    assert_eq!(empty.header("cache-control"), Some("no-store"));
    // Requests that waited for their whole time would take longer together than the time-out.
    let requests = timeout().as_secs() / WAIT_SECONDS + 1;
    in_time("an answer to every waiting request", async {
        let mut after = after.to_owned();
        for _ in 0..requests {
            let query = format!("after={after}&wait={WAIT_SECONDS}");
            let (answer, item) = tokio::join!(env.events(&query), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                env.create(json!({ "stock": 1 })).await
            });
            assert_eq!(answer.body["data"][0]["subject"], item);
            after = answer.body["next"].as_str().unwrap().to_owned();
        }
    })
    .await;
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_wrong_parameter_or_cursor_is_refused_by_name(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    env.all_events(&item, 1, 100).await;
    let table = [
        ("after=x", "/after", "invalid_request"),
        ("after=99999999999-1", "/after", "invalid_cursor"),
        ("after=0-99999999", "/after", "invalid_cursor"),
        ("wait=61", "/wait", "invalid_request"),
        ("limit=0", "/limit", "invalid_request"),
        ("limit=10000", "/limit", "invalid_request"),
        ("limits=1", "/limits", "invalid_request"),
    ];
    for (query, pointer, code) in table {
        let answer = env.events(query).await;
        answer.is(400, code);
        assert_eq!(answer.body["errors"][0]["pointer"], pointer, "{query}");
        assert!(answer.body["errors"][0]["detail"].is_string());
    }
    let anyone = env.anyone(Method::GET, "/v1/events");
    Answer::of(anyone).await.is(401, "unauthorized");
    let buyer = env.buyer("ann", Method::GET, "/v1/events");
    Answer::of(buyer).await.is(403, "forbidden");
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_reader_whose_next_events_were_removed_learns_it(env: Env) {
    let item = env.create(json!({ "stock": 1 })).await;
    let first = env.all_events(&item, 1, 100).await.remove(0);
    env.cancelled_order(&item, "key").await;
    env.all_events(&item, 3, 100).await;
    let later = jiff::Timestamp::now() + Duration::from_secs(60);
    let ledger = &env.engines[0].ledger;
    assert_eq!(ledger.remove_events(later, 2).await.unwrap(), 2);
    let after = first["id"].as_str().unwrap();
    let refused = env.events(&format!("after={after}")).await;
    refused.is(410, "cursor_expired");
    let oldest = env.events("").await;
    let data = oldest.rows();
    assert_eq!(data.len(), 1);
    assert_eq!(data[0]["type"], "stockade.order.cancelled");
}

/// The events of a stream, as far as they have come.
struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    async fn open(env: &TestEnv, last: Option<&str>) -> Self {
        let request = reqwest::Client::new()
            .get(env.url(0, "/v1/events"))
            .bearer_auth(ADMIN)
            .header(header::ACCEPT, "text/event-stream");
        let request = match last {
            Some(last) => request.header("Last-Event-ID", last),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream"
        );
        Self {
            response,
            text: String::new(),
        }
    }

    /// Id and content of the next event.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start().to_owned())
                };
                if let Some(data) = field("data:") {
                    return Some((field("id:").unwrap(), serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let chunk = in_time("an event", self.response.chunk());
            let chunk = chunk.await.ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Waits until the service ends the stream, which is not the same as cutting the connection.
    async fn ends(&mut self) {
        loop {
            match in_time("the end of the stream", self.response.chunk()).await {
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(error) => panic!("the stream was cut off: {error}"),
            }
        }
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_stream_has_every_event_and_is_resumed_behind_the_last_one(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let mut stream = Stream::open(&env, None).await;
    let (first, created) = stream.next().await.unwrap();
    assert_eq!(created["subject"], json!(item));
    assert_eq!(created["id"], json!(first));
    env.cancelled_order(&item, "key").await;
    let (second, held) = stream.next().await.unwrap();
    assert_eq!(held["type"], "stockade.order.held");
    assert_eq!(
        stream.next().await.unwrap().1["type"],
        "stockade.order.cancelled"
    );
    drop(stream);
    let mut resumed = Stream::open(&env, Some(&second)).await;
    assert_eq!(
        resumed.next().await.unwrap().1["type"],
        "stockade.order.cancelled"
    );
    let wrong = env
        .admin(Method::GET, "/v1/events")
        .header(header::ACCEPT, "text/event-stream")
        .header("Last-Event-ID", "x");
    Answer::of(wrong).await.is(400, "invalid_cursor");
    let two = env
        .admin(Method::GET, "/v1/events")
        .header(header::ACCEPT, "text/event-stream")
        .header("Last-Event-ID", &first)
        .header("Last-Event-ID", &second);
    Answer::of(two).await.is(400, "invalid_cursor");
    let mut anew = Stream::open(&env, Some("")).await;
    assert_eq!(
        anew.next().await.unwrap().0,
        first,
        "an empty cursor is none"
    );
    let page = env.events("after=&wait=1").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.body["data"][0]["id"], json!(first));
}

#[tested_in(open(Options {
    stores: Stores::Postgres,
    limits: Limits {
        // A request that waited on for its whole time would be cut off, and get no answer.
        drain_timeout: Duration::from_secs(WAIT_SECONDS - 10),
        ..patient()
    },
    ..Options::default()
}))]
async fn waiting_requests_and_streams_end_when_the_service_stops(env: Env) {
    // The request reads the events first, so a lock on them shows that it has arrived.
    let mut lock = PgConnection::connect(&env.database_url).await.unwrap();
    let locked = sqlx::raw_sql("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE");
    locked.execute(&mut lock).await.unwrap();
    let query = format!("after=now&wait={WAIT_SECONDS}");
    let (answer, mut stream) = tokio::join!(env.events(&query), async {
        a_session_waits(&env).await;
        lock.close().await.unwrap();
        let stream = Stream::open(&env, None).await;
        // After its read the request rests for a second at most, and then it waits for an event.
        tokio::time::sleep(Duration::from_secs(2)).await;
        env.stop_serving();
        stream
    });
    assert_eq!((answer.status, &answer.body["data"]), (200, &json!([])));
    stream.ends().await;
}
