//! The service as its clients see it: requests, and what their answers mean.
//!
//! What a reader could get wrong: no answer, and an answer that says that the outcome is unknown, are not refusals. Whoever needs to know
//! asks again with the same key, at any instance.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use aws_lc_rs::hmac;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::{Client, Method, RequestBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// How long an answer is waited for before the same is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const AGAIN_AFTER: Duration = Duration::from_millis(40);

/// Where an order stands, in the words of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its units wait for a payment.
    Held,
    /// It is paid.
    Confirmed,
    /// Its buyer did not want it any more.
    Cancelled,
    /// Its hold was over.
    Expired,
    /// It was paid after that, and no units were left.
    RefundDue,
    /// The money went back.
    Refunded,
    /// The ledger could not cover it.
    Rejected,
}

/// An order, as an answer shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Order {
    /// Its name.
    pub id: Uuid,
    /// How many units.
    pub quantity: u32,
    /// Where it stands.
    pub state: State,
}

/// What an answer means.
#[derive(Clone, Debug)]
pub enum Reply<T> {
    /// It is so.
    Done(T),
    /// It is not, and asking again changes nothing.
    Refused {
        /// The status.
        status: u16,
        /// Why, in one word.
        code: String,
        /// The state of the order or item, where that is why.
        state: Option<String>,
    },
    /// Nobody knows.
    Unknown(String),
}

/// A buyer, and what proves it.
#[derive(Clone, Debug)]
pub struct Buyer {
    /// The name.
    pub name: String,
    token: String,
}

/// The secrets of a service.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// What buyers' tokens are signed with.
    pub jwt: String,
    /// What admins present.
    pub admin: String,
    /// What payments are signed with.
    pub payment: String,
}

/// A service with any number of instances.
#[derive(Debug)]
pub struct Shop {
    client: Client,
    hosts: Vec<String>,
    next: AtomicUsize,
    secrets: Secrets,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    state: Option<String>,
}

/// What an audit says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Audit {
    /// Nothing is wrong.
    pub ok: bool,
    /// Units that exist.
    pub stock: u64,
    /// Units that nobody has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
    /// Units between segments.
    pub in_transit: u64,
    /// Units on their way to the ledger.
    pub in_flight: u64,
    /// Units that the identity does not explain.
    pub drift: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
    /// Everything, as it was said.
    #[serde(skip)]
    pub text: String,
}

impl Audit {
    /// Whether it comes out and nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.ok
            && self.held == 0
            && self.returning == 0
            && self.in_transit == 0
            && self.in_flight == 0
    }
}

impl Shop {
    /// The service at these hosts.
    pub fn new(hosts: Vec<String>, secrets: Secrets) -> Result<Arc<Self>> {
        let client = Client::builder()
            .timeout(ANSWER_WITHIN)
            .connect_timeout(Duration::from_secs(1))
            .build()?;
        Ok(Arc::new(Self {
            client,
            hosts,
            next: AtomicUsize::new(0),
            secrets,
        }))
    }

