//! The sale under way: what every buyer shares, and how a request is made.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use reqwest::{
    Body, Client, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    answer::{Answer, Expected},
    budget::Budget,
    cli::Options,
    crowd::{Crowd, Guest},
    items::Items,
    signature::Provider,
    tally::Tally,
    target::Target,
    wish::{Asked, Placed, Wish},
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SIGNATURE: HeaderName = HeaderName::from_static("stockade-signature");
const REPLAYED: &str = "idempotent-replayed";

/// How long an unknown outcome is asked for again, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(250);

/// What every buyer shares.
pub struct Sale {
    /// What is sold.
    pub items: Items,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Requests that may still be made.
    pub budget: Budget,
    /// Who buys.
    pub crowd: Crowd,
    host: String,
    /// The status of an acknowledged order.
    status: u16,
    admin: HeaderValue,
    /// Who reports payments, if somebody pays.
    provider: Option<Provider>,
    tally: Mutex<Tally>,
    began: OnceLock<Instant>,
}

/// One attempt to make a request.
#[derive(Debug)]
pub struct Attempt {
    /// From the first byte out to the last byte in.
    pub took: Duration,
    /// The status, if there was an answer.
    pub status: Option<u16>,
    /// What it says.
    pub answer: Answer,
}

/// A request that was answered for good, or given up.
#[derive(Debug)]
pub struct Settled {
    /// Every attempt but the last: their outcomes were unknown.
    pub unknown: Vec<Attempt>,
    /// The last.
    pub last: Attempt,
    /// All of them together.
    pub took: Duration,
}

impl Sale {
    /// A sale that begins when `begin` is called.
    pub fn new(target: &Target, items: Items, crowd: Crowd, options: &Options) -> Result<Self> {
        Ok(Self {
            items,
            limit: options.limit,
            budget: Budget::new(options.requests()),
            crowd,
            host: target.host.clone(),
            status: options.durability.status(),
            admin: HeaderValue::try_from(format!("Bearer {}", target.admin_token))
                .context("the admin token is not a header's value")?,
            provider: target.payment_secret.as_deref().map(Provider::new),
            tally: Mutex::new(Tally::new()?),
            began: OnceLock::new(),
        })
    }

    /// Who comes next.
    pub fn next_guest(&self) -> Guest {
        self.crowd.next(&self.items)
    }

    /// Starts the clock.
    pub fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// How long the sale has been going on.
    pub fn elapsed(&self) -> Duration {
        self.began.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// The books.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the request until its outcome is known.
    pub async fn ask(&self, client: &Client, asked: &Asked) -> Settled {
        let started = Instant::now();
        let mut unknown = Vec::new();
        loop {
            let attempt = self.attempt(client, asked).await;
            if !matches!(attempt.answer, Answer::Unknown(_)) || started.elapsed() > PATIENCE {
                return Settled {
                    unknown,
                    last: attempt,
                    took: started.elapsed(),
                };
            }
            unknown.push(attempt);
            sleep(PAUSE).await;
        }
    }

    /// Makes the request once, and waits no longer than `patience` for the answer.
    pub async fn ask_once(&self, client: &Client, asked: &Asked, patience: Duration) -> Attempt {
        match tokio::time::timeout(patience, self.attempt(client, asked)).await {
            Ok(attempt) => attempt,
            // The request is dropped, and its connection with it.
            Err(_) => Attempt {
                took: patience,
                status: None,
                answer: Answer::GivenUp,
            },
        }
    }

    /// Makes the request once, and waits as long as the client does.
    pub async fn attempt(&self, client: &Client, asked: &Asked) -> Attempt {
        let started = Instant::now();
        let mut status = None;
        let answer = match self.request(asked) {
            Ok(request) => match self.send(client, request, asked, &mut status).await {
                Ok(answer) => answer,
                Err(error) => Answer::Unknown(transport(&error).into()),
            },
            Err(error) => Answer::Wrong(format!("the request could not be made: {error}")),
        };
        Attempt {
            took: started.elapsed(),
            status,
            answer,
        }
    }

    async fn send(
        &self,
        client: &Client,
        request: Request,
        asked: &Asked,
        status: &mut Option<u16>,
    ) -> Result<Answer, reqwest::Error> {
        let response = client.execute(request).await?;
        let code = *status.insert(response.status().as_u16());
        let replayed = response
            .headers()
            .get(REPLAYED)
            .is_some_and(|value| value == "true");
        let body = response.bytes().await?;
        let item = self.items.get(asked.item);
        Ok(Answer::read(
            code,
            replayed,
            &body,
            Expected {
                wish: &asked.wish,
                status: self.status,
                item: &item.id,
                stock: item.stock,
            },
        ))
    }

    fn request(&self, asked: &Asked) -> Result<Request> {
        let mut request = Request::new(asked.wish.method(), self.url(asked)?);
        let mut set = |name, value| drop(request.headers_mut().insert(name, value));
        match &asked.wish {
            // Whoever passes may look at an item, and the provider's signature says who it is.
            Wish::Browse | Wish::Pay { .. } => {}
            Wish::Refund(_) => set(AUTHORIZATION, self.admin.clone()),
            Wish::Order { .. } | Wish::Show(_) | Wish::Cancel(_) => {
                set(AUTHORIZATION, self.crowd.authorization(asked.buyer)?)
            }
        }
        match &asked.wish {
            Wish::Order { key, quantity } => {
                set(IDEMPOTENCY_KEY, key.clone());
                set(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                *request.body_mut() = Some(body(*quantity));
            }
            Wish::Pay { order, payment } => {
                let text = json!({ "payment": payment, "order": order.id }).to_string();
                let provider = self
                    .provider
                    .as_ref()
                    .context("nobody told the payment secret")?;
                set(SIGNATURE, HeaderValue::try_from(provider.sign(&text))?);
                set(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                *request.body_mut() = Some(Body::from(text));
            }
            _ => {}
        }
        Ok(request)
    }

    fn url(&self, asked: &Asked) -> Result<Url> {
        let of = |order: &Placed, rest: &str| {
            Ok(Url::parse(&format!(
                "{}/orders/{}{rest}",
                self.host, order.id
            ))?)
        };
        match &asked.wish {
            Wish::Order { .. } => Ok(self.items.get(asked.item).counter.clone()),
            Wish::Browse => Ok(self.items.get(asked.item).page.clone()),
            Wish::Show(order) | Wish::Cancel(order) => of(order, ""),
            Wish::Pay { order, .. } => of(order, "/payment"),
            Wish::Refund(order) => of(order, "/refund"),
        }
    }
}

fn body(quantity: u32) -> Body {
    match quantity {
        1 => Body::from(r#"{"quantity":1}"#),
        2 => Body::from(r#"{"quantity":2}"#),
        _ => Body::from(format!(r#"{{"quantity":{quantity}}}"#)),
    }
}

/// In words that do not differ from request to request.
fn transport(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    }
}
