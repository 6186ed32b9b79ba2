//! A session: one order of one buyer, from the first request to the end of its life.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::judge::life::is_paid;
use client::{
    Buyer, Durability, Error, IdempotencyKey, NewOrder, Order, OrderState, Payment, ProblemCode,
    Request, Token,
};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;
use uuid::Uuid;

use super::{has_expired, weighted};
use crate::{
    api::Api,
    history::{OrderHistory, Placement, SaleItem},
};

/// Number of buyers. Each has several sessions.
const BUYERS: usize = 400;

/// What a buyer does with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    Pay,
    ReportPaymentTwice,
    PayTwice,
    PayLate,
    PayAndRefund,
    Cancel,
    Abandon,
}

/// How often each behavior occurs, of a hundred.
const BEHAVIORS: [(Behavior, u32); 7] = [
    (Behavior::Pay, 38),
    (Behavior::ReportPaymentTwice, 7),
    (Behavior::PayTwice, 4),
    (Behavior::PayLate, 9),
    (Behavior::PayAndRefund, 5),
    (Behavior::Cancel, 15),
    (Behavior::Abandon, 22),
];

/// The buyers and their tokens.
pub(super) struct Buyers(Vec<(String, Token)>);

/// One order and its buyer.
pub(super) struct Session {
    api: Api,
    token: Token,
    buyer: Buyer,
    order: NewOrder,
    history: OrderHistory,
    /// Whether Redis may lose acknowledged writes in this round.
    redis_may_lose: bool,
}

impl Buyers {
    pub(super) fn new(api: &Api) -> Self {
        let name = |buyer| format!("buyer-{buyer}");
        let names = (0..BUYERS).map(name);
        Self(names.map(|name| (name.clone(), api.token(&name))).collect())
    }

    /// A random buyer, with a token.
    pub(super) fn one(&self, rng: &mut StdRng) -> (String, Token) {
        self.0[rng.random_range(0..self.0.len())].clone()
    }
}

impl Session {
    /// Chooses buyer and quantity.
    pub(super) fn new(
        api: &Api,
        item: &Arc<SaleItem>,
        buyers: &Buyers,
        redis_may_lose: bool,
        rng: &mut StdRng,
    ) -> Self {
        let (name, token) = buyers.one(rng);
        let quantity = rng.random_range(1..=item.limit.min(3));
        let key = IdempotencyKey::from(rng.random::<u64>());
        let history = OrderHistory::new(item, name, key.to_string(), quantity);
        Self {
            api: api.clone(),
            buyer: api.client.buyer(token.clone()),
            token,
            order: NewOrder::new(&item.id, quantity).with_key(key),
            history,
            redis_may_lose,
        }
    }

    /// Places the order; the history alone if the order was not acknowledged.
    pub(super) async fn place(
        mut self,
        rng: &mut StdRng,
    ) -> Result<(Self, Order), Box<OrderHistory>> {
        let begun = Instant::now();
        if rng.random_bool(0.05) {
            self.send_duplicate();
        }
        let answer = self.request_order().await;
        self.history.span = Some((begun, Instant::now()));
        let error = match answer {
            Ok(order) => {
                self.acknowledge(&order);
                return Ok((self, order));
            }
            Err(error) => error,
        };
        let history = &mut self.history;
        if let Error::Refused(problem) = &error {
            history.placement = Placement::Refused(problem.code.to_string());
        }
        let is_expected = [ProblemCode::SoldOut, ProblemCode::BuyerLimitReached]
            .into_iter()
            .any(|code| error.is(code));
        if !is_expected {
            history.contradictions.push(format!("placing: {error}"));
        }
        Err(Box::new(self.history))
    }

    fn acknowledge(&mut self, order: &Order) {
        let history = &mut self.history;
        history.placement = Placement::Acknowledged(order.id);
        history.acknowledged.push(order.state);
        if order.quantity != history.quantity {
            history.contradictions.push(format!(
                "placing: acknowledged {} units instead of {}",
                order.quantity, history.quantity
            ));
        }
    }

    /// Sends the request a second time, and ignores the response: a double click.
    fn send_duplicate(&mut self) {
        self.history.requests += 1;
        let request = Request::place(&self.token, &self.order);
        let client = self.api.client.with_retry(client::RetryPolicy::never());
        tokio::spawn(async move { client.send(&request).await });
    }

    /// The order in the response is not verified here: a wrong one is for the judge to find.
    async fn request_order(&mut self) -> Result<Order, Error> {
        let request = Request::place(&self.token, &self.order);
        let sent = self.api.client.send(&request).await;
        self.history.requests += sent.attempts;
        sent.result?.json()
    }