    /// A buyer with this name.
    pub fn buyer(&self, name: impl Into<String>) -> Result<Buyer> {
        let name = name.into();
        let claims = json!({ "sub": name, "exp": Timestamp::now().as_second() + 24 * 3600 });
        let key = EncodingKey::from_secret(self.secrets.jwt.as_bytes());
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)?;
        Ok(Buyer { name, token })
    }

    /// Places an order.
    pub async fn place(&self, buyer: &Buyer, item: &str, key: &str, quantity: u32) -> Reply<Order> {
        let request = self
            .request(Method::POST, &format!("/items/{item}/orders"))
            .bearer_auth(&buyer.token);
        read(
            request
                .header("Idempotency-Key", key)
                .json(&json!({ "quantity": quantity })),
        )
        .await
    }

    /// Reports a payment, as the provider does.
    pub async fn pay(&self, order: Uuid, payment: &str) -> Reply<Order> {
        let body = json!({ "payment": payment }).to_string();
        let time = Timestamp::now().as_second();
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secrets.payment.as_bytes());
        let tag = hmac::sign(&key, format!("{time}.{body}").as_bytes());
        let tag: String = tag
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let request = self.request(Method::POST, &format!("/orders/{order}/payment"));
        let request = request
            .header("Stockade-Signature", format!("t={time},v1={tag}"))
            .header("Content-Type", "application/json");
        read(request.body(body)).await
    }

    /// Cancels an order.
    pub async fn cancel(&self, buyer: &Buyer, order: Uuid) -> Reply<Order> {
        read(
            self.request(Method::DELETE, &format!("/orders/{order}"))
                .bearer_auth(&buyer.token),
        )
        .await
    }

    /// Notes that the money went back.
    pub async fn refund(&self, order: Uuid) -> Reply<Order> {
        read(self.admin(Method::POST, &format!("/orders/{order}/refund"))).await
    }

    /// Opens an item.
    pub async fn create(&self, item: &Value) -> Reply<Value> {
        read(self.admin(Method::POST, "/items").json(item)).await
    }

    /// Adds units, or takes some back.
    pub async fn move_stock(&self, item: &str, key: &str, wish: &Value) -> Reply<Value> {
        read(
            self.admin(Method::POST, &format!("/items/{item}/stock"))
                .header("Idempotency-Key", key)
                .json(wish),
        )
        .await
    }

    /// The audit of an item.
    pub async fn audit(&self, item: &str) -> Reply<Audit> {
        let reply: Reply<Value> =
            read(self.admin(Method::GET, &format!("/items/{item}/audit"))).await;
        reply.and_then(|value| {
            let text = value.to_string();
            serde_json::from_value(value).map(|audit| Audit { text, ..audit })
        })
    }

    /// Whether every instance says that it is ready.
    pub async fn is_ready(&self) -> bool {
        for host in &self.hosts {
            if !self
                .client
                .get(format!("{host}/readyz"))
                .send()
                .await
                .is_ok_and(|response| response.status().is_success())
            {
                return false;
            }
        }
        true
    }

    fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).bearer_auth(&self.secrets.admin)
    }

    /// Each request goes to the next instance, so a repeat never asks the same one first.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let host = &self.hosts[self.next.fetch_add(1, Ordering::Relaxed) % self.hosts.len()];
        self.client.request(method, format!("{host}{path}"))
    }
}

impl<T> Reply<T> {
    fn and_then<U>(self, read: impl FnOnce(T) -> serde_json::Result<U>) -> Reply<U> {
        match self {
            Self::Done(value) => match read(value) {
                Ok(value) => Reply::Done(value),
                Err(error) => Reply::Refused {
                    status: 200,
                    code: format!("not what the API promises: {error}"),
                    state: None,
                },
            },
            Self::Refused {
                status,
                code,
                state,
            } => Reply::Refused {
                status,
                code,
                state,
            },
            Self::Unknown(why) => Reply::Unknown(why),
        }
    }

    /// What was asked for, or an error that says what came instead.
    pub fn done(self, what: &str) -> Result<T> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Refused {
                status,
                code,
                state,
            } => Err(anyhow::anyhow!(
                "{status} {code} {}",
                state.unwrap_or_default()
            ))
            .context(what.to_owned()),
            Self::Unknown(why) => Err(anyhow::anyhow!(why)).context(what.to_owned()),
        }
    }
}

async fn read<T: serde::de::DeserializeOwned>(request: RequestBuilder) -> Reply<T> {
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Reply::Unknown(format!("no answer: {error}")),
    };
    let status = response.status().as_u16();
    let Ok(body) = response.bytes().await else {
        return Reply::Unknown(format!("{status}, and no body"));
    };
    match status {
        200..=299 => Reply::Done(()).and_then(|()| serde_json::from_slice(&body)),
        _ => {
            let problem = serde_json::from_slice(&body).unwrap_or(Problem {
                code: "no problem+json".into(),
                state: None,
            });
            match status {
                408 | 502..=504 => Reply::Unknown(format!("{status} {}", problem.code)),
                _ => Reply::Refused {
                    status,
                    code: problem.code,
                    state: problem.state,
                },
            }
        }
    }
}

/// Asks until somebody answers or `until` is over; the last reply.
pub async fn insist<T, F: Future<Output = Reply<T>>>(
    until: Instant,
    ask: impl Fn() -> F,
) -> Reply<T> {
    loop {
        let reply = ask().await;
        if !matches!(reply, Reply::Unknown(_)) || Instant::now() > until {
            return reply;
        }
        sleep(AGAIN_AFTER).await;
    }
}
