//! Reports of Stripe that the money of a payment was returned.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use client::PaymentKey;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::api::Api;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// Stripe, which sends each event until it is acknowledged.
#[derive(Clone)]
pub(super) struct Stripe {
    http: reqwest::Client,
    urls: Vec<String>,
    key: PaymentKey,
    answered_within: Duration,
}

impl Stripe {
    pub(super) fn new(api: &Api, answered_within: Duration) -> Result<Self> {
        let http = reqwest::Client::builder().timeout(ATTEMPT_TIMEOUT);
        let (urls, key) = api.stripe();
        Ok(Self {
            http: http.build()?,
            urls,
            key,
            answered_within,
        })
    }

    /// Reports that all money of the payment was returned. Returns whether that was acknowledged.
    pub(super) async fn report_return(&self, payment: &str, order: Option<Uuid>) -> bool {
        let metadata = match order {
            Some(order) => json!({ "stockade_order": order }),
            None => json!({}),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let charge = json!({
            "id": format!("ch-{payment}"), "object": "charge", "currency": "eur", "metadata": metadata,
            "payment_intent": payment, "refunded": true,
        });
        let event = json!({
            "id": format!("evt-{payment}"), "object": "event", "type": "charge.refunded",
            "created": now.unwrap_or_default().as_secs(), "data": { "object": charge },
        });
        let body = event.to_string();
        let deadline = Instant::now() + self.answered_within;
        for url in self.urls.iter().cycle() {
            if self.send(url, &body).await {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(RETRY_PAUSE).await;
        }
        false
    }

    async fn send(&self, url: &str, body: &str) -> bool {
        let url = format!("{}/v1/webhooks/stripe", url.trim_end_matches('/'));
        let signature = self.key.sign(body.as_bytes(), SystemTime::now());
        let request = self.http.post(url).header("Stripe-Signature", signature);
        let answer = request.body(body.to_owned()).send().await;
        answer.is_ok_and(|answer| answer.status() == reqwest::StatusCode::OK)
    }
}
