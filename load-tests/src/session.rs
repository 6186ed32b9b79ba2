//! A session of a virtual user. Behaviors are written in its methods.
//!
//! Every request is judged, recorded in the history and reported to goose here, so a behavior
//! cannot omit it.

mod carts;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ::judge::life::{is_paid, shown};
use client::{IdempotencyKey, NewOrder, OrderState};
use futures::future::join_all;
use goose::goose::{GooseUser, TransactionError};
use tokio::time::sleep;

use crate::{
    action::{Action, Call, OrderRef},
    buyers::VirtualUser,
    history::Observation,
    judge::{self, Holdings},
    life::{self, KnownOrder},
    outcome::Outcome,
    sale::{Attempt, Sale, Settled},
    violation::{self, Violation},
};

/// The result of a step.
pub type Step<T> = Result<T, End>;

/// What ends a session before its behavior does.
#[derive(Debug)]
pub enum End {
    /// The run has sent all its requests, or the order or cart was not placed.
    Early,
    /// Goose has failed.
    Failed(Box<TransactionError>),
}

/// Tolerance between the clocks of the service and of this process, for the end of a hold.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(200);

/// A settled order request.
#[derive(Debug)]
pub struct PlacedCall {
    call: Call,
    started: Instant,
    /// The outcome.
    pub outcome: Outcome,
}

/// An order that only this session changes.
#[derive(Debug)]
pub struct OwnOrder {
    order: OrderRef,
    started: Instant,
    payment: Option<String>,
    /// The last reported state.
    pub state: OrderState,
}

/// How a client retries without waiting for responses.
#[derive(Debug, Clone, Copy)]
pub struct Storm {
    /// Number of rounds before the client waits for a response.
    pub rounds: u32,
    /// Number of connections on which each round sends the request concurrently.
    pub copies: u32,
    /// How long the client waits for the responses of a round.
    pub timeout: Duration,
}

/// A session of a virtual user.
pub struct Session<'a> {
    sale: Arc<Sale>,
    user: &'a mut GooseUser,
    virtual_user: VirtualUser,
    /// Units that the buyer got in this session.
    held: u32,
    /// The same in carts, by item.
    held_in_carts: HashMap<usize, u32>,
    /// Number of orders in this session.
    orders: u32,
}

impl<'a> Session<'a> {
    /// The session of `virtual_user`, on the connections of `user`.
    pub fn new(sale: Arc<Sale>, user: &'a mut GooseUser, virtual_user: VirtualUser) -> Self {
        Self {
            sale,
            user,
            virtual_user,
            held: 0,
            held_in_carts: HashMap::new(),
            orders: 0,
        }
    }

    /// Random bits for the decisions of the behavior.
    pub fn random(&self) -> u64 {
        // The lower half has chosen the behavior.
        self.virtual_user.random >> 32
    }

    /// Units that one buyer may hold.
    pub fn limit(&self) -> u32 {
        self.sale.limit
    }

    /// Waits.
    pub async fn wait(&self, time: Duration) {
        sleep(time).await;
    }

    /// Waits for a random time.
    pub async fn wait_at_most(&self, ms_max: u64, random: u64) {
        self.wait(Duration::from_millis(random % (ms_max + 1)))
            .await;
    }

    /// Waits until the hold of the order has ended by every clock.
    pub async fn wait_for_expiry(&self, own: &OwnOrder) {
        let end = self.hold() + CLOCK_TOLERANCE;
        sleep(end.saturating_sub(own.started.elapsed())).await;
    }

    fn hold(&self) -> Duration {
        self.sale.items.get(self.virtual_user.item).hold
    }

    fn units_return(&self) -> bool {
        self.sale.units_return(self.virtual_user.item)
    }

    /// Places an order. `name` is the row of the report.
    pub async fn order(&mut self, name: &str, quantity: u32) -> Step<PlacedCall> {
        let call = self.next_order(quantity);
        let settled = self.send(&call).await?;
        let violation = judge::new_order(&settled.last.outcome, quantity, self.holdings());
        self.finish(name, call, settled, violation).await
    }

    /// Places an order of one unit. The session ends if it is refused.
    pub async fn hold_unit(&mut self, name: &str) -> Step<(PlacedCall, OwnOrder)> {
        let placed = self.order(name, 1).await?;
        let own = self.own(&placed).ok_or(End::Early)?;
        Ok((placed, own))
    }

