//! A receiver of webhooks, which behaves as a fault wants.
//!
//! It speaks HTTP itself, because no server library drops a connection in the middle of a request.

use std::{
    fmt, io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use client::Webhook;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{Delivery, Inbox, Subscription};
use crate::env::RECEIVER_TIMEOUT;

const PATH: &str = "/hook";
/// Where a redirect leads. No event may arrive there.
const ELSEWHERE: &str = "/elsewhere";
const HEAD_END: &[u8] = b"\r\n\r\n";
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Answers 204.
    Accept,
    /// Answers with this status.
    Fail(u16),
    /// Redirects to another path of its own.
    Redirect,
    /// Never answers.
    Hang,
    /// Answers 204 after the publisher has stopped waiting, however late it notices the time.
    AnswerLate,
    /// Resets the connection before it has read the request.
    ResetUnread,
    /// Reads the request, and closes the connection.
    CloseUnanswered,
}

impl Behavior {
    /// Every behavior that accepts no event.
    pub const FAILING: [Self; 9] = [
        Self::Fail(500),
        Self::Fail(503),
        Self::Fail(429),
        Self::Fail(404),
        Self::Redirect,
        Self::Hang,
        Self::AnswerLate,
        Self::ResetUnread,
        Self::CloseUnanswered,
    ];
}

impl fmt::Display for Behavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accepts"),
            Self::Fail(status) => write!(f, "answers {status}"),
            Self::Redirect => f.write_str("redirects"),
            Self::Hang => f.write_str("hangs"),
            Self::AnswerLate => f.write_str("answers late"),
            Self::ResetUnread => f.write_str("resets connections"),
            Self::CloseUnanswered => f.write_str("closes connections"),
        }
    }
}

/// A receiver. Dropping it closes its port and its connections.
pub struct Receiver {
    /// Its name, for findings.
    pub name: String,
    url: String,
    kinds: Vec<String>,
    first: usize,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

struct Shared {
    /// Verifies the signatures, once the webhook exists.
    webhook: OnceLock<Webhook>,
    /// What it does with the next requests, in turn.
    behaviors: Mutex<Vec<Behavior>>,
    requests: AtomicUsize,
    inbox: Mutex<Inbox>,
}

impl Receiver {
    /// Listens on a free port, and accepts every event.
    pub(super) async fn start(name: String, kinds: &[&str]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            webhook: OnceLock::new(),
            behaviors: Mutex::new(vec![Behavior::Accept]),
            requests: AtomicUsize::new(0),
            inbox: Mutex::default(),
        });
        let listening = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Ok(Self {
            name,
            url,
            kinds: kinds.iter().map(ToString::to_string).collect(),
            first: 0,
            shared,
            listening,
        })
    }

    /// The URL of its webhook.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The kinds of events that it wants; none stands for all.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// Notes the secret of the webhook, and the position of its first event.
    pub(super) fn begin(&mut self, secret: &str, first: usize) -> Result<()> {
        let webhook = Webhook::new([secret]).context("the secret of a webhook")?;
        let _ = self.shared.webhook.set(webhook);
        self.first = first;
        Ok(())
    }

    /// Behaves in these ways from now on, a request each in turn.
    pub fn behave(&self, behaviors: Vec<Behavior>) {
        *locked(&self.shared.behaviors) = behaviors;
    }

    /// What it is to get, and what it has got.
    pub(super) fn subscription(&self) -> Subscription {
        Subscription {
            name: self.name.clone(),
            kinds: self.kinds.clone(),
            first: self.first,
            inbox: locked(&self.shared.inbox).clone(),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections are tasks of this future, so that they end with it.
async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((connection, _)) = listener.accept().await {
            connections.spawn(serve(connection, Arc::clone(&shared)));
        }
        while connections.try_join_next().is_some() {}
    }
}

struct Message {
    is_post: bool,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

async fn serve(mut connection: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut unread = Vec::new();
    while !unread.is_empty() || connection.read_buf(&mut unread).await? > 0 {
        let behavior = shared.next_behavior();
        if behavior == Behavior::ResetUnread {
            return connection.set_zero_linger();
        }
        let Some(message) = read(&mut connection, &mut unread).await? else {
            return Ok(());
        };
        // Before the answer: the next event may come before this task goes on.
        let delivery = shared.delivery(&message);
        locked(&shared.inbox).add(delivery, behavior == Behavior::Accept);
        match behavior {
            Behavior::Accept => respond(&mut connection, 204, "").await?,
            Behavior::Fail(status) => respond(&mut connection, status, "").await?,
            Behavior::Redirect => {
                respond(&mut connection, 307, &format!("location: {ELSEWHERE}\r\n")).await?;
            }
            Behavior::Hang => return until_closed(&mut connection).await,
            Behavior::AnswerLate => {
                sleep(RECEIVER_TIMEOUT.mul_f32(1.3)).await;
                until_closed(&mut connection).await?;
                respond(&mut connection, 204, "").await?;
            }
            Behavior::ResetUnread | Behavior::CloseUnanswered => return Ok(()),
        }
    }
    Ok(())
}

impl Shared {
    fn next_behavior(&self) -> Behavior {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let behaviors = locked(&self.behaviors);
        let next = behaviors.get(number % behaviors.len().max(1));
        next.copied().unwrap_or(Behavior::Accept)
    }

    /// Reads and verifies a message.
    fn delivery(&self, message: &Message) -> Delivery {
        let id = message.headers.get("webhook-id");
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
        let mut delivery = Delivery::new(id, &message.body);
        if delivery.defect.is_some() {
            return delivery;
        }
        delivery.defect = match self.webhook.get() {
            _ if !message.is_post || message.path != PATH => {
                Some(format!("it came to {}", message.path))
            }
            None => Some("it came before the webhook was created".into()),
            Some(webhook) => {
                let verified = webhook.verify(&message.headers, &message.body);
                verified.err().map(|error| error.to_string())
            }
        };
        delivery
    }
}

/// One request. `None`: the connection ended before its end.
async fn read(connection: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Option<Message>> {
    let head_bytes = loop {
        let end = unread
            .windows(HEAD_END.len())
            .position(|part| part == HEAD_END);
        if let Some(end) = end {
            break end + HEAD_END.len();
        }
        if unread.len() > HEAD_BYTES_MAX || connection.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&unread[..head_bytes]).into_owned();
    let mut lines = head.lines();
    let request = lines.next().unwrap_or_default();
    let headers: HeaderMap = lines.filter_map(header).collect();
    let length = headers.get("content-length");
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let message_bytes = head_bytes + length.unwrap_or(0);
    while unread.len() < message_bytes {
        if connection.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
    let message = unread.drain(..message_bytes).collect::<Vec<_>>();
    Ok(Some(Message {
        is_post: request.starts_with("POST "),
        path: request.split(' ').nth(1).unwrap_or_default().to_owned(),
        headers,
        body: message[head_bytes..].to_vec(),
    }))
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.parse().ok()?, value.trim().parse().ok()?))
}

async fn respond(connection: &mut TcpStream, status: u16, headers: &str) -> io::Result<()> {
    let length = if status == 204 {
        ""
    } else {
        "content-length: 0\r\n"
    };
    let answer = format!("HTTP/1.1 {status} Answer\r\n{length}{headers}\r\n");
    connection.write_all(answer.as_bytes()).await
}

async fn until_closed(connection: &mut TcpStream) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while connection.read(&mut ignored).await? > 0 {}
    Ok(())
}
