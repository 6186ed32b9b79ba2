//! The service under test, as its clients see it.

use std::time::Duration;

use anyhow::{Context, Result};
use client::{
    Admin, Audit, Buyer, Client, PaymentKey, PaymentProvider, Request, RetryPolicy, Token,
};
use serde::Deserialize;
use serde_json::Value;

/// Limit for one attempt. Longer than `STOCKADE_ORDER_TIMEOUT_MS` of the processes, so that the
/// service reports an unknown outcome before the client gives up.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_PAUSE: Duration = Duration::from_millis(40);
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The secrets that clients share with the service.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Signs the tokens of buyers.
    pub jwt: String,
    /// Authorizes admins.
    pub admin: String,
    /// Signs payment reports, also those of Stripe.
    pub payment: String,
}

/// A page of events.
#[derive(Debug, Deserialize)]
pub struct EventPage {
    /// The events.
    pub data: Vec<Value>,
    /// The cursor behind them.
    pub next: String,
}

/// Clients of every kind for one service.
#[derive(Clone, Debug)]
pub struct Api {
    /// Makes calls as the admin.
    pub admin: Admin,
    /// Reports payments.
    pub provider: PaymentProvider,
    /// Sends requests, each to the next instance.
    pub client: Client,
    urls: Vec<String>,
    secrets: Secrets,
    attempt_timeout: Duration,
}

impl Api {
    /// Clients of the service that has an instance at each of `urls`. They send each request once.
    pub fn new(urls: Vec<String>, secrets: Secrets) -> Result<Self> {
        Self::once(urls, secrets, ATTEMPT_TIMEOUT)
    }

    /// The same clients for some of the instances, with connections of their own. They wait for an
    /// answer for at least as long as `patience`.
    pub fn at(&self, urls: Vec<String>, patience: Duration) -> Result<Self> {
        Self::once(urls, self.secrets.clone(), patience.max(ATTEMPT_TIMEOUT))
    }

    /// The same clients with new connections.
    pub fn reconnected(&self) -> Result<Self> {
        self.at(self.urls.clone(), self.attempt_timeout)
    }

    fn once(urls: Vec<String>, secrets: Secrets, attempt_timeout: Duration) -> Result<Self> {
        let client = Client::builder(urls.clone())
            .attempt_timeout(attempt_timeout)
            .retry(RetryPolicy::never())
            .build()?;
        Self::of(client, urls, secrets, attempt_timeout)
    }

    fn of(
        client: Client,
        urls: Vec<String>,
        secrets: Secrets,
        attempt_timeout: Duration,
    ) -> Result<Self> {
        Ok(Self {
            admin: client.admin(Token::bearer(&secrets.admin)?),
            provider: client.payment_provider(PaymentKey::new(&secrets.payment)),
            client,
            urls,
            secrets,
            attempt_timeout,
        })
    }

    /// The same clients, which repeat requests until the outcome is known or `deadline` has passed.
    pub fn retrying_for(&self, deadline: Duration) -> Result<Self> {
        let retry = RetryPolicy::every(RETRY_PAUSE, deadline);
        Self::of(
            self.client.with_retry(retry),
            self.urls.clone(),
            self.secrets.clone(),
            self.attempt_timeout,
        )
    }

    /// The addresses of the instances, and the key with which Stripe signs what it sends there.
    pub fn stripe(&self) -> (Vec<String>, PaymentKey) {
        (self.urls.clone(), PaymentKey::new(&self.secrets.payment))
    }

    /// The events after a cursor, or from the oldest on.
    pub async fn events(&self, after: Option<&str>) -> Result<EventPage> {
        let token = Token::bearer(&self.secrets.admin)?;
        let sent = self.client.send(&Request::events(&token, after, 0)).await;
        Ok(sent.result?.json()?)
    }

    /// Creates a webhook, and returns its secret.
    pub async fn create_webhook(&self, url: &str, kinds: &[String]) -> Result<String> {
        let token = Token::bearer(&self.secrets.admin)?;
        let request = Request::create_webhook(&token, url, kinds);
        let created: Value = self
            .client
            .send_once(&request)
            .await?
            .into_success()?
            .json()?;
        let secret = created["secret"].as_str();
        Ok(secret.context("the webhook has no secret")?.to_owned())
    }

    /// A token for the buyer `name`.
    pub fn token(&self, name: &str) -> Token {
        Token::mint_buyer(&self.secrets.jwt, name, TOKEN_LIFETIME)
    }

    /// Makes calls as the buyer `name`.
    pub fn buyer(&self, name: &str) -> Buyer {
        self.client.buyer(self.token(name))
    }
}

/// Whether the audit is correct, no order is held, and no unit is on its way.
pub fn is_quiet(audit: &Audit) -> bool {
    audit.ok && audit.held == 0 && audit.is_at_rest()
}
