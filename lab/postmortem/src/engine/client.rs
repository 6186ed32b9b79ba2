//! The buyers and the payment provider of an engine. A request without an answer is not a refusal.

use ::client::{
    Admin, Audit, Client, Error, IdempotencyKey, NewItem, NewOrder, Payment, PaymentKey,
    RetryPolicy, Token,
};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::sleep;

use super::{ADMIN_TOKEN, JWT_SECRET, PAYMENT_SECRET, POLL_INTERVAL};

const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// HTTP client of an engine. It can be sent to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineClient {
    url: String,
    client: Client,
}

/// Outcome of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The order with this id is placed.
    Placed(String),
    /// Nothing is left, or not for this buyer.
    Refused,
    /// Unknown; a retry with the same key resolves it.
    Unknown,
}

impl TryFrom<String> for EngineClient {
    type Error = Error;

    fn try_from(url: String) -> Result<Self, Error> {
        let client = Client::builder([url.clone()])
            .retry(RetryPolicy::never())
            .build()?;
        Ok(Self { url, client })
    }
}

impl From<EngineClient> for String {
    fn from(client: EngineClient) -> Self {
        client.url
    }
}

impl EngineClient {
    /// Creates a client of this address, which may be a proxy's.
    pub fn at(url: String) -> Result<Self> {
        Ok(Self::try_from(url)?)
    }

    /// Returns the port of the address.
    pub fn port(&self) -> Result<u16> {
        let port = self
            .url
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        port.with_context(|| format!("the address {} has no port", self.url))
    }

    /// Returns whether the engine reports that it is ready.
    pub(super) async fn is_ready(&self) -> bool {
        self.client.is_ready().await
    }

    /// Offers an item, and returns its id.
    pub(super) async fn offer(&self, item: &NewItem) -> Result<String> {
        Ok(self.admin()?.create_item(item).await?.id)
    }

    /// Returns the audit of an item.
    pub(super) async fn audit(&self, item: &str) -> Result<Audit> {
        Ok(self.admin()?.audit(item).await?)
    }

    /// Orders a unit. Repeated requests with the same key are the same order.
    pub async fn order(&self, item: &str, buyer: &str, key: &str) -> Result<Outcome> {
        self.place(buyer, &new_order(item, key)?).await
    }

    /// As [`order`](Self::order), answered as soon as the units are taken, without waiting for the
    /// ledger.
    pub async fn order_soon(&self, item: &str, buyer: &str, key: &str) -> Result<Outcome> {
        self.place(buyer, &new_order(item, key)?.respond_async())
            .await
    }

    /// As [`order`](Self::order), repeated until the outcome is known. Returns the order if it is
    /// placed.
    pub async fn order_until_known(
        &self,
        item: &str,
        buyer: &str,
        key: &str,
    ) -> Result<Option<String>> {
        loop {
            match self.order(item, buyer, key).await? {
                Outcome::Placed(order) => return Ok(Some(order)),
                Outcome::Refused => return Ok(None),
                Outcome::Unknown => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Cancels an order, which releases its units.
    pub async fn cancel(&self, order: &str) -> Result<()> {
        let cancelled = self.admin()?.cancel(order.parse()?).await;
        cancelled.map(drop).context("cannot cancel the order")
    }

    /// Returns the state of an order.
    pub async fn state(&self, order: &str) -> Result<&'static str> {
        Ok(self.admin()?.order(order.parse()?).await?.state.as_str())
    }

    /// Reports a payment as the provider does.
    pub async fn pay(&self, order: &str, payment: &str) -> Result<()> {
        let provider = self
            .client
            .payment_provider(PaymentKey::new(PAYMENT_SECRET));
        let payment = Payment::new(payment, order.parse()?);
        let reported = provider.report(&payment).await;
        reported.map(drop).context("the payment was not accepted")
    }

    fn admin(&self) -> Result<Admin> {
        Ok(self.client.admin(Token::bearer(ADMIN_TOKEN)?))
    }

    async fn place(&self, buyer: &str, order: &NewOrder) -> Result<Outcome> {
        let token = Token::mint_buyer(JWT_SECRET, buyer, TOKEN_LIFETIME);
        match self.client.buyer(token).place(order).await {
            Ok(placed) => Ok(Outcome::Placed(placed.order.id.to_string())),
            // It was placed, and a case may ask what has become of it.
            Err(Error::NoLongerHeld(ended)) => Ok(Outcome::Placed(ended.id().to_string())),
            Err(Error::Refused(problem)) if problem.status == 409 => Ok(Outcome::Refused),
            Err(error) if error.is_outcome_unknown() => Ok(Outcome::Unknown),
            Err(error) => Err(error.into()),
        }
    }
}

fn new_order(item: &str, key: &str) -> Result<NewOrder> {
    Ok(NewOrder::new(item, 1).with_key(IdempotencyKey::new(key)?))
}
