//! Carts in the history. Each line is an order, which counts as every other one.

use std::{collections::hash_map::Entry, sync::Arc, time::Duration};

use ::judge::cart::lines_state;
use client::{CartState, OrderState};

use super::{AcknowledgedOrder, History, Observation};
use crate::{
    action::Action,
    cart::{CartCall, CartRef, CartRefusal, CartStep, LineRef, RefusalReason},
    outcome::Outcome,
};

/// When the units of a cart that failed have certainly come back. Usually they have after
/// milliseconds, but a line that is recorded late waits for a reconciler.
const FAILED_CART_SETTLED: Duration = Duration::from_secs(15);

/// A cart that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgedCart {
    /// The number of the buyer.
    pub buyer: usize,
    /// Its orders.
    pub lines: Arc<[LineRef]>,
    /// The last reported state.
    pub state: CartState,
}

impl History {
    /// Records a placed cart and its orders. Returns whether it was not known.
    pub(super) fn record_cart(&mut self, buyer: usize, cart: &CartRef) -> bool {
        let Entry::Vacant(entry) = self.carts.entry(cart.id) else {
            return false;
        };
        entry.insert(AcknowledgedCart {
            buyer,
            lines: Arc::clone(&cart.lines),
            state: CartState::Held,
        });
        for line in cart.lines.iter() {
            let order = AcknowledgedOrder {
                buyer,
                item: line.item,
                quantity: line.quantity,
                state: OrderState::Held,
            };
            self.orders.entry(line.order).or_insert(order);
        }
        true
    }

    /// Records the reported state of a cart, which is that of all its orders.
    pub(super) fn set_cart_state(&mut self, cart: &CartRef, state: CartState) {
        if let Some(known) = self.carts.get_mut(&cart.id) {
            known.state = state;
        }
        if let Some(state) = lines_state(state) {
            for line in cart.lines.iter() {
                self.set_state(line.order, state);
            }
        }
    }

    pub(super) fn count_step(&mut self, action: &Action) {
        match action {
            Action::Step(_, CartStep::Pay(_)) => self.counts.payments += 1,
            Action::Step(_, CartStep::Extend(_)) => self.counts.carts_extended += 1,
            _ => self.counts.ends += 1,
        }
    }

    /// Records when the lines of a cart may have had units, or one was refused.
    pub(super) fn record_claims_of_cart(&mut self, observation: &Observation<'_>) {
        match (observation.action, observation.outcome) {
            (Action::Cart(_), Outcome::CartHeld { cart, .. }) => {
                for line in cart.lines.iter() {
                    let claims = self.claims.entry(line.item).or_default();
                    claims.took(line.order, observation.begun, line.quantity);
                }
            }
            (Action::Cart(call), Outcome::CartRefused(refusal)) => {
                self.record_refused_cart(observation, call, *refusal);
            }
            (Action::Cart(call), _) => {
                for line in call.lines.iter() {
                    let claims = self.claims.entry(line.item).or_default();
                    claims.may_have_taken(observation.begun, line.quantity);
                }
            }
            // Its units are back before it is acknowledged.
            (
                Action::Step(cart, CartStep::Cancel | CartStep::Refund),
                Outcome::CartInState { .. },
            ) => {
                let until = observation.begun + observation.took;
                for line in cart.lines.iter() {
                    let claims = self.claims.entry(line.item).or_default();
                    claims.came_back(line.order, until, line.quantity);
                }
            }
            _ => {}
        }
    }

