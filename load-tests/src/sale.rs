//! The running sale: what all virtual users share, and how requests are sent.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use client::{CartPayment, Client, Error, Payment, PaymentKey, Request, Token};
use tokio::time::sleep;

use crate::{
    action::{Action, Call},
    budget::Budget,
    buyers::Buyers,
    cart::{CartRef, CartStep},
    history::History,
    items::Items,
    options::Options,
    outcome::{Expected, Outcome},
    target::Target,
};

/// Limit for repeating a request whose outcome is unknown.
const RETRY_DEADLINE: Duration = Duration::from_secs(30);
/// The same while servers fail: one after the other may be down.
const RETRY_DEADLINE_IN_OUTAGES: Duration = Duration::from_secs(120);
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// What all virtual users share.
pub struct Sale {
    /// The items.
    pub items: Items,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Number of requests that may still be sent.
    pub budget: Budget,
    /// The buyers.
    pub buyers: Buyers,
    /// Whether servers fail during the run.
    pub outages: bool,
    client: Client,
    /// The status of an acknowledged order.
    status: u16,
    admin: Token,
    /// Signs payments, if a scenario pays.
    payment_key: Option<PaymentKey>,
    history: Mutex<History>,
    started: OnceLock<Instant>,
}

/// One attempt of a request.
#[derive(Debug)]
pub struct Attempt {
    /// When it was sent, since the start of the sale.
    pub begun: Duration,
    /// From the first byte sent to the last byte received.
    pub took: Duration,
    /// The status, if there was a response.
    pub status: Option<u16>,
    /// What the response says.
    pub outcome: Outcome,
}

/// A request whose outcome is known, or whose retry deadline has passed.
#[derive(Debug)]
pub struct Settled {
    /// All attempts but the last. Their outcomes were unknown.
    pub unknown: Vec<Attempt>,
    /// The last attempt.
    pub last: Attempt,
    /// Time of the first attempt, since the start of the sale.
    pub begun: Duration,
    /// Time of all attempts together.
    pub took: Duration,
}

impl Sale {
    /// A sale whose clock starts when `begin` is called.
    pub fn new(target: &Target, items: Items, buyers: Buyers, options: &Options) -> Result<Self> {
        Ok(Self {
            items,
            limit: options.limit,
            budget: Budget::new(options.requests()),
            buyers,
            outages: options.outages,
            client: Client::new(&target.host)?,
            status: options.durability.status(),
            admin: Token::bearer(&target.admin_token)?,
            payment_key: target.payment_secret.as_deref().map(PaymentKey::new),
            history: Mutex::new(History::new()?),
            started: OnceLock::new(),
        })
    }

    /// Whether a unit of the item may be for sale again after a refusal. A master that takes over
    /// may lack the last orders, and so may have their units until it is repaired.
    pub fn units_return(&self, item: usize) -> bool {
        self.outages || self.items.get(item).policy.returns()
    }

    /// Starts the clock.
    pub fn begin(&self) {
        self.started.get_or_init(Instant::now);
    }

    /// Time since the start of the sale.
    pub fn elapsed(&self) -> Duration {
        self.started.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// The history of all requests.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request until its outcome is known.
    ///
    /// Each attempt is measured and reported separately, so the retries of the client crate do not
    /// apply.
    pub async fn send(&self, http: &reqwest::Client, call: &Call) -> Settled {
        let (begun, started) = (self.elapsed(), Instant::now());
        let deadline = if self.outages {
            RETRY_DEADLINE_IN_OUTAGES
        } else {
            RETRY_DEADLINE
        };
        let mut unknown = Vec::new();
        loop {
            let attempt = self.attempt(http, call).await;
            let is_known = !matches!(attempt.outcome, Outcome::Unknown(_));
            if is_known || started.elapsed() > deadline {
                return Settled {
                    unknown,
                    last: attempt,
                    begun,
                    took: started.elapsed(),
                };
            }
            unknown.push(attempt);
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Sends the request once, and abandons it after `timeout`.
    pub async fn attempt_within(
        &self,
        http: &reqwest::Client,
        call: &Call,
        timeout: Duration,
    ) -> Attempt {
        let begun = self.elapsed();
        match tokio::time::timeout(timeout, self.attempt(http, call)).await {
            Ok(attempt) => attempt,
            // The request is dropped together with its connection.
            Err(_) => Attempt {
                begun,
                took: timeout,
                status: None,
                outcome: Outcome::GivenUp,
            },
        }
    }

    /// Sends the request once, with the timeout of `http`.
    pub async fn attempt(&self, http: &reqwest::Client, call: &Call) -> Attempt {
        let (begun, started) = (self.elapsed(), Instant::now());
        let (status, outcome) = match self.request(call) {
            Ok(request) => self.outcome(http, &request, call).await,
            Err(error) => (None, invalid_request(&error)),
        };
        Attempt {
            begun,
            took: started.elapsed(),
            status,
            outcome,
        }
    }

    async fn outcome(
        &self,
        http: &reqwest::Client,
        request: &Request,
        call: &Call,
    ) -> (Option<u16>, Outcome) {
        let item = self.items.get(call.item);
        let expected = Expected {
            action: &call.action,
            status: self.status,
            item: &item.id,
            stock: item.stock,
        };
        match self.client.with_http(http.clone()).send_once(request).await {
            Ok(response) => (Some(response.status), Outcome::read(&response, expected)),
            Err(Error::OutcomeUnknown { cause, .. }) => (None, Outcome::Unknown(cause.to_string())),
            Err(error) => (None, invalid_request(&error.into())),
        }
    }

    fn request(&self, call: &Call) -> Result<Request> {
        let token = || self.buyers.token(call.buyer);
        Ok(match &call.action {
            Action::Order(order) => Request::place(&token(), order),
            // The page of an item is public.
            Action::Browse => Request::item(&self.items.get(call.item).id, None),
            Action::Show(order) => Request::order(&token(), order.id),
            Action::Cancel(order) => Request::cancel(&token(), order.id),
            Action::Refund(order) => Request::refund(&self.admin, order.id),
            Action::Pay { order, payment } => {
                Request::pay(self.key()?, order.id, &Payment::new(payment, order.id))
            }
            Action::Cart(cart) => Request::place_cart(&token(), &cart.cart),
            Action::Step(cart, step) => self.request_of_cart(&token(), cart, step)?,
        })
    }

    fn request_of_cart(&self, token: &Token, cart: &CartRef, step: &CartStep) -> Result<Request> {
        Ok(match step {
            CartStep::Show => Request::cart(token, cart.id),
            CartStep::Extend(seconds) => Request::extend_cart(token, cart.id, &(*seconds).into()),
            CartStep::Cancel => Request::cancel_cart(token, cart.id),
            CartStep::Refund => Request::refund_cart(&self.admin, cart.id),
            CartStep::Pay(payment) => {
                Request::pay_cart(self.key()?, &CartPayment::new(payment, cart.id))
            }
        })
    }

    fn key(&self) -> Result<&PaymentKey> {
        let key = self.payment_key.as_ref();
        key.context("a scenario pays, but there is no payment secret")
    }
}

fn invalid_request(error: &anyhow::Error) -> Outcome {
    Outcome::Wrong(format!("the request could not be built: {error}"))
}
