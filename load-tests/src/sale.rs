//! The sale under way: what every buyer shares, and how a request is made.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use reqwest::{
    Body, Client, Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use tokio::time::sleep;

use crate::{
    answer::{Answer, Expected},
    budget::Budget,
    cli::Options,
    crowd::Crowd,
    tally::Tally,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: &str = "idempotent-replayed";

/// How long an unknown outcome is asked for again, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(250);

/// What every buyer shares.
pub struct Sale {
    /// The item.
    pub item: String,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Requests that may still be made.
    pub budget: Budget,
    /// Who buys.
    pub crowd: Crowd,
    /// The status of an acknowledged order.
    status: u16,
    /// An order request without its buyer.
    request: Request,
    tally: Mutex<Tally>,
    began: OnceLock<Instant>,
}

/// An order request: all that tells it from others.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Who asks.
    pub buyer: usize,
    /// Which of the buyer's orders.
    pub key: HeaderValue,
    /// Units.
    pub quantity: u32,
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
    /// A sale of `item` that begins when `begin` is called.
    pub fn new(host: &str, item: String, crowd: Crowd, options: &Options) -> Result<Self> {
        let mut request = Request::new(Method::POST, Url::parse(&format!("{host}/items/{item}/orders"))?);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self {
            item,
            limit: options.limit,
            budget: Budget::new(options.requests),
            crowd,
            status: options.durability.status(),
            request,
            tally: Mutex::new(Tally::new()?),
            began: OnceLock::new(),
        })
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
                return Settled { unknown, last: attempt, took: started.elapsed() };
            }
            unknown.push(attempt);
            sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, client: &Client, asked: &Asked) -> Attempt {
        let started = Instant::now();
        let mut status = None;
        let answer = match self.send(client, asked, &mut status).await {
            Ok(answer) => answer,
            Err(error) => Answer::Unknown(transport(&error).into()),
        };
        Attempt { took: started.elapsed(), status, answer }
    }

    async fn send(&self, client: &Client, asked: &Asked, status: &mut Option<u16>) -> Result<Answer, reqwest::Error> {
        let response = client.execute(self.request(asked)).await?;
        let code = *status.insert(response.status().as_u16());
        let replayed = response.headers().get(REPLAYED).is_some_and(|value| value == "true");
        let body = response.bytes().await?;
        Ok(Answer::read(code, replayed, &body, Expected { status: self.status, item: &self.item, quantity: asked.quantity }))
    }

    fn request(&self, asked: &Asked) -> Request {
        let mut request = Request::new(Method::POST, self.request.url().clone());
        request.headers_mut().clone_from(self.request.headers());
        request.headers_mut().insert(AUTHORIZATION, self.crowd.authorization(asked.buyer));
        request.headers_mut().insert(IDEMPOTENCY_KEY, asked.key.clone());
        *request.body_mut() = Some(body(asked.quantity));
        request
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