    /// The order of a request, if it was placed.
    fn own(&self, placed: &PlacedCall) -> Option<OwnOrder> {
        let (Outcome::Held { id, .. }, Action::Order(order)) =
            (&placed.outcome, &placed.call.action)
        else {
            return None;
        };
        Some(OwnOrder {
            order: OrderRef {
                id: *id,
                quantity: order.quantity(),
            },
            started: placed.started,
            payment: None,
            state: OrderState::Held,
        })
    }

    /// Repeats a settled request.
    pub async fn repeat(&mut self, name: &str, first: &PlacedCall) -> Step<()> {
        let units_return = self.units_return();
        self.send_again(name, first, |outcome| {
            judge::repeat(&first.outcome, outcome, units_return)
        })
        .await
    }

    /// Repeats the request that placed an order, after the order has changed its state.
    pub async fn repeat_of(&mut self, name: &str, first: &PlacedCall, own: &OwnOrder) -> Step<()> {
        let states = shown(own.state, self.may_have_expired(own.started));
        self.send_again(name, first, |outcome| {
            judge::repeat_of(own.order.id, &states, outcome)
        })
        .await
    }

    async fn send_again(
        &mut self,
        name: &str,
        first: &PlacedCall,
        judge: impl FnOnce(&Outcome) -> Option<Violation>,
    ) -> Step<()> {
        let settled = self.send(&first.call).await?;
        let violation = judge(&settled.last.outcome);
        self.finish(name, first.call.clone(), settled, violation)
            .await?;
        Ok(())
    }

    /// Sends the same request twice concurrently: a double click.
    pub async fn order_twice(&mut self, name: &str, again: &str, quantity: u32) -> Step<()> {
        let call = self.next_order(quantity);
        let (one, other) = self.send_twice(&call).await?;
        let violation = judge::new_order(&one.last.outcome, quantity, self.holdings());
        let of_copies = other.as_ref().and_then(|other| {
            let unknown = one.unknown.len() + other.unknown.len();
            let copies = [&one.last.outcome, &other.last.outcome];
            judge::copies(&copies, unknown, self.units_return())
        });
        self.finish(name, call.clone(), one, violation).await?;
        if let Some(other) = other {
            self.finish(again, call, other, of_copies).await?;
        }
        Ok(())
    }

    /// Sends the same request repeatedly on several connections, and waits only for the last
    /// response.
    pub async fn storm(&mut self, name: &str, quantity: u32, storm: Storm) -> Step<()> {
        // The last request resolves the outcome of the others, so it needs its share of the budget.
        self.take_request()?;
        let call = self.next_order(quantity);
        let (sale, http) = (&self.sale, &self.user.client);
        let mut attempts = Vec::new();
        for _ in 0..storm.rounds {
            let copies = sale.budget.take(u64::from(storm.copies));
            let copies = (0..copies).map(|_| sale.attempt_within(http, &call, storm.timeout));
            attempts.extend(join_all(copies).await);
        }
        let last = sale.send(http, &call).await;
        self.finish_storm(name, &call, attempts, last).await
    }

    async fn finish_storm(
        &mut self,
        name: &str,
        call: &Call,
        attempts: Vec<Attempt>,
        last: Settled,
    ) -> Step<()> {
        let outcomes: Vec<_> = attempts
            .iter()
            .chain([&last.last])
            .map(|attempt| &attempt.outcome)
            .collect();
        let is_given_up = |outcome: &&&Outcome| ***outcome == Outcome::GivenUp;
        let given_up = outcomes.iter().filter(is_given_up).count() + last.unknown.len();
        let violation = judge::copies(&outcomes, given_up, self.units_return());
        let quantity = quantity_of(call);
        let violation = violation.or(judge::new_order(
            &last.last.outcome,
            quantity,
            self.holdings(),
        ));
        for attempt in attempts {
            let name = match attempt.outcome {
                Outcome::GivenUp => "not waited for",
                _ => name,
            };
            let settled = Settled {
                unknown: Vec::new(),
                begun: attempt.begun,
                took: attempt.took,
                last: attempt,
            };
            self.finish(name, call.clone(), settled, None).await?;
        }
        self.finish(name, call.clone(), last, violation).await?;
        Ok(())
    }

