//! Requests of payment providers, buyers and admins for an order that was placed.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::eventually;

use crate::env::{ADMIN, Answer, TestEnv, payment_key, token};

impl TestEnv {
    /// The provider's report that an order was paid, to one of the instances.
    pub fn report(&self, instance: usize, order: &str, body: &Value) -> RequestBuilder {
        let raw = body.to_string().into_bytes();
        self.report_signed(instance, order, &payment_key().sign(&raw), raw)
    }

    /// The same report with a signature that may be wrong.
    pub fn report_signed(
        &self,
        instance: usize,
        order: &str,
        signature: &str,
        raw: Vec<u8>,
    ) -> RequestBuilder {
        let path = format!("/v1/orders/{order}/payment");
        let request = self.at(instance, Method::POST, &path);
        request.header("Stockade-Signature", signature).body(raw)
    }

    pub async fn pay_at(&self, instance: usize, order: &str, payment: &str) -> Answer {
        let body = json!({ "payment": payment, "order": order });
        Answer::of(self.report(instance, order, &body)).await
    }

    pub async fn pay(&self, order: &str, payment: &str) -> Answer {
        self.pay_at(0, order, payment).await
    }

    pub async fn pay_amount(&self, order: &str, payment: &str, amount: u64) -> Answer {
        let body = json!({ "payment": payment, "order": order, "amount": amount });
        Answer::of(self.report(0, order, &body)).await
    }

    /// A payment that confirms its order.
    pub async fn confirm(&self, order: &str, payment: &str) {
        self.pay(order, payment).await.is_now("confirmed");
    }

    /// A payment of this amount that confirms its order.
    pub async fn confirm_for(&self, order: &str, payment: &str, amount: u64) {
        let paid = self.pay_amount(order, payment, amount).await;
        paid.is_now("confirmed");
    }

    pub async fn cancel_at(&self, instance: usize, buyer: &str, order: &str) -> Answer {
        let request = self.at(instance, Method::DELETE, &format!("/v1/orders/{order}"));
        Answer::of(request.bearer_auth(token(buyer))).await
    }

    pub async fn cancel(&self, buyer: &str, order: &str) -> Answer {
        self.cancel_at(0, buyer, order).await
    }

    pub async fn refund_at(&self, instance: usize, order: &str) -> Answer {
        let path = format!("/v1/orders/{order}/refund");
        Answer::of(self.at(instance, Method::POST, &path).bearer_auth(ADMIN)).await
    }

    pub async fn refund(&self, order: &str) -> Answer {
        self.refund_at(0, order).await
    }

    pub async fn set_state(&self, item: &str, state: &str) -> Answer {
        let request = self.admin(Method::PUT, &format!("/v1/items/{item}/state"));
        Answer::of(request.json(&json!({ "state": state }))).await
    }

    /// Sets the item's state, which must be done.
    pub async fn put_state(&self, item: &str, state: &str) {
        self.set_state(item, state).await.is_now(state);
    }

    /// Places an order for one unit, which must be held, and returns its id.
    pub async fn hold(&self, item: &str, buyer: &str, key: &str) -> String {
        let answer = self.order(item, buyer, key, 1).await;
        answer.is_held().id()
    }

    pub async fn state_of(&self, order: &str) -> String {
        let answer = self.admin_gets(&format!("/v1/orders/{order}")).await;
        answer.body["state"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer:?}"))
            .to_owned()
    }

    /// Waits until the order is in this state.
    pub async fn becomes(&self, order: &str, state: &str) {
        let what = format!("the state {state} of {order}");
        eventually(&what, async || self.state_of(order).await == state).await;
    }

    /// The entries of the item's journal with this action, newest first.
    pub async fn journal(&self, item: &str, action: &str) -> Vec<Value> {
        let answer = self
            .admin_gets(&format!("/v1/items/{item}/journal?limit=1000"))
            .await;
        let entries = answer.body["data"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer:?}"));
        entries
            .iter()
            .filter(|entry| entry["action"] == action)
            .cloned()
            .collect()
    }

    /// Ids of the unmatched payments, sorted.
    pub async fn unmatched_payments(&self, item: &str) -> Vec<String> {
        let entries = self.journal(item, "unmatched_payment").await;
        let mut payments: Vec<_> = entries
            .iter()
            .map(|entry| entry["after"]["payment"].as_str().unwrap().to_owned())
            .collect();
        payments.sort_unstable();
        payments
    }

    /// The item's available, held and paid units, once none is in transit.
    pub async fn units(&self, item: &str) -> [u64; 3] {
        let audit = self.settled_audit(item).await;
        ["available", "held", "confirmed"].map(|units| audit[units].as_u64().unwrap())
    }
}
