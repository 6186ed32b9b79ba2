//! What is repeated, with which key, and for how long.

use std::time::Duration;

use client::{
    Buyer, Client, Ended, Error, NewCart, NewOrder, ProblemCode, Request, RetryPolicy, Token,
};

use crate::server::{Scripted, Server, brief, order, problem};

/// Repeats immediately, and long enough for every script on any machine.
fn eager() -> RetryPolicy {
    RetryPolicy::every(Duration::from_millis(1), Duration::from_secs(600))
}

fn token() -> Token {
    Token::bearer("a.b.c").unwrap()
}

fn client(servers: &[&Server], retry: RetryPolicy) -> Client {
    let urls = servers.iter().map(|server| server.url.clone());
    Client::builder(urls).retry(retry).build().unwrap()
}

fn buyer(server: &Server, retry: RetryPolicy) -> Buyer {
    client(&[server], retry).buyer(token())
}

#[tokio::test]
async fn every_attempt_sends_the_same_key_and_the_same_body() {
    let script = [
        problem(503, "outcome_unknown"),
        Scripted::new(502, "<html>"),
        problem(503, "unavailable"),
        problem(408, "request_timeout"),
        order(201, "held"),
    ];
    let server = Server::start(script).await;
    let new = NewOrder::new("vase", 1);
    let placed = buyer(&server, eager()).place(&new).await.unwrap();
    assert!(placed.recorded && !placed.replayed);

    let received = server.received();
    assert_eq!(received.len(), 5);
    for request in received {
        let key = request.header("idempotency-key");
        assert_eq!(key, Some(new.key().as_str()));
        assert_eq!(request.body, r#"{"quantity":1}"#);
    }
}

/// The response to a cart of so many vases and one bowl.
fn cart(vases: u32) -> Scripted {
    let line = |item: &str, quantity: u32| serde_json::json!({ "item": item, "order": crate::server::ID, "quantity": quantity });
    let body = serde_json::json!({
        "id": "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615", "state": "held", "amount": 950, "currency": "EUR",
        "lines": [line("vase", vases), line("bowl", 1)], "expires_at": "2026-01-01T00:00:00Z",
    });
    Scripted::new(201, body.to_string())
}

#[tokio::test]
async fn every_attempt_at_a_cart_sends_the_same_key_and_the_same_lines() {
    let script = [
        problem(503, "outcome_unknown"),
        Scripted::new(502, "<html>"),
        cart(3),
    ];
    let server = Server::start(script).await;
    let new = NewCart::new()
        .with("vase", 2)
        .with("bowl", 1)
        .with("vase", 1);
    let placed = buyer(&server, eager()).place_cart(&new).await.unwrap();
    assert_eq!((placed.cart.lines[0].quantity, placed.replayed), (3, false));
    let received = server.received();
    assert_eq!(received.len(), 3);
    for request in &received {
        let key = request.header("idempotency-key");
        assert_eq!(key, Some(new.key().as_str()));
        assert_eq!(request.body, received[0].body);
    }
}

/// A refusal from the sold-out cache of an instance, which knows nothing about other attempts.
fn shed() -> Scripted {
    let body = serde_json::json!({ "code": "sold_out", "item": "vase", "final": false });
    Scripted::new(409, body.to_string())
}

fn vases() -> NewCart {
    NewCart::new().with("vase", 3).with("bowl", 1)
}

#[tokio::test]
async fn a_refusal_that_is_not_final_does_not_hide_the_cart_of_an_earlier_attempt() {
    let script = [problem(503, "outcome_unknown"), shed(), shed(), cart(3)];
    let server = Server::start(script).await;
    let placed = buyer(&server, eager()).place_cart(&vases()).await.unwrap();
    assert_eq!(placed.cart.lines.len(), 2);
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn without_an_earlier_attempt_a_refusal_that_is_not_final_is_the_answer() {
    let server = Server::start([shed()]).await;
    let error = buyer(&server, eager()).place_cart(&vases()).await;
    let error = error.unwrap_err();
    assert!(error.is(ProblemCode::SoldOut) && !error.is_final());
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn an_outcome_stays_unknown_when_only_refusals_that_are_not_final_follow() {
    let server = Server::start([problem(503, "outcome_unknown"), shed()]).await;
    let error = buyer(&server, brief()).place_cart(&vases()).await;
    let error = error.unwrap_err();
    assert!(
        error.is_outcome_unknown() && error.is_retryable(),
        "{error:?}"
    );
    assert!(server.received().len() > 2);
}

#[tokio::test]
async fn an_answer_about_other_lines_is_no_success() {
    let server = Server::start([cart(2)]).await;
    let new = NewCart::new().with("vase", 3).with("bowl", 1);
    let error = buyer(&server, eager()).place_cart(&new).await.unwrap_err();
    assert!(matches!(error, Error::Contract { .. }), "{error:?}");
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn a_repeat_goes_to_another_instance_than_the_attempt_before() {
    let first = Server::start([problem(503, "outcome_unknown")]).await;
    let second = Server::start([order(201, "held")]).await;
    let client = client(&[&first, &second], eager());
    let request = Request::place(&token(), &NewOrder::new("vase", 1));
    let sent = client.send(&request).await;
    assert_eq!((sent.attempts, sent.result.unwrap().status), (2, 201));
    assert_eq!((first.received().len(), second.received().len()), (1, 1));
}

#[tokio::test]
async fn a_connection_that_fails_is_retried() {
    let server = Server::start([order(201, "held")]).await;
    // Nothing listens at the discard port.
    let client = Client::builder(["http://127.0.0.1:9", &server.url])
        .retry(eager())
        .build()
        .unwrap();
    let placed = client.buyer(token()).place(&NewOrder::new("vase", 1)).await;
    assert!(placed.is_ok(), "{placed:?}");
}

#[tokio::test]
async fn a_refusal_is_final() {
    let server = Server::start([problem(409, "sold_out")]).await;
    let new = NewOrder::new("vase", 1);
    let error = buyer(&server, eager()).place(&new).await.unwrap_err();
    assert!(error.is(ProblemCode::SoldOut) && !error.is_outcome_unknown());
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_stays_unknown_when_the_deadline_has_passed() {
    let server = Server::start([problem(503, "outcome_unknown")]).await;
    let new = NewOrder::new("vase", 1);
    let error = buyer(&server, brief()).place(&new).await.unwrap_err();
    assert!(error.is_outcome_unknown() && !error.is(ProblemCode::OutcomeUnknown));
    let Error::OutcomeUnknown { attempts, .. } = error else {
        panic!("{error:?}");
    };
    assert!(attempts > 1, "{attempts}");
    assert_eq!(server.received().len(), attempts as usize);
}

#[tokio::test]
async fn never_means_one_attempt() {
    let server = Server::start([problem(503, "outcome_unknown")]).await;
    let new = NewOrder::new("vase", 1);
    let error = buyer(&server, RetryPolicy::never()).place(&new).await;
    assert!(error.unwrap_err().is_outcome_unknown());
    assert_eq!(server.received().len(), 1);
}

/// The service reports an internal defect. The order may have been placed, so the outcome is
/// unknown; but a repeat would fail in the same way.
#[tokio::test]
async fn an_internal_error_is_an_unknown_outcome_and_is_not_repeated() {
    let server = Server::start([problem(500, "internal")]).await;
    let new = NewOrder::new("vase", 1);
    let error = buyer(&server, eager()).place(&new).await.unwrap_err();
    assert!(error.is_outcome_unknown() && !error.is_retryable());
    assert_eq!(server.received().len(), 1);
}

/// The response to a repeat of an order that is in this state now.
fn replay(state: &str) -> Scripted {
    Scripted {
        replayed: true,
        ..order(201, state)
    }
}

#[tokio::test]
async fn a_replay_with_units_reports_the_order_as_it_is_now() {
    let server = Server::start([replay("confirmed"), order(202, "held")]).await;
    let buyer = buyer(&server, eager());
    let placed = buyer.place(&NewOrder::new("vase", 1)).await.unwrap();
    assert!(placed.replayed && placed.recorded && placed.order.state.has_units());
    let placed = buyer.place(&NewOrder::new("vase", 1)).await.unwrap();
    assert!(!placed.replayed && !placed.recorded && placed.order.state.has_units());
}

#[tokio::test]
async fn a_key_whose_order_has_ended_is_no_purchase() {
    for state in ["cancelled", "expired", "refund_due", "refunded"] {
        let server = Server::start([problem(503, "outcome_unknown"), replay(state)]).await;
        let buyer = buyer(&server, eager());
        let error = buyer.place(&NewOrder::new("vase", 1)).await.unwrap_err();
        let Error::NoLongerHeld(ended) = &error else {
            panic!("{state}: {error:?}");
        };
        assert_eq!(ended.id().to_string(), crate::server::ID);
        assert!(matches!(&**ended, Ended::Order(order) if order.state.as_str() == state));
        assert!(error.settles_key() && !error.is_outcome_unknown());
        assert!(error.to_string().contains("new key"), "{error}");
    }
}

#[tokio::test]
async fn a_key_whose_cart_has_ended_is_no_purchase() {
    for state in ["cancelled", "expired", "refund_due", "refunded", "failed"] {
        let held = cart(3);
        let ended = Scripted::new(201, held.body.replace("\"held\"", &format!("\"{state}\"")));
        let server = Server::start([ended]).await;
        let error = buyer(&server, eager()).place_cart(&vases()).await;
        let error = error.unwrap_err();
        let Error::NoLongerHeld(ended) = &error else {
            panic!("{state}: {error:?}");
        };
        assert!(matches!(&**ended, Ended::Cart(cart) if cart.state.as_str() == state));
    }
}

#[tokio::test]
async fn a_pause_beyond_the_deadline_ends_the_attempts() {
    let later = Scripted {
        retry_after: Some(600),
        ..problem(503, "unavailable")
    };
    let server = Server::start([later]).await;
    let new = NewOrder::new("vase", 1);
    let patient = RetryPolicy {
        deadline: Duration::from_secs(300),
        ..RetryPolicy::default()
    };
    let error = buyer(&server, patient).place(&new).await.unwrap_err();
    assert!(error.is_outcome_unknown());
    assert_eq!(
        (error.retry_after(), server.received().len()),
        (Some(600), 1)
    );
}
