//! A session with a cart: from the first request to the end of its life.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::judge::life::is_paid;
use client::{
    Buyer, Cart, CartPayment, CartState, Error, IdempotencyKey, NewCart, ProblemCode, Request,
    Token,
};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;
use uuid::Uuid;

use super::{has_expired, session::Buyers, weighted};
use crate::{
    api::Api,
    history::{CartHistory, CartPlacement, SaleItem},
};

/// Items of a cart.
const LINES: usize = 2;
/// Units of a line, at most.
const QUANTITY_MAX: u32 = 2;

/// What a buyer does with a cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    Pay,
    ReportPaymentTwice,
    PayLate,
    PayAndRefund,
    ExtendAndPay,
    Cancel,
    Abandon,
}

/// How often each behavior occurs, of a hundred.
const BEHAVIORS: [(Behavior, u32); 7] = [
    (Behavior::Pay, 35),
    (Behavior::ReportPaymentTwice, 8),
    (Behavior::PayLate, 9),
    (Behavior::PayAndRefund, 6),
    (Behavior::ExtendAndPay, 8),
    (Behavior::Cancel, 17),
    (Behavior::Abandon, 17),
];

/// One cart and its buyer.
pub(super) struct CartSession {
    api: Api,
    token: Token,
    buyer: Buyer,
    cart: NewCart,
    history: CartHistory,
}

impl CartSession {
    /// Chooses items, buyer and quantities.
    pub(super) fn new(
        api: &Api,
        items: &[Arc<SaleItem>],
        buyers: &Buyers,
        rng: &mut StdRng,
    ) -> Self {
        let (name, token) = buyers.one(rng);
        let mut lines = Vec::new();
        let first = rng.random_range(0..items.len());
        for item in items
            .iter()
            .cycle()
            .skip(first)
            .take(LINES.min(items.len()))
        {
            let quantity = rng.random_range(1..=item.limit.min(QUANTITY_MAX));
            lines.push((Arc::clone(item), quantity));
        }
        let key = IdempotencyKey::from(rng.random::<u64>());
        let cart = lines.iter().fold(NewCart::new(), |cart, (item, quantity)| {
            cart.with(&item.id, *quantity)
        });
        let history = CartHistory::new(lines, name, key.to_string());
        Self {
            api: api.clone(),
            buyer: api.client.buyer(token.clone()),
            token,
            cart: cart.with_key(key),
            history,
        }
    }

    /// Places the cart; the history alone if the cart was not acknowledged.
    pub(super) async fn place(
        mut self,
        rng: &mut StdRng,
    ) -> Result<(Self, Uuid), Box<CartHistory>> {
        let begun = Instant::now();
        if rng.random_bool(0.05) {
            self.send_duplicate();
        }
        let answer = self.request_cart().await;
        self.history.span = Some((begun, Instant::now()));
        match answer {
            Ok(cart) => {
                self.acknowledge(&cart);
                Ok((self, cart.id))
            }
            Err(error) => {
                self.refuse(&error);
                Err(Box::new(self.history))
            }
        }
    }

    fn acknowledge(&mut self, cart: &Cart) {
        let orders = cart
            .lines
            .iter()
            .map(|line| (line.item.clone(), line.order));
        let history = &mut self.history;
        history.placement = CartPlacement::Acknowledged {
            id: cart.id,
            orders: orders.collect(),
        };
        history.acknowledged.push(cart.state);
        if matches!(cart.state, CartState::Placing | CartState::Failed) {
            let contradiction = format!("placing a cart: acknowledged as {:?}", cart.state);
            history.contradictions.push(contradiction);
        }
    }

    fn refuse(&mut self, error: &Error) {
        if let Error::Refused(problem) = error {
            self.history.placement = CartPlacement::Refused {
                code: problem.code.to_string(),
                item: problem.item.clone(),
                is_final: error.is_final(),
            };
        }
        let is_expected = [
            ProblemCode::SoldOut,
            ProblemCode::BuyerLimitReached,
            ProblemCode::CartTimedOut,
        ]
        .into_iter()
        .any(|code| error.is(code));
        if !is_expected {
            let contradiction = format!("placing a cart: {error}");
            self.history.contradictions.push(contradiction);
        }
    }

