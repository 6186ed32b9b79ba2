//! A server that answers from a script and records every request.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{
        HeaderMap, Method, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use client::RetryPolicy;
use tokio::net::TcpListener;

/// Long enough for several attempts on a busy machine, and short enough to wait for.
pub fn brief() -> RetryPolicy {
    RetryPolicy::every(Duration::from_millis(100), Duration::from_secs(5))
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: Method,
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: String,
}

/// A response to send.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
    pub retry_after: Option<u64>,
    pub replayed: bool,
    pub etag: Option<&'static str>,
}

/// The server. Its last scripted response answers all further requests.
#[derive(Clone, Debug)]
pub struct Server {
    pub url: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    script: VecDeque<Scripted>,
    received: Vec<Received>,
}

impl Scripted {
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        let content_type = match status {
            400.. => "application/problem+json",
            _ => "application/json",
        };
        Self {
            status,
            content_type,
            body: body.into(),
            ..Self::default()
        }
    }

    /// What a gateway answers that has codes of its own.
    pub fn of_gateway(status: u16, code: &str) -> Self {
        Self {
            content_type: "application/json; charset=utf-8",
            ..problem(status, code)
        }
    }
}

impl Server {
    pub async fn start(script: impl IntoIterator<Item = Scripted>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared {
            script: script.into_iter().collect(),
            received: Vec::new(),
        }));
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        drop(tokio::spawn(
            async move { axum::serve(listener, router).await },
        ));
        Self { url, shared }
    }

    /// All requests so far, the first one first.
    pub fn received(&self) -> Vec<Received> {
        self.shared.lock().unwrap().received.clone()
    }
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn answer(State(shared): State<Arc<Mutex<Shared>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut shared = shared.lock().unwrap();
    shared.received.push(Received {
        method: parts.method,
        path: parts.uri.path().into(),
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers,
        body: String::from_utf8(body.into()).unwrap(),
    });
    let last = shared.script.len() == 1;
    let scripted = if last {
        shared.script.front().cloned()
    } else {
        shared.script.pop_front()
    };
    respond(scripted.unwrap())
}

fn respond(scripted: Scripted) -> Response {
    let status = StatusCode::from_u16(scripted.status).unwrap();
    let mut response = (status, Body::from(scripted.body)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, scripted.content_type.parse().unwrap());
    if let Some(seconds) = scripted.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if scripted.replayed {
        headers.insert("idempotent-replayed", "true".parse().unwrap());
    }
    if let Some(etag) = scripted.etag {
        headers.insert("etag", etag.parse().unwrap());
    }
    response
}

/// The response of an order of one `vase`, in this state.
pub fn order(status: u16, state: &str) -> Scripted {
    let body = format!(
        r#"{{"id":"{ID}","item":"vase","quantity":1,"state":"{state}","expires_at":"2026-01-01T00:00:00Z"}}"#
    );
    Scripted::new(status, body)
}

/// The id of every scripted order.
pub const ID: &str = "0190a0b0-0000-8000-8000-000000000001";

pub fn problem(status: u16, code: &str) -> Scripted {
    let body = format!(
        r#"{{"type":"about:blank","title":"...","status":{status},"code":"{code}","detail":"why"}}"#
    );
    Scripted::new(status, body)
}
