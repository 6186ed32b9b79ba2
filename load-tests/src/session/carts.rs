//! The carts of a session.

use std::time::{Duration, Instant};

use ::judge::life::{is_paid, shown};
use client::{CartState, IdempotencyKey, OrderState};
use tokio::time::sleep;

use super::{CLOCK_TOLERANCE, End, PlacedCall, Session, Step};
use crate::{
    action::{Action, Call, OrderRef},
    cart::{
        CartCall, CartRef, CartStep, WantedLine,
        judge::{self, KnownCart},
    },
    mix,
    outcome::Outcome,
    sale::Settled,
    violation::Violation,
};

/// Lines of a cart.
const LINES: std::ops::RangeInclusive<usize> = 2..=5;
/// Of so many carts, one may have scarce items.
const SCARCE_ONE_OF: u64 = 4;

/// A cart that only this session changes.
#[derive(Debug)]
pub struct OwnCart {
    cart: CartRef,
    started: Instant,
    /// How long its holds are at least.
    hold: Duration,
    payment: Option<String>,
    /// The last reported state.
    pub state: CartState,
}

impl Session<'_> {
    /// Items for a cart, each once, with one or two units. The buyer's limit allows them.
    pub fn wanted_lines(&self) -> Vec<WantedLine> {
        let random = |number| mix::random(self.virtual_user.random, number);
        let items = self.sale.items.beside(self.virtual_user.item);
        let may_be_scarce = random(100).is_multiple_of(SCARCE_ONE_OF);
        let mut items: Vec<_> = items
            .filter(|item| may_be_scarce || !self.sale.items.get(*item).is_scarce)
            .collect();
        items.sort_unstable_by_key(|item| random(*item as u64));
        let most = *LINES.end().min(&items.len());
        let count = LINES.start() + (random(101) as usize) % (most - LINES.start() + 1);
        items.truncate(count);
        let quantity = |item: usize| 1 + (random(200 + item as u64) % 2) as u32;
        let line = |item: usize| self.wanted(item, quantity(item).min(self.sale.limit));
        items.into_iter().map(line).collect()
    }

    /// The items of a cart, each with as many units as one buyer may hold.
    pub fn lines_at_the_limit(&self, own: &OwnCart) -> Vec<WantedLine> {
        let limit = self.sale.limit;
        own.lines()
            .map(|line| self.wanted(line.item, limit))
            .collect()
    }

    fn wanted(&self, item: usize, quantity: u32) -> WantedLine {
        WantedLine {
            item,
            id: self.sale.items.get(item).id.clone(),
            quantity,
        }
    }

    /// Places a cart of these lines. `name` is the row of the report.
    pub async fn cart(&mut self, name: &str, lines: Vec<WantedLine>) -> Step<PlacedCall> {
        let call = self.next_cart(lines);
        let settled = self.send(&call).await?;
        let violation = self.judge_new(&call, &settled.last.outcome);
        self.finish_cart(name, call, settled, violation).await
    }

    /// Places a cart of the wanted lines. The session ends if it is refused.
    pub async fn hold_cart(&mut self, name: &str) -> Step<(PlacedCall, OwnCart)> {
        let lines = self.wanted_lines();
        let placed = self.cart(name, lines).await?;
        let own = self.own_cart(&placed).ok_or(End::Early)?;
        Ok((placed, own))
    }

    /// Sends the same cart twice concurrently: a double click.
    pub async fn cart_twice(
        &mut self,
        name: &str,
        again: &str,
        lines: Vec<WantedLine>,
    ) -> Step<()> {
        let call = self.next_cart(lines);
        let (one, other) = self.send_twice(&call).await?;
        let violation = self.judge_new(&call, &one.last.outcome);
        let of_copies = other.as_ref().and_then(|other| {
            let were_unknown = one.unknown.len() + other.unknown.len() > 0;
            judge::copies(&one.last.outcome, &other.last.outcome, were_unknown)
        });
        self.finish_cart(name, call.clone(), one, violation).await?;
        if let Some(other) = other {
            self.finish_cart(again, call, other, of_copies).await?;
        }
        Ok(())
    }

    /// Repeats the request of a cart, which `own` is by now if it was held.
    pub async fn repeat_cart(
        &mut self,
        name: &str,
        first: &PlacedCall,
        own: Option<&OwnCart>,
    ) -> Step<()> {
        let call = first.call.clone();
        let settled = self.send(&call).await?;
        let states = own.map_or_else(
            || vec![CartState::Held],
            |own| shown(own.state, own.may_have_expired()),
        );
        let violation = judge::repeat(&first.outcome, &states, &settled.last.outcome);
        self.finish_cart(name, call, settled, violation).await?;
        Ok(())
    }

    /// The cart of a request, if it was placed.
    pub fn own_cart(&self, placed: &PlacedCall) -> Option<OwnCart> {
        let Outcome::CartHeld { cart, .. } = &placed.outcome else {
            return None;
        };
        Some(OwnCart {
            cart: cart.clone(),
            started: placed.started,
            hold: self.hold(),
            payment: None,
            state: CartState::Held,
        })
    }

    /// Waits until the holds of the cart have ended by every clock.
    pub async fn wait_for_expiry_of(&self, own: &OwnCart) {
        let end = own.hold + CLOCK_TOLERANCE;
        sleep(end.saturating_sub(own.started.elapsed())).await;
    }

    /// Shows the cart.
    pub async fn show_cart(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        self.step_cart(name, own, CartStep::Show).await
    }

    /// Extends the holds of the cart as far as its items allow.
    pub async fn extend_cart(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        let hold = self.sale.items.get(self.virtual_user.item).longest_hold();
        let seconds = u32::try_from(hold.as_secs()).unwrap_or(u32::MAX);
        let step = self.step_cart(name, own, CartStep::Extend(seconds)).await;
        if own.state == CartState::Held {
            own.hold = hold;
        }
        step
    }

    /// Reports a payment of the cart with this name, as the provider does.
    pub async fn pay_cart(&mut self, name: &str, own: &mut OwnCart, payment: &str) -> Step<()> {
        let payment = format!("{}-{payment}", own.cart.id);
        self.step_cart(name, own, CartStep::Pay(payment)).await
    }

    /// Cancels the cart.
    pub async fn cancel_cart(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        self.step_cart(name, own, CartStep::Cancel).await
    }

    /// Has the money of the cart returned.
    pub async fn refund_cart(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        self.step_cart(name, own, CartStep::Refund).await
    }

    /// Tries to show the cart as another buyer.
    pub async fn show_cart_as_stranger(&mut self, name: &str, own: &OwnCart) -> Step<()> {
        let stranger = (self.virtual_user.buyer + 1) % self.sale.buyers.count();
        if stranger == self.virtual_user.buyer {
            return Ok(());
        }
        let call = self.call_of(stranger, own, CartStep::Show);
        let settled = self.send(&call).await?;
        let known = KnownCart {
            is_stranger: true,
            ..own.known()
        };
        let violation = judge::step(&CartStep::Show, known, &settled.last.outcome);
        self.finish(name, call, settled, violation).await?;
        Ok(())
    }

    /// Tries to change each line alone, by `action`. Only the cart changes its lines.
    pub async fn change_lines_alone(
        &mut self,
        name: &str,
        own: &OwnCart,
        action: fn(OrderRef) -> Action,
    ) -> Step<()> {
        for line in own.lines() {
            let call = self.call_of_line(line.item, action(line.order));
            let settled = self.send(&call).await?;
            let outcome = &settled.last.outcome;
            let is_refused = *outcome == Outcome::Refused("order_in_cart");
            let violation = (!is_refused && outcome.error().is_none())
                .then_some("a line of a cart was changed alone");
            self.finish(name, call, settled, violation).await?;
        }
        Ok(())
    }

    /// Pays the cart, and shows its lines one after the other meanwhile.
    pub async fn pay_and_watch(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        let payment = format!("{}-watched", own.cart.id);
        self.watch_cart(name, own, CartStep::Pay(payment)).await
    }

    /// Cancels the cart, and shows its lines one after the other meanwhile.
    pub async fn cancel_and_watch(&mut self, name: &str, own: &mut OwnCart) -> Step<()> {
        self.watch_cart(name, own, CartStep::Cancel).await
    }

    /// Makes a step of the cart, and shows its lines one after the other meanwhile.
    async fn watch_cart(&mut self, name: &str, own: &mut OwnCart, step: CartStep) -> Step<()> {
        let requests = self.sale.budget.take(own.cart.lines.len() as u64 + 1);
        let lines = requests.checked_sub(1).ok_or(End::Early)?;
        let show = |line: Line| self.call_of_line(line.item, Action::Show(line.order));
        let calls = own.lines().take(usize::try_from(lines).unwrap_or(0));
        let calls: Vec<_> = calls.map(show).collect();
        let step_call = self.call_of(self.virtual_user.buyer, own, step.clone());
        let http = &self.user.client;
        let watch = async {
            let mut shown = Vec::with_capacity(calls.len());
            for call in &calls {
                shown.push(self.sale.send(http, call).await);
            }
            shown
        };
        let (stepped, shown) = futures::join!(self.sale.send(http, &step_call), watch);
        let states: Vec<_> = shown
            .iter()
            .filter_map(|it| shown_state(&it.last.outcome))
            .collect();
        let mut violation = judge::lines_in_turn(&states);
        // What the lines show may be older than the step.
        for (call, settled) in calls.into_iter().zip(shown) {
            let violation = violation.take();
            self.finish_shown_line(call, settled, violation).await?;
        }
        self.finish_step(name, own, (step_call, step), stepped)
            .await
    }

    async fn finish_shown_line(
        &mut self,
        call: Call,
        settled: Settled,
        violation: Option<Violation>,
    ) -> Step<()> {
        let is_shown = shown_state(&settled.last.outcome).is_some();
        let is_wrong = !is_shown && settled.last.outcome.error().is_none();
        let violation = violation.or(is_wrong.then_some("a line of a cart was not shown"));
        self.finish("watch line of cart", call, settled, violation)
            .await?;
        Ok(())
    }

    async fn step_cart(&mut self, name: &str, own: &mut OwnCart, step: CartStep) -> Step<()> {
        let call = self.call_of(self.virtual_user.buyer, own, step.clone());
        let settled = self.send(&call).await?;
        self.finish_step(name, own, (call, step), settled).await
    }

    async fn finish_step(
        &mut self,
        name: &str,
        own: &mut OwnCart,
        (call, step): (Call, CartStep),
        settled: Settled,
    ) -> Step<()> {
        let outcome = settled.last.outcome.clone();
        let violation = judge::step(&step, own.known(), &outcome);
        self.finish(name, call, settled, violation).await?;
        let Outcome::CartInState { state, expires_at } = outcome else {
            return Ok(());
        };
        if own.state.has_units() && !state.has_units() {
            for line in own.cart.lines.iter() {
                let held = self.held_in_carts.entry(line.item).or_default();
                *held = held.saturating_sub(line.quantity);
            }
        }
        if let CartStep::Pay(payment) = step
            && is_paid(state)
        {
            own.payment.get_or_insert(payment);
        }
        own.state = state;
        own.cart.expires_at = expires_at;
        Ok(())
    }

    fn call_of(&self, buyer: usize, own: &OwnCart, step: CartStep) -> Call {
        Call {
            buyer,
            item: self.virtual_user.item,
            action: Action::Step(own.cart.clone(), step),
        }
    }

    fn call_of_line(&self, item: usize, action: Action) -> Call {
        Call {
            buyer: self.virtual_user.buyer,
            item,
            action,
        }
    }

    fn next_cart(&mut self, lines: Vec<WantedLine>) -> Call {
        let number = self.next_key();
        // A cart's key names no item, and the same buyers have carts of other runs.
        let items = lines.first().map_or("", |line| &*line.id);
        let key = IdempotencyKey::new(format!("{items}-{number}"));
        let key = key.unwrap_or_else(|_| IdempotencyKey::from(number));
        Call {
            buyer: self.virtual_user.buyer,
            item: lines.first().map_or(0, |line| line.item),
            action: Action::Cart(CartCall::new(lines, key)),
        }
    }

    fn judge_new(&self, call: &Call, outcome: &Outcome) -> Option<Violation> {
        let Action::Cart(cart) = &call.action else {
            return None;
        };
        let may_return = self.virtual_user.may_return || self.sale.outages;
        let held = |item| self.held_in_carts.get(&item).copied().unwrap_or_default();
        judge::new_cart(outcome, &cart.lines, |line| {
            let fits = held(line.item) + line.quantity <= self.sale.limit;
            // Other sessions may hold more, so only what this one holds is certain.
            (!fits || !may_return).then_some(fits)
        })
    }

    async fn finish_cart(
        &mut self,
        name: &str,
        call: Call,
        settled: Settled,
        violation: Option<Violation>,
    ) -> Step<PlacedCall> {
        let placed = self.finish(name, call, settled, violation).await?;
        if let Outcome::CartHeld {
            cart,
            replayed: false,
        } = &placed.outcome
        {
            for line in cart.lines.iter() {
                *self.held_in_carts.entry(line.item).or_default() += line.quantity;
            }
        }
        Ok(placed)
    }
}

impl OwnCart {
    /// The holds cannot have begun before the request. The judge tolerates a difference of clocks.
    fn may_have_expired(&self) -> bool {
        self.started.elapsed() + CLOCK_TOLERANCE > self.hold
    }

    /// The time until its holds end, at least.
    pub fn remaining(&self) -> Duration {
        self.hold.saturating_sub(self.started.elapsed())
    }

    fn known(&self) -> KnownCart<'_> {
        KnownCart {
            state: self.state,
            expires_at: self.cart.expires_at,
            may_have_expired: self.may_have_expired(),
            payment: self.payment.as_deref(),
            is_stranger: false,
        }
    }

    fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.cart.lines.iter().map(|line| Line {
            item: line.item,
            order: OrderRef {
                id: line.order,
                quantity: line.quantity,
            },
        })
    }
}

/// The order of a line, and its item.
struct Line {
    item: usize,
    order: OrderRef,
}

fn shown_state(outcome: &Outcome) -> Option<OrderState> {
    match outcome {
        Outcome::InState(state) => Some(*state),
        _ => None,
    }
}
