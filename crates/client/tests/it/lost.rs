//! After an attempt whose answer was lost, only the service's own decision on the key counts.

use std::time::Duration;

use client::{
    BuyerOrder, Client, Error, IdempotencyKey, ItemState, NewItem, NewOrder, OrderBatcher, Payment,
    PaymentKey, Placed, ProblemCode, RetryPolicy, Token,
};
use futures::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    dropping::{Answers, Dropping},
    server::{ID, Scripted, Server, brief, order, problem},
};

/// Repeats immediately, and long enough for every script on any machine.
fn eager() -> RetryPolicy {
    RetryPolicy::every(Duration::from_millis(1), Duration::from_secs(600))
}

fn client(url: &str, retry: RetryPolicy) -> Client {
    Client::new(url).unwrap().with_retry(retry)
}

fn token() -> Token {
    Token::bearer("a.b.c").unwrap()
}

async fn place(url: &str, retry: RetryPolicy) -> Result<Placed, Error> {
    let buyer = client(url, retry).buyer(token());
    buyer.place(&NewOrder::new("vase", 1)).await
}

/// Answers that do not come from the decision on the key: of the service's own checks before it, of
/// a gateway with codes of its own, and of proxies with pages.
fn undecided() -> Vec<Scripted> {
    vec![
        problem(400, "invalid_request"),
        problem(401, "unauthorized"),
        problem(403, "forbidden"),
        problem(404, "item_not_found"),
        Scripted::new(404, r#"{"message":"no Route matched with those values"}"#),
        Scripted::new(409, r#"{"code":409,"status":"Conflict"}"#),
        problem(409, "a_code_of_later"),
        Scripted::new(409, "<html>conflict</html>"),
        problem(429, "too_many_requests"),
        problem(503, "unavailable"),
        Scripted::new(429, "<html>slow down</html>"),
        Scripted::new(302, "<html>moved</html>"),
        Scripted::new(200, "<html>please log in</html>"),
        Scripted::new(200, "[]"),
        Scripted::of_gateway(409, "sold_out"),
        Scripted::of_gateway(503, "unavailable"),
    ]
}

/// What loses an attempt without cutting its connection.
fn lost() -> Vec<Scripted> {
    vec![
        Scripted::new(502, "<html>bad gateway</html>"),
        problem(503, "outcome_unknown"),
        Scripted::new(504, r#"{"message":"upstream timed out"}"#),
        Scripted::of_gateway(503, "unavailable"),
    ]
}

#[tokio::test]
async fn no_other_answer_hides_the_order_of_a_lost_attempt() {
    for lost in lost() {
        let script: Vec<_> = std::iter::once(lost)
            .chain(undecided())
            .chain([order(201, "held")])
            .collect();
        let attempts = script.len();
        let server = Server::start(script).await;
        let placed = place(&server.url, eager()).await.unwrap();
        assert!(placed.order.state.has_units());
        assert_eq!(server.received().len(), attempts);
    }
}

#[tokio::test]
async fn behind_a_proxy_that_drops_answers_each_order_is_placed_once() {
    for cut in [Answers::Drop, Answers::Tear] {
        let script: Vec<_> = [order(201, "held")]
            .into_iter()
            .chain(undecided())
            .chain([Scripted {
                replayed: true,
                ..order(201, "held")
            }])
            .collect();
        let attempts = script.len();
        let server = Server::start(script).await;
        let proxy = Dropping::before(&server, [cut]).await;
        let placed = place(&proxy.url, eager()).await.unwrap();
        assert!(placed.replayed && placed.order.state.has_units(), "{cut:?}");
        assert!(proxy.is_done());
        let received = server.received();
        assert_eq!(received.len(), attempts, "{cut:?}");
        let key = received[0].header("idempotency-key");
        assert!(
            received
                .iter()
                .all(|request| request.header("idempotency-key") == key)
        );
    }
}

#[tokio::test]
async fn behind_a_proxy_the_outcome_stays_unknown_at_the_deadline() {
    join_all(undecided().into_iter().map(stays_unknown)).await;
}

async fn stays_unknown(answer: Scripted) {
    let what = format!("{} {}", answer.status, answer.body);
    let server = Server::start([order(201, "held"), answer]).await;
    let proxy = Dropping::before(&server, [Answers::Drop]).await;
    let error = place(&proxy.url, brief()).await.unwrap_err();
    let Error::OutcomeUnknown { attempts, .. } = error else {
        panic!("{what}: {error:?}");
    };
    assert!(error.is_retryable() && error.may_have_run() && !error.settles_key());
    assert!(attempts > 1, "{what}: {attempts}");
    assert_eq!(server.received().len(), attempts as usize, "{what}");
}

#[tokio::test]
async fn the_error_tells_what_came_after_the_lost_attempt() {
    let refused = Scripted {
        retry_after: Some(600),
        ..problem(401, "unauthorized")
    };
    let server = Server::start([order(201, "held"), refused]).await;
    let proxy = Dropping::before(&server, [Answers::Drop]).await;
    let retry = RetryPolicy {
        deadline: Duration::from_secs(300),
        ..RetryPolicy::default()
    };
    let error = place(&proxy.url, retry).await.unwrap_err();
    let answer = error.later_answer().unwrap();
    assert!(error.is_outcome_unknown() && answer.is(ProblemCode::Unauthorized));
    assert_eq!(error.retry_after(), Some(600));
    assert!(error.to_string().contains("401 unauthorized"), "{error}");
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_decision_settles_a_lost_attempt() {
    for code in [
        "sold_out",
        "buyer_limit_reached",
        "not_open",
        "idempotency_key_reused",
    ] {
        let script = [
            order(201, "held"),
            problem(401, "unauthorized"),
            problem(409, code),
        ];
        let server = Server::start(script).await;
        let proxy = Dropping::before(&server, [Answers::Drop]).await;
        let error = place(&proxy.url, eager()).await.unwrap_err();
        let Error::Refused(problem) = &error else {
            panic!("{code}: {error:?}");
        };
        assert!(problem.code.as_str() == code && error.settles_key());
        assert_eq!(server.received().len(), 3);
    }
}

#[tokio::test]
async fn before_a_lost_attempt_a_refusal_is_one() {
    let is_refusal = |answer: &Scripted| (400..=499).contains(&answer.status);
    let refusals = undecided().into_iter().filter(is_refusal);
    for answer in refusals {
        // The service says that nothing ran, so the first attempt is not lost.
        let server = Server::start([problem(503, "unavailable"), answer]).await;
        let error = place(&server.url, eager()).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(!error.settles_key());
        assert_eq!(server.received().len(), 2);
    }
}

#[tokio::test]
async fn a_success_that_is_no_order_leaves_it_unknown() {
    let held = order(201, "held");
    for answer in [
        Scripted::new(200, r#"{"error":"please log in"}"#),
        Scripted::new(201, held.body.replace("vase", "jar")),
    ] {
        let server = Server::start([held.clone(), answer.clone(), held.clone()]).await;
        let proxy = Dropping::before(&server, [Answers::Drop]).await;
        let placed = place(&proxy.url, eager()).await.unwrap();
        assert!(placed.order.state.has_units(), "a repeat finds it");
        assert_eq!(server.received().len(), 3);

        let server = Server::start([held.clone(), answer.clone()]).await;
        let proxy = Dropping::before(&server, [Answers::Drop]).await;
        let error = place(&proxy.url, brief()).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error:?}");
        let answered = error.later_answer();
        assert!(
            matches!(answered, Some(Error::Contract { .. })),
            "{error:?}"
        );
        let server = Server::start([answer]).await;
        let error = place(&server.url, eager()).await.unwrap_err();
        assert!(matches!(error, Error::Contract { .. }), "{error:?}");
    }
}

/// What has become of a request to change an order or an item is as unknown as that of a new order.
#[tokio::test]
async fn a_proxys_page_leaves_a_lost_change_unknown() {
    let calls = ["cancel", "extend", "report", "refund", "state", "create"];
    for (call, error) in calls
        .iter()
        .zip(join_all(calls.map(lost_before_a_page)).await)
    {
        assert!(error.is_outcome_unknown(), "{call}: {error:?}");
        let answered = error.later_answer();
        assert!(
            matches!(answered, Some(Error::Contract { .. })),
            "{call}: {error:?}"
        );
    }
}

/// How a call ends whose first answer is lost, and whose next ones are JSON of a proxy.
async fn lost_before_a_page(call: &str) -> Error {
    let page = Scripted::new(200, r#"{"error":"please log in"}"#);
    let server = Server::start([order(200, "held"), page]).await;
    let proxy = Dropping::before(&server, [Answers::Drop]).await;
    let client = client(&proxy.url, brief());
    let (buyer, admin) = (client.buyer(token()), client.admin(token()));
    let id: Uuid = ID.parse().unwrap();
    match call {
        "cancel" => buyer.cancel(id).await.unwrap_err(),
        "extend" => buyer.extend_hold(id, 60).await.unwrap_err(),
        "report" => {
            let provider = client.payment_provider(PaymentKey::new("secret"));
            let payment = Payment::new("pay-1", id);
            provider.report(&payment).await.unwrap_err()
        }
        "refund" => admin.refund(id).await.unwrap_err(),
        "state" => {
            let closed = admin.set_state("vase", ItemState::Closed, None);
            closed.await.unwrap_err()
        }
        _ => {
            let created = admin.create_item(&NewItem::new("vase", 9)).await;
            created.unwrap_err()
        }
    }
}

#[tokio::test]
async fn without_a_lost_attempt_nothing_may_have_run() {
    let server = Server::start([problem(503, "unavailable")]).await;
    let error = place(&server.url, RetryPolicy::never()).await.unwrap_err();
    assert!(
        error.is_outcome_unknown() && !error.may_have_run(),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_lost_read_leaves_nothing_behind() {
    let script = [order(200, "held"), problem(404, "order_not_found")];
    let server = Server::start(script).await;
    let proxy = Dropping::before(&server, [Answers::Drop]).await;
    let buyer = client(&proxy.url, eager()).buyer(token());
    let id: Uuid = ID.parse().unwrap();
    let error = buyer.order(id).await.unwrap_err();
    assert!(error.is(ProblemCode::OrderNotFound), "{error:?}");
}

fn results(results: &[Value]) -> Scripted {
    Scripted::new(200, json!({ "results": results }).to_string())
}

fn held() -> Value {
    json!({ "status": 201, "id": ID, "item": "vase", "quantity": 1, "state": "held", "expires_at": "2026-01-01T00:00:00Z" })
}

#[tokio::test]
async fn the_lines_of_a_batch_share_its_lost_attempt() {
    let answer = results(&[
        json!({ "status": 400, "code": "invalid_request" }),
        json!({ "status": 409, "code": "sold_out" }),
        held(),
    ]);
    let orders = ["ann", "bob", "cleo"].map(|buyer| BuyerOrder {
        buyer: buyer.into(),
        quantity: 1,
        key: IdempotencyKey::new("k").unwrap(),
        amount: None,
    });
    for (plan, is_unknown) in [(vec![], false), (vec![Answers::Drop], true)] {
        let server = Server::start([answer.clone()]).await;
        let proxy = Dropping::before(&server, plan).await;
        let admin = client(&proxy.url, eager()).admin(token());
        let placed = admin.place_batch("vase", &orders).await.unwrap();
        let error = placed[0].as_ref().unwrap_err();
        assert_eq!(error.is_outcome_unknown(), is_unknown, "{error:?}");
        assert!(placed[1].as_ref().unwrap_err().is(ProblemCode::SoldOut));
        assert!(placed[2].is_ok());
    }
}

#[tokio::test]
async fn a_lost_line_of_a_batch_says_nothing_about_the_others() {
    let lost = json!({ "status": 503, "code": "outcome_unknown" });
    let refused = json!({ "status": 400, "code": "invalid_request" });
    let orders = ["ann", "bob"].map(|buyer| BuyerOrder {
        buyer: buyer.into(),
        quantity: 1,
        key: IdempotencyKey::new("k").unwrap(),
        amount: None,
    });
    for (lines, lost) in [
        ([lost.clone(), refused.clone()], [true, false]),
        ([refused, lost], [false, true]),
    ] {
        let server = Server::start([results(&lines)]).await;
        let admin = client(&server.url, eager()).admin(token());
        let placed = admin.place_batch("vase", &orders).await.unwrap();
        let unknown =
            |line: &Result<Placed, Error>| line.as_ref().unwrap_err().is_outcome_unknown();
        assert_eq!([unknown(&placed[0]), unknown(&placed[1])], lost);
    }
}

#[tokio::test]
async fn a_batcher_remembers_the_lost_attempt_of_an_order() {
    let script = [
        results(&[held()]),
        results(&[json!({ "status": 400, "code": "invalid_request" })]),
        Scripted::new(401, "<html>"),
        results(&[held()]),
    ];
    let server = Server::start(script).await;
    let proxy = Dropping::before(&server, [Answers::Tear]).await;
    let batcher = OrderBatcher::new(&client(&proxy.url, eager()).admin(token()), "vase");
    let placed = batcher.order("ann", 1, IdempotencyKey::new("k").unwrap());
    assert!(placed.await.unwrap().order.state.has_units());
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn a_batcher_tells_that_the_order_of_a_key_has_ended() {
    let mut ended = held();
    ended["state"] = "expired".into();
    let server = Server::start([results(&[ended])]).await;
    let batcher = OrderBatcher::new(&client(&server.url, eager()).admin(token()), "vase");
    let placed = batcher.order("ann", 1, IdempotencyKey::new("k").unwrap());
    let error = placed.await.unwrap_err();
    assert!(matches!(error, Error::NoLongerHeld(_)), "{error:?}");
}
