//! How buyers and the payment provider reach an engine. What a reader could get wrong: no answer is not a refusal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use aws_lc_rs::hmac;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{ADMIN_TOKEN, JWT_SECRET, LOOK_EVERY, PAYMENT_SECRET};

/// The engine's own bound on a buyer's request is five seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Where an engine is reached. It can be handed to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counter {
    url: String,
}

/// What an order was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The buyer has it.
    Placed,
    /// Nothing is left, or not for this buyer.
    Refused,
    /// Nobody knows yet: the same key will tell.
    Unknown,
}

/// The same, with the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ordered {
    /// The buyer has it; the id of the order.
    Placed(String),
    /// Nothing is left, or not for this buyer.
    Refused,
    /// Nobody knows yet: the same key will tell.
    Unknown,
}

/// What an audit says, in units.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Audit {
    /// That nobody has.
    pub available: u64,
    /// Of orders that wait for a payment.
    pub held: u64,
    /// Of paid orders.
    pub confirmed: u64,
    /// Of orders that have ended, on their way back.
    pub returning: u64,
    /// On their way from one segment to another.
    pub in_transit: u64,
    /// Taken, and on their way to the ledger.
    pub in_flight: u64,
    /// That the identity does not explain.
    pub drift: u64,
}

impl Audit {
    /// Units that buyers have, as the ledger knows.
    pub fn promised(&self) -> u64 {
        self.held + self.confirmed
    }
}

impl Counter {
    /// The one at this address, which may be a proxy's.
    pub fn at(url: String) -> Self {
        Self { url }
    }

    /// The port on this machine.
    pub fn port(&self) -> Result<u16> {
        let port = self
            .url
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        port.with_context(|| format!("{} has a port", self.url))
    }

    pub(super) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Buys a unit, under a key that makes every repeat the same order.
    pub async fn buy(&self, client: &Client, item: &str, buyer: &str, key: &str) -> Result<Answer> {
        Ok(match self.order(client, item, buyer, key).await? {
            Ordered::Placed(_) => Answer::Placed,
            Ordered::Refused => Answer::Refused,
            Ordered::Unknown => Answer::Unknown,
        })
    }

    /// The same; and which order it is.
    pub async fn order(
        &self,
        client: &Client,
        item: &str,
        buyer: &str,
        key: &str,
    ) -> Result<Ordered> {
        read(self.request_order(client, item, buyer, key)?).await
    }

    /// The same, answered as soon as the units are taken, without waiting for the ledger.
    pub async fn order_soon(
        &self,
        client: &Client,
        item: &str,
        buyer: &str,
        key: &str,
    ) -> Result<Ordered> {
        read(
            self.request_order(client, item, buyer, key)?
                .header("Prefer", "respond-async"),
        )
        .await
    }

    /// The same, until there is an answer: the order, if the buyer has it.
    pub async fn insist(
        &self,
        client: &Client,
        item: &str,
        buyer: &str,
        key: &str,
    ) -> Result<Option<String>> {
        loop {
            match self.order(client, item, buyer, key).await? {
                Ordered::Placed(order) => return Ok(Some(order)),
                Ordered::Refused => return Ok(None),
                Ordered::Unknown => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Cancels an order. Its units go back.
    pub async fn cancel(&self, client: &Client, order: &str) -> Result<()> {
        let request = client
            .delete(self.address(&format!("/orders/{order}")))
            .bearer_auth(ADMIN_TOKEN);
        request
            .timeout(ANSWER_WITHIN)
            .send()
            .await?
            .error_for_status()
            .context("the order is cancelled")?;
        Ok(())
    }

    /// Where an order stands.
    pub async fn state(&self, client: &Client, order: &str) -> Result<String> {
        let request = client
            .get(self.address(&format!("/orders/{order}")))
            .bearer_auth(ADMIN_TOKEN);
        state(
            &request
                .timeout(ANSWER_WITHIN)
                .send()
                .await?
                .error_for_status()?
                .json()
                .await?,
        )
    }

    /// Reports a payment as the provider does; where the order stands then.
    pub async fn pay(&self, client: &Client, order: &str, payment: &str) -> Result<String> {
        let body = json!({ "payment": payment }).to_string();
        let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let request = client.request(
            Method::POST,
            self.address(&format!("/orders/{order}/payment")),
        );
        let request = request.header(
            "Stockade-Signature",
            format!("t={time},v1={}", sign(&format!("{time}.{body}"))),
        );
        let answer = request
            .header("Content-Type", "application/json")
            .body(body)
            .send()
            .await?;
        state(
            &answer
                .error_for_status()
                .context("the payment is taken in")?
                .json()
                .await?,
        )
    }

    fn request_order(
        &self,
        client: &Client,
        item: &str,
        buyer: &str,
        key: &str,
    ) -> Result<RequestBuilder> {
        let request = client
            .post(self.address(&format!("/items/{item}/orders")))
            .bearer_auth(token(buyer)?)
            .header("Idempotency-Key", key);
        Ok(request
            .timeout(ANSWER_WITHIN)
            .json(&json!({ "quantity": 1 })))
    }
}

async fn read(request: RequestBuilder) -> Result<Ordered> {
    let Ok(answer) = request.send().await else {
        return Ok(Ordered::Unknown);
    };
    match answer.status() {
        status if status.is_success() => {
            let order: Value = answer.json().await?;
            Ok(Ordered::Placed(
                order["id"]
                    .as_str()
                    .context("an order has an id")?
                    .to_owned(),
            ))
        }
        StatusCode::CONFLICT => Ok(Ordered::Refused),
        status if status.is_server_error() => Ok(Ordered::Unknown),
        status => bail!("the engine answered {status}"),
    }
}

fn state(order: &Value) -> Result<String> {
    Ok(order["state"]
        .as_str()
        .with_context(|| format!("an order has a state: {order}"))?
        .to_owned())
}

fn sign(text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, PAYMENT_SECRET.as_bytes());
    hmac::sign(&key, text.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn token(buyer: &str) -> Result<String> {
    // Until 2100.
    let claims = json!({ "sub": buyer, "exp": 4_102_444_800_u64 });
    Ok(jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(JWT_SECRET.as_bytes()),
    )?)
}