    /// Places this many different orders of one unit concurrently.
    pub async fn order_concurrently(&mut self, name: &str, orders: u32) -> Step<()> {
        let orders = self.sale.budget.take(u64::from(orders));
        if orders == 0 {
            return Err(End::Early);
        }
        let calls: Vec<_> = (0..orders).map(|_| self.next_order(1)).collect();
        let sent = calls
            .iter()
            .map(|call| self.sale.send(&self.user.client, call));
        let settled = join_all(sent).await;
        let outcomes: Vec<_> = settled
            .iter()
            .map(|settled| &settled.last.outcome)
            .collect();
        let mut violation = judge::concurrent_orders(&outcomes, 1, self.holdings());
        for (call, settled) in calls.into_iter().zip(settled) {
            self.finish(name, call, settled, violation.take()).await?;
        }
        Ok(())
    }

    /// Shows the item.
    pub async fn browse(&mut self, name: &str) -> Step<()> {
        let known = KnownOrder {
            state: OrderState::Held,
            may_have_expired: false,
            payment: None,
            is_stranger: false,
        };
        let buyer = self.virtual_user.buyer;
        self.request(name, Action::Browse, buyer, None, known)
            .await?;
        Ok(())
    }

    /// Shows an order.
    pub async fn show(&mut self, name: &str, own: &mut OwnOrder) -> Step<()> {
        self.step(name, own, Action::Show(own.order)).await
    }

    /// Tries to show an order as another buyer.
    pub async fn show_as_stranger(&mut self, name: &str, own: &OwnOrder) -> Step<()> {
        let known = KnownOrder {
            state: own.state,
            may_have_expired: false,
            payment: None,
            is_stranger: true,
        };
        let stranger = (self.virtual_user.buyer + 1) % self.sale.buyers.count();
        if stranger == self.virtual_user.buyer {
            return Ok(());
        }
        let action = Action::Show(own.order);
        self.request(name, action, stranger, None, known).await?;
        Ok(())
    }

    /// Reports a payment with this name, as the provider does.
    pub async fn pay(&mut self, name: &str, own: &mut OwnOrder, payment: &str) -> Step<()> {
        let payment = format!("{}-{payment}", own.order.id);
        let action = Action::Pay {
            order: own.order,
            payment: payment.clone(),
        };
        let step = self.step(name, own, action).await;
        if own.payment.is_none() && is_paid(own.state) {
            own.payment = Some(payment);
        }
        step
    }

    /// Cancels the order.
    pub async fn cancel(&mut self, name: &str, own: &mut OwnOrder) -> Step<()> {
        self.step(name, own, Action::Cancel(own.order)).await
    }

    /// Has the money returned, and the units with it.
    pub async fn refund(&mut self, name: &str, own: &mut OwnOrder) -> Step<()> {
        self.step(name, own, Action::Refund(own.order)).await
    }

    async fn step(&mut self, name: &str, own: &mut OwnOrder, action: Action) -> Step<()> {
        let known = KnownOrder {
            state: own.state,
            may_have_expired: false,
            payment: own.payment.as_deref(),
            is_stranger: false,
        };
        let buyer = self.virtual_user.buyer;
        let outcome = self
            .request(name, action, buyer, Some(own.started), known)
            .await?;
        if let Outcome::InState(state) = outcome {
            if own.state.has_units() && !state.has_units() {
                self.held = self.held.saturating_sub(own.order.quantity);
            }
            own.state = state;
        }
        Ok(())
    }

    /// `started`: when the order was requested. Its hold cannot have begun earlier.
    fn may_have_expired(&self, started: Instant) -> bool {
        started.elapsed() + CLOCK_TOLERANCE > self.hold()
    }

    async fn request(
        &mut self,
        name: &str,
        action: Action,
        buyer: usize,
        order_started: Option<Instant>,
        known: KnownOrder<'_>,
    ) -> Step<Outcome> {
        let call = Call {
            buyer,
            item: self.virtual_user.item,
            action,
        };
        let settled = self.send(&call).await?;
        // The hold may have ended while the request was in progress.
        let known = KnownOrder {
            may_have_expired: order_started.is_some_and(|started| self.may_have_expired(started)),
            ..known
        };
        let violation = life::judge(&call.action, known, &settled.last.outcome);
        let finished = self.finish(name, call, settled, violation).await?;
        Ok(finished.outcome)
    }

