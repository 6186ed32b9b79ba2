//! A shop of one page: it is the login and the payment provider, and a client of the API.

use std::time::Duration;

use axum::{Router, body::Body};
use domain::{BuyerId, Item, ItemId};
use http::{Method, Request, StatusCode, header, request};
use http_body_util::BodyExt;
use order::{PaymentKey, TokenPolicy, mint_buyer_token};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A token serves one call.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);

/// The demo's shop.
pub struct Shop {
    /// The API, called in this process.
    pub api: Router,
    /// The secret that signs buyers' tokens.
    pub jwt_secret: Vec<u8>,
    /// What buyers' tokens must say.
    pub token_policy: TokenPolicy,
    /// The key that signs payments.
    pub payments: PaymentKey,
}

/// An order of the visitor.
pub(super) struct Own {
    pub id: String,
    pub state: String,
}

/// The code of an outcome that the page has words for.
pub(super) mod outcome {
    pub const PAID: &str = "paid";
    pub const NOT_PAID: &str = "not_paid";
    pub const UNKNOWN: &str = "unknown";
}

impl Shop {
    /// Orders one unit and pays it. Returns the code of the outcome. A repeat with the same key is
    /// the same order and the same payment.
    pub(super) async fn buy(&self, buyer: &BuyerId, item: &Item, key: &str) -> String {
        let Some(request) = self.request(
            Method::POST,
            &format!("/v1/items/{}/orders", item.id),
            buyer,
        ) else {
            return outcome::UNKNOWN.into();
        };
        let request = request.header("Idempotency-Key", key);
        let (status, answer) = self
            .call(request, json!({ "quantity": 1 }).to_string())
            .await;
        match (status.is_success(), &answer["id"], &answer["code"]) {
            (true, Value::String(order), _) => self.pay(order, &answer["amount"]).await.into(),
            (_, _, Value::String(code)) => code.clone(),
            _ => outcome::UNKNOWN.into(),
        }
    }

    async fn pay(&self, order: &str, amount: &Value) -> &'static str {
        let payment = json!({
            "payment": format!("demo-{order}"), "order": order, "amount": amount
        });
        let body = payment.to_string();
        let request = Request::post(format!("/v1/orders/{order}/payment"))
            .header("Stockade-Signature", self.payments.sign(body.as_bytes()));
        let (status, answer) = self.call(request, body).await;
        match status.is_success() && answer["state"] == "confirmed" {
            true => outcome::PAID,
            false => outcome::NOT_PAID,
        }
    }

    /// The visitor's orders of this item. Empty if they cannot be read.
    pub(super) async fn orders(&self, buyer: &BuyerId, item: &ItemId) -> Vec<Own> {
        let Some(request) = self.request(Method::GET, "/v1/orders", buyer) else {
            return Vec::new();
        };
        let (_, answer) = self.call(request, String::new()).await;
        let rows = answer["data"].as_array().into_iter().flatten();
        rows.filter(|row| row["item"] == item.as_str())
            .filter_map(|row| {
                Some(Own {
                    id: row["id"].as_str()?.into(),
                    state: row["state"].as_str()?.into(),
                })
            })
            .collect()
    }

    fn request(&self, method: Method, path: &str, buyer: &BuyerId) -> Option<request::Builder> {
        let token = mint_buyer_token(&self.jwt_secret, buyer, TOKEN_LIFETIME, &self.token_policy)?;
        let request = Request::builder().method(method).uri(path);
        Some(request.header(header::AUTHORIZATION, format!("Bearer {token}")))
    }

    async fn call(&self, request: request::Builder, body: String) -> (StatusCode, Value) {
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let Ok(request) = request.body(Body::from(body)) else {
            return (StatusCode::BAD_REQUEST, Value::Null);
        };
        let response = match self.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let body = response.into_body().collect().await;
        let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }
}