    /// The lines before the one that was refused had units for a while: they are taken by item. If
    /// the refusal is not final, another request for the cart may have taken all lines.
    fn record_refused_cart(
        &mut self,
        observation: &Observation<'_>,
        call: &CartCall,
        refusal: CartRefusal,
    ) {
        let (begun, until) = (observation.begun, observation.begun + observation.took);
        let refused = refusal.line.map(|line| &call.lines[line]);
        for line in call.lines.iter() {
            let claims = self.claims.entry(line.item).or_default();
            let name = format!("{}:{}", observation.buyer, call.cart.key());
            claims.requested(name.clone(), begun);
            if Some(line) == refused && refusal.reason == RefusalReason::SoldOut {
                claims.refused(name, until, line.quantity);
                if line.quantity == 1 {
                    self.reported_sold_out.insert(line.item);
                }
            }
            if refused.is_none_or(|refused| line.id < refused.id) {
                let back = until + FAILED_CART_SETTLED;
                claims.may_have_taken_until(begun, back, line.quantity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use client::{CartState, IdempotencyKey};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::{CartRef, CartStep, LineRef};
    use crate::{
        action::Action,
        cart::{CartCall, CartRefusal, RefusalReason, WantedLine},
        history::{History, Observation},
        outcome::Outcome,
    };

    fn call(key: u64) -> Action {
        let line = |item: usize, quantity| WantedLine {
            item,
            id: format!("vase-{item}"),
            quantity,
        };
        let lines = vec![line(1, 1), line(0, 2)];
        Action::Cart(CartCall::new(lines, IdempotencyKey::from(key)))
    }

    fn cart() -> CartRef {
        let line = |item: usize, quantity| LineRef {
            order: Uuid::from_u128(item as u128),
            item,
            quantity,
        };
        CartRef {
            id: Uuid::from_u128(9),
            lines: Arc::new([line(1, 1), line(0, 2)]),
            expires_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn held(replayed: bool) -> Outcome {
        let cart = cart();
        Outcome::CartHeld { cart, replayed }
    }

    fn record(history: &mut History, at_ms: u64, action: &Action, outcome: &Outcome) {
        let begun = Duration::from_millis(at_ms);
        history.record(&Observation {
            item: 1,
            begun,
            at: begun + Duration::from_millis(1),
            ..Observation::of(action, outcome)
        });
    }

    fn step(history: &mut History, step: CartStep, state: CartState) {
        let expires_at = Timestamp::UNIX_EPOCH;
        let outcome = Outcome::CartInState { state, expires_at };
        record(history, 100, &Action::Step(cart(), step), &outcome);
    }

    #[test]
    fn the_lines_of_a_cart_are_orders_that_change_together() {
        let mut history = History::new().unwrap();
        record(&mut history, 0, &call(1), &held(false));
        record(&mut history, 0, &call(1), &held(true));
        assert_eq!(
            (
                history.counts.carts,
                history.counts.replayed,
                history.counts.held
            ),
            (1, 1, 0)
        );
        assert_eq!((history.units(0), history.units(1)), (2, 1));
        step(&mut history, CartStep::Extend(9), CartState::Held);
        step(
            &mut history,
            CartStep::Pay("pay".into()),
            CartState::Confirmed,
        );
        assert_eq!((history.units_paid(0), history.units_paid(1)), (2, 1));
        assert_eq!((history.buyers_over(2), history.buyers_over(1)), (0, 1));
        step(&mut history, CartStep::Show, CartState::Confirmed);
        step(&mut history, CartStep::Refund, CartState::Refunded);
        assert_eq!(
            (
                history.units(0),
                history.units(1),
                history.counts.units_returned
            ),
            (0, 0, 3)
        );
        let counts = (
            history.counts.carts_extended,
            history.counts.payments,
            history.counts.reads,
            history.counts.ends,
        );
        assert_eq!(counts, (1, 1, 1, 1));
        assert_eq!(history.counts.requested, 6);
    }

    #[test]
    fn a_refused_cart_may_have_had_the_lines_before_the_one_that_was_refused() {
        let mut history = History::new().unwrap();
        let refused = |line| {
            Outcome::CartRefused(CartRefusal {
                reason: RefusalReason::SoldOut,
                line: Some(line),
                is_final: true,
            })
        };
        // Line 0 is of the item 1, which comes last.
        record(&mut history, 1000, &call(1), &refused(0));
        assert_eq!(history.wrongly_sold_out(1, 1), 1, "one was free");
        assert_eq!(history.wrongly_sold_out(1, 0), 0);
        assert!(history.reported_sold_out.contains(&1));
        record(&mut history, 1010, &call(2), &refused(1));
        assert_eq!(
            history.wrongly_sold_out(0, 3),
            0,
            "the first cart may have had two"
        );
        assert_eq!(history.wrongly_sold_out(0, 4), 1);
        record(&mut history, 60_000, &call(3), &refused(1));
        assert_eq!(history.wrongly_sold_out(0, 3), 1, "they have come back");
        assert_eq!(history.counts.carts_refused, 3);
    }
}
