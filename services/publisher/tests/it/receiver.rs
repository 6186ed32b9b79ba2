//! A receiver of webhooks that checks signatures, and behaves as a test wants.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use ring::hmac;
use serde_json::Value;
use tokio::net::TcpListener;
use uuid::Uuid;

/// What the receiver does with a request.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Answers with this status.
    Answer(u16),
    /// Answers 204 after this time.
    Late(Duration),
    /// Redirects to this URL.
    Redirect(String),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub id: String,
    pub event: Value,
    /// Whether it was accepted.
    pub accepted: bool,
}

impl Received {
    pub fn kind(&self) -> &str {
        self.event["type"].as_str().unwrap()
    }

    pub fn item(&self) -> &str {
        self.event["subject"].as_str().unwrap()
    }
}

#[derive(Clone)]
pub struct Receiver {
    pub url: String,
    pub secret: String,
    /// Seconds since 1970. No request is older.
    started: i64,
    state: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    received: Vec<Received>,
    /// Of the next requests; those after them are accepted.
    behaviour: VecDeque<Behaviour>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secret = format!(
            "whsec_{}",
            BASE64_STANDARD.encode(Uuid::new_v4().as_bytes())
        );
        let receiver = Self {
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
            secret,
            started: Timestamp::now().as_second(),
            state: Arc::default(),
        };
        let router = Router::new()
            .route("/hook", post(receive))
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    /// Sets the behaviour of the next requests.
    pub fn then(&self, behaviour: impl IntoIterator<Item = Behaviour>) {
        self.state.lock().unwrap().behaviour.extend(behaviour);
    }

    /// Accepts requests from now on.
    pub fn forget_behaviour(&self) {
        self.state.lock().unwrap().behaviour.clear();
    }

    /// All requests, in order.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// The accepted events, in order, without repeats.
    pub fn accepted(&self) -> Vec<Received> {
        let mut accepted: Vec<Received> = Vec::new();
        for one in self.received().into_iter().filter(|one| one.accepted) {
            if accepted.iter().all(|known| known.id != one.id) {
                accepted.push(one);
            }
        }
        accepted
    }

    fn check(&self, headers: &HeaderMap, body: &[u8]) -> String {
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let (id, time) = (text("webhook-id"), text("webhook-timestamp"));
        let sent: i64 = time.parse().unwrap();
        let now = Timestamp::now().as_second();
        assert!((self.started..=now).contains(&sent), "{sent}");
        let key = BASE64_STANDARD
            .decode(self.secret.strip_prefix("whsec_").unwrap())
            .unwrap();
        let signature = text("webhook-signature");
        let signature = BASE64_STANDARD
            .decode(signature.strip_prefix("v1,").unwrap())
            .unwrap();
        let signed = [format!("{id}.{time}.").as_bytes(), body].concat();
        hmac::verify(
            &hmac::Key::new(hmac::HMAC_SHA256, &key),
            &signed,
            &signature,
        )
        .unwrap();
        id
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap) {
    let id = receiver.check(&headers, &body);
    let event: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(event["id"], id);
    let behaviour = {
        let mut state = receiver.state.lock().unwrap();
        let behaviour = state
            .behaviour
            .pop_front()
            .unwrap_or(Behaviour::Answer(204));
        let accepted = matches!(behaviour, Behaviour::Answer(200..=299) | Behaviour::Late(_));
        state.received.push(Received {
            id,
            event,
            accepted,
        });
        behaviour
    };
    let mut headers = HeaderMap::new();
    let status = match behaviour {
        Behaviour::Answer(status) => status,
        Behaviour::Late(after) => {
            tokio::time::sleep(after).await;
            204
        }
        Behaviour::Redirect(to) => {
            headers.insert(header::LOCATION, to.parse().unwrap());
            307
        }
    };
    (StatusCode::from_u16(status).unwrap(), headers)
}