    /// Sends the request a second time, and ignores the response: a double click.
    fn send_duplicate(&mut self) {
        self.history.requests += 1;
        let request = Request::place_cart(&self.token, &self.cart);
        let client = self.api.client.with_retry(client::RetryPolicy::never());
        tokio::spawn(async move { client.send(&request).await });
    }

    /// The cart in the response is not verified here: a wrong one is for the judge to find.
    async fn request_cart(&mut self) -> Result<Cart, Error> {
        let request = Request::place_cart(&self.token, &self.cart);
        let sent = self.api.client.send(&request).await;
        self.history.requests += sent.attempts;
        sent.result?.json()
    }

    /// The rest of the cart's life, from its acknowledgement on.
    pub(super) async fn live(mut self, id: Uuid, mut rng: StdRng) -> CartHistory {
        let behavior = weighted(&BEHAVIORS, &mut rng);
        let hold_ms = self.hold_ms();
        let wait_ms = match behavior {
            Behavior::PayLate => hold_ms + rng.random_range(300..1500),
            _ => rng.random_range(0..hold_ms * 2 / 3),
        };
        sleep(Duration::from_millis(wait_ms)).await;
        if rng.random_bool(0.1) {
            self.repeat(id).await;
        }
        match behavior {
            Behavior::Abandon => {}
            Behavior::Cancel => self.cancel(id).await,
            Behavior::Pay | Behavior::PayLate => self.pay(id).await,
            Behavior::ReportPaymentTwice => {
                self.pay(id).await;
                self.pay(id).await;
            }
            Behavior::PayAndRefund => {
                self.pay(id).await;
                self.refund(id).await;
            }
            Behavior::ExtendAndPay => {
                self.extend(id).await;
                sleep(Duration::from_millis(rng.random_range(0..hold_ms))).await;
                self.pay(id).await;
            }
        }
        self.history
    }

    fn hold_ms(&self) -> u64 {
        let seconds = self.history.lines.iter().map(|(item, _)| item.hold_seconds);
        u64::from(seconds.min().unwrap_or_default()) * 1000
    }

    /// A repeated request is the same cart, whatever would refuse it now.
    async fn repeat(&mut self, id: Uuid) {
        match self.request_cart().await {
            Ok(cart) if cart.id == id => {}
            other => self.contradiction("placing the cart again", other),
        }
    }

    async fn extend(&mut self, id: Uuid) {
        let seconds = self
            .history
            .lines
            .iter()
            .map(|(item, _)| item.max_hold_seconds());
        let seconds = seconds.min().unwrap_or_default();
        match self.buyer.extend_cart(id, seconds).await {
            Ok(cart) if cart.state == CartState::Held => {}
            Err(error) if has_expired(&error) => {}
            other => self.contradiction("extending the cart", other),
        }
    }

    async fn pay(&mut self, id: Uuid) {
        self.history.requested.insert(CartState::Confirmed);
        let payment = format!("pay-{id}");
        let reported = CartPayment::new(&payment, id);
        match self.api.provider.report_cart(&reported).await {
            Ok(cart) if is_paid(cart.state) => {
                self.history.acknowledged.push(cart.state);
                self.history.payment = Some(payment);
            }
            other => self.contradiction("paying the cart", other),
        }
    }

    async fn cancel(&mut self, id: Uuid) {
        self.history.requested.insert(CartState::Cancelled);
        match self.buyer.cancel_cart(id).await {
            Ok(cart) if cart.state == CartState::Cancelled => {
                self.history.acknowledged.push(cart.state);
            }
            Err(error) if has_expired(&error) => {}
            other => self.contradiction("cancelling the cart", other),
        }
    }

    async fn refund(&mut self, id: Uuid) {
        if !self.history.acknowledged.iter().copied().any(is_paid) {
            return;
        }
        self.history.requested.insert(CartState::Refunded);
        match self.api.admin.refund_cart(id).await {
            Ok(cart) if cart.state == CartState::Refunded => {
                self.history.acknowledged.push(cart.state);
            }
            other => self.contradiction("refunding the cart", other),
        }
    }

    fn contradiction(&mut self, call: &str, result: Result<Cart, Error>) {
        let response = match result {
            Ok(cart) => format!("cart {} is {:?}", cart.id, cart.state),
            Err(error) => error.to_string(),
        };
        let contradiction = format!("{call}: {response}");
        self.history.contradictions.push(contradiction);
    }
}