    /// Takes one request from those that the run may send.
    fn take_request(&self) -> Step<()> {
        match self.sale.budget.take(1) {
            0 => Err(End::Early),
            _ => Ok(()),
        }
    }

    /// Sends a request until its outcome is known.
    async fn send(&self, call: &Call) -> Step<Settled> {
        self.take_request()?;
        Ok(self.sale.send(&self.user.client, call).await)
    }

    /// Sends the same request twice concurrently. Once, if the run may send only one.
    async fn send_twice(&self, call: &Call) -> Step<(Settled, Option<Settled>)> {
        let send = || self.sale.send(&self.user.client, call);
        match self.sale.budget.take(2) {
            0 => Err(End::Early),
            1 => Ok((send().await, None)),
            _ => {
                let (one, other) = futures::join!(send(), send());
                Ok((one, Some(other)))
            }
        }
    }

    fn next_order(&mut self, quantity: u32) -> Call {
        let key = self.next_key();
        let item = self.virtual_user.item;
        let id = &self.sale.items.get(item).id;
        Call {
            buyer: self.virtual_user.buyer,
            item,
            action: Action::Order(NewOrder::new(id, quantity).with_key(IdempotencyKey::from(key))),
        }
    }

    /// Unique within the run: a session has far fewer orders than 2^16.
    fn next_key(&mut self) -> u64 {
        let key = self.virtual_user.session << 16 | u64::from(self.orders);
        self.orders += 1;
        key
    }

    fn holdings(&self) -> Holdings {
        Holdings {
            held: self.held,
            limit: self.sale.limit,
            may_return: self.virtual_user.may_return || self.sale.outages,
        }
    }

    async fn finish(
        &mut self,
        name: &str,
        call: Call,
        settled: Settled,
        violation: Option<Violation>,
    ) -> Step<PlacedCall> {
        let violation =
            violation.filter(|it| !(self.sale.outages && violation::says_little_in_outages(it)));
        let started = Instant::now()
            .checked_sub(settled.took)
            .unwrap_or_else(Instant::now);
        if self.record(&call, &settled, violation) {
            self.held += quantity_of(&call);
        }
        let method = call.action.method();
        for attempt in &settled.unknown {
            self.report_to_goose(method, name, attempt, None).await?;
        }
        self.report_to_goose(method, name, &settled.last, violation)
            .await?;
        Ok(PlacedCall {
            call,
            started,
            outcome: settled.last.outcome,
        })
    }

    /// Records the request in the history. Returns whether it placed an order.
    fn record(&self, call: &Call, settled: &Settled, violation: Option<Violation>) -> bool {
        if matches!(settled.last.outcome, Outcome::Unknown(_)) && !settled.unknown.is_empty() {
            // The service is down, and every other session would wait for it as long.
            self.sale.budget.close();
        }
        // An outcome that was unknown first is an error, even if a repeat resolved it, unless
        // servers are meant to fail.
        let first_unknown = settled.unknown.first();
        let error = first_unknown.filter(|_| !self.sale.outages);
        let unknown = error.and_then(|attempt| attempt.outcome.error());
        self.sale.history().record(&Observation {
            buyer: call.buyer,
            item: call.item,
            action: &call.action,
            outcome: &settled.last.outcome,
            violation: violation.or(unknown),
            begun: settled.begun,
            unknown_first: first_unknown.is_some(),
            took: settled.took,
            at: self.sale.elapsed(),
        })
    }

    /// Reports expected refusals as successes. Goose's own request methods would count them as
    /// failures first.
    async fn report_to_goose(
        &mut self,
        method: &str,
        name: &str,
        attempt: &Attempt,
        violation: Option<Violation>,
    ) -> Step<()> {
        let error = violation.or(attempt.outcome.error());
        self.user
            .record_custom_request_duration(
                method,
                name,
                attempt.took,
                error.is_none(),
                attempt.status,
                error,
            )
            .await
            .map_err(End::Failed)
    }
}

fn quantity_of(call: &Call) -> u32 {
    match &call.action {
        Action::Order(order) => order.quantity(),
        _ => 0,
    }
}
