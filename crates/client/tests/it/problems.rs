//! How responses that are no success are read, and successes that cannot be trusted.

use client::{Client, Error, NewOrder, Problem, ProblemCode, RetryPolicy, Token};
use uuid::Uuid;

use crate::server::{ID, Scripted, Server, order, problem};

async fn place(response: Scripted) -> Result<client::Placed, Error> {
    let server = Server::start([response]).await;
    let client = Client::new(&server.url)
        .unwrap()
        .with_retry(RetryPolicy::never());
    let buyer = client.buyer(Token::bearer("a.b.c").unwrap());
    buyer.place(&NewOrder::new("vase", 1)).await
}

async fn refusal(response: Scripted) -> Problem {
    match place(response).await.unwrap_err() {
        Error::Refused(problem) => *problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_problem_names_the_field_and_the_reason() {
    let body = r#"{"type":"about:blank","title":"Bad Request","status":400,"code":"invalid_request","detail":"quantity: expected 1","field":"quantity"}"#;
    let problem = refusal(Scripted::new(400, body)).await;
    assert_eq!(problem.status, 400);
    assert_eq!(problem.code, ProblemCode::InvalidRequest);
    assert_eq!(problem.field.as_deref(), Some("quantity"));
    assert_eq!(
        problem.to_string(),
        "400 invalid_request: quantity: expected 1"
    );
}

#[tokio::test]
async fn not_open_names_the_state_and_the_beginning() {
    let body =
        r#"{"code":"not_open","detail":"...","state":"open","opens_at":"2026-01-01T00:00:00Z"}"#;
    let problem = refusal(Scripted::new(409, body)).await;
    assert_eq!(problem.code, ProblemCode::NotOpen);
    assert_eq!(problem.state.as_deref(), Some("open"));
    assert_eq!(problem.opens_at.unwrap().as_second(), 1_767_225_600);
    let without = r#"{"code":"not_open","detail":"...","state":"paused","opens_at":null}"#;
    assert_eq!(refusal(Scripted::new(409, without)).await.opens_at, None);
}

#[tokio::test]
async fn an_unlisted_code_and_a_body_without_problem_are_distinguished() {
    let problem = refusal(problem(409, "out_of_luck")).await;
    assert_eq!(problem.code, ProblemCode::Other("out_of_luck".into()));
    assert_eq!(problem.code.as_str(), "out_of_luck");
    let problem = refusal(Scripted::new(404, "<html>")).await;
    assert_eq!(problem.code, ProblemCode::Missing);
    assert_eq!(problem.to_string(), "404 no problem+json");
}

#[tokio::test]
async fn an_unknown_outcome_keeps_its_problem_and_its_retry_after() {
    let response = Scripted {
        retry_after: Some(7),
        ..problem(503, "outcome_unknown")
    };
    let error = place(response).await.unwrap_err();
    assert!(error.is_outcome_unknown());
    assert_eq!(error.retry_after(), Some(7));
    let code = &error.problem().unwrap().code;
    assert_eq!(code, &ProblemCode::OutcomeUnknown);
}

#[tokio::test]
async fn a_success_about_another_order_violates_the_contract() {
    let held = order(201, "held");
    let wrong = [
        held.body.replace("vase", "jar"),
        held.body.replace(":1,", ":2,"),
        held.body.replace("held", "stolen"),
        String::new(),
    ];
    for body in wrong {
        let result = place(Scripted::new(201, &body)).await;
        assert!(
            matches!(result, Err(Error::Contract { status: 201, .. })),
            "{body}: {result:?}"
        );
    }
}

#[tokio::test]
async fn an_order_is_read_only_if_it_is_the_one_that_was_requested() {
    let server = Server::start([order(200, "confirmed")]).await;
    let client = Client::new(&server.url).unwrap();
    let buyer = client.buyer(Token::bearer("a.b.c").unwrap());
    let id: Uuid = ID.parse().unwrap();
    assert_eq!(buyer.order(id).await.unwrap().id, id);
    let other = buyer.order(Uuid::from_u128(7)).await.unwrap_err();
    assert!(
        matches!(other, Error::Contract { status: 200, .. }),
        "{other:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_sent_is_named_before_it_is_sent() {
    let client = Client::new("not an address").unwrap();
    let error = client.item("vase").await.unwrap_err();
    assert!(
        error.to_string().starts_with("url: expected an address"),
        "{error}"
    );
    let none = Client::builder(Vec::<String>::new()).build().unwrap_err();
    assert!(none.to_string().starts_with("urls: expected"), "{none}");
    assert!(Token::bearer("a\nb").is_err());
}

#[tokio::test]
async fn an_audit_without_drift_is_not_an_audit_with_drift_0() {
    let server = Server::start([Scripted::new(200, r#"{"item":"vase","stock":1,"ok":true}"#)]);
    let client = Client::new(&server.await.url).unwrap();
    let admin = client.admin(Token::bearer("admin").unwrap());
    let error = admin.audit("vase").await.unwrap_err();
    assert!(matches!(error, Error::Contract { .. }), "{error:?}");
}