    /// The rest of the order's life, from its acknowledgement on.
    pub(super) async fn live(mut self, id: Uuid, mut rng: StdRng) -> OrderHistory {
        let behavior = weighted(&BEHAVIORS, &mut rng);
        let hold_ms = u64::from(self.history.item.hold_seconds) * 1000;
        let wait_ms = match behavior {
            Behavior::PayLate => hold_ms + rng.random_range(300..1500),
            _ => rng.random_range(0..hold_ms * 2 / 3),
        };
        sleep(Duration::from_millis(wait_ms)).await;
        if rng.random_bool(0.1) {
            self.repeat(id).await;
        }
        let payment = format!("pay-{id}");
        match behavior {
            Behavior::Abandon => {}
            Behavior::Cancel => self.cancel(id).await,
            Behavior::Pay | Behavior::PayLate => self.pay(id, &payment).await,
            Behavior::ReportPaymentTwice => {
                self.pay(id, &payment).await;
                self.pay(id, &payment).await;
            }
            Behavior::PayTwice => {
                self.pay(id, &payment).await;
                self.pay_again(id).await;
            }
            Behavior::PayAndRefund => {
                self.pay(id, &payment).await;
                self.refund(id).await;
            }
        }
        self.history
    }

    /// A repeated request is the same order.
    async fn repeat(&mut self, id: Uuid) {
        match self.request_order().await {
            Ok(order) if order.id == id => {}
            // Redis has lost the order, and decides about the key a second time.
            Err(Error::Refused(problem))
                if problem.status == 409
                    && self.redis_may_lose
                    && self.history.item.durability != Durability::Recorded => {}
            other => self.contradiction("placing it again", other),
        }
    }

    async fn pay(&mut self, id: Uuid, payment: &str) {
        self.history.requested.insert(OrderState::Confirmed);
        match self.api.provider.report(&Payment::new(payment, id)).await {
            Ok(order) if is_paid(order.state) => {
                self.history.acknowledged.push(order.state);
                self.history.payment = Some(payment.to_owned());
            }
            Err(error) if self.may_be_lost() && is_refused(&error) => {}
            other => self.contradiction("paying", other),
        }
    }

    /// Reports another payment for the same order. The service must refuse it, unless the first
    /// payment got lost with the order.
    async fn pay_again(&mut self, id: Uuid) {
        let payment = Payment::new(format!("pay-again-{id}"), id);
        match self.api.provider.report(&payment).await {
            Err(error) if error.is(ProblemCode::AlreadyPaid) => {}
            Err(error) if self.may_be_lost() && is_refused(&error) => {}
            other => self.contradiction("paying twice", other),
        }
    }

    async fn cancel(&mut self, id: Uuid) {
        self.history.requested.insert(OrderState::Cancelled);
        match self.buyer.cancel(id).await {
            Ok(order) if order.state == OrderState::Cancelled => {
                self.history.acknowledged.push(order.state);
            }
            Err(error) if has_expired(&error) => {}
            Err(error) if self.may_be_lost() && is_refused(&error) => {}
            other => self.contradiction("cancelling", other),
        }
    }

    async fn refund(&mut self, id: Uuid) {
        if !self.history.acknowledged.iter().copied().any(is_paid) {
            return;
        }
        self.history.requested.insert(OrderState::Refunded);
        match self.api.admin.refund(id).await {
            Ok(order) if order.state == OrderState::Refunded => {
                self.history.acknowledged.push(order.state);
            }
            other => self.contradiction("refunding", other),
        }
    }

    /// Whether only Redis is known to have had the order, and only its hold was acknowledged. The
    /// judge decides whether it was allowed to disappear.
    fn may_be_lost(&self) -> bool {
        let OrderHistory {
            item, acknowledged, ..
        } = &self.history;
        item.durability != Durability::Recorded
            && acknowledged.iter().all(|state| *state == OrderState::Held)
    }

    fn contradiction(&mut self, call: &str, result: Result<Order, Error>) {
        let response = match result {
            Ok(order) => format!("order {} is {}", order.id, order.state),
            Err(error) => error.to_string(),
        };
        self.history
            .contradictions
            .push(format!("{call}: {response}"));
    }
}

/// Whether the service refuses the request. After an attempt whose answer was lost, a client calls
/// the outcome unknown where the service does not know the order any more, and tells what it heard.
fn is_refused(error: &Error) -> bool {
    matches!(error.later_answer().unwrap_or(error), Error::Refused(_))
}
