//! Whether the outcome of a cart's request is allowed, given the earlier outcomes.

use ::judge::life::{self, Known, Step, may_follow};
use client::{CartState, OrderState};
use jiff::Timestamp;

use super::{CartRefusal, CartStep, RefusalReason, WantedLine};
use crate::{
    outcome::Outcome,
    violation::{ALL_CARTS_MARKED, CART_TOO_SLOW, CART_UNMARKED, CART_UNMARKED_COPIES, Violation},
};

/// What the session knows about a cart before a request.
#[derive(Debug, Clone, Copy)]
pub struct KnownCart<'a> {
    /// The last reported state.
    pub state: CartState,
    /// The last reported end of its holds.
    pub expires_at: Timestamp,
    /// Whether its holds may have ended, if the state is `held`.
    pub may_have_expired: bool,
    /// The payment that paid it.
    pub payment: Option<&'a str>,
    /// Whether the request is from another buyer.
    pub is_stranger: bool,
}

impl<'a> KnownCart<'a> {
    fn life(&self) -> Known<'a, CartState> {
        Known {
            state: self.state,
            may_have_expired: self.may_have_expired,
            payment: self.payment,
            is_stranger: self.is_stranger,
        }
    }
}

/// Judges the outcome of a cart with a new key. `fits` says whether a line is within the buyer's
/// limit; `None`: other sessions of the buyer may hold more.
pub fn new_cart(
    outcome: &Outcome,
    lines: &[WantedLine],
    fits: impl Fn(&WantedLine) -> Option<bool>,
) -> Option<Violation> {
    match outcome {
        Outcome::CartHeld { .. } if lines.iter().any(|line| fits(line) == Some(false)) => {
            Some("a cart over the buyer's limit was held")
        }
        Outcome::CartMovedOn { .. } => Some("a new cart was not held when it was placed"),
        Outcome::CartRefused(CartRefusal {
            reason: RefusalReason::Limited,
            line: Some(line),
            ..
        }) if fits(&lines[*line]) == Some(true) => {
            Some("a cart below the buyer's limit was refused because of the limit")
        }
        Outcome::CartRefused(refusal) if refusal.reason == RefusalReason::TimedOut => {
            Some(CART_TOO_SLOW)
        }
        _ => None,
    }
}

/// Judges the outcome of a request that was sent after the same cart had been answered. Its state
/// may be one of `states` by now.
pub fn repeat(first: &Outcome, states: &[CartState], again: &Outcome) -> Option<Violation> {
    if first.error().is_some() || again.error().is_some() {
        return None;
    }
    let is_same = match (first, again) {
        (
            Outcome::CartHeld { cart, .. },
            Outcome::CartHeld {
                cart: again,
                replayed,
            },
        ) => {
            if cart.id == again.id && !replayed {
                return Some(CART_UNMARKED);
            }
            cart.id == again.id && cart.lines == again.lines && states.contains(&CartState::Held)
        }
        (Outcome::CartHeld { cart, .. }, Outcome::CartMovedOn { id, state }) => {
            cart.id == *id && states.contains(state)
        }
        (Outcome::CartRefused(first), Outcome::CartHeld { .. }) => !first.is_final,
        (Outcome::CartRefused(_), Outcome::CartRefused(_)) => true,
        _ => false,
    };
    (!is_same).then_some("a repeat of a cart reported another cart or another state")
}

/// Judges the outcomes of the same cart that was placed twice concurrently.
pub fn copies(one: &Outcome, other: &Outcome, were_unknown: bool) -> Option<Violation> {
    match (one, other) {
        (
            Outcome::CartHeld { cart, replayed },
            Outcome::CartHeld {
                cart: other,
                replayed: replayed_too,
            },
        ) => match (replayed, replayed_too) {
            _ if cart.id != other.id || cart.lines != other.lines => {
                Some("concurrent copies of a cart placed different carts")
            }
            (false, false) => Some(CART_UNMARKED_COPIES),
            (true, true) if !were_unknown => Some(ALL_CARTS_MARKED),
            _ => None,
        },
        (Outcome::CartHeld { .. }, Outcome::CartRefused(refusal))
        | (Outcome::CartRefused(refusal), Outcome::CartHeld { .. })
            if refusal.is_final =>
        {
            Some("of concurrent copies of a cart, one was held and one refused for good")
        }
        _ => None,
    }
}

/// Judges the outcome of a step.
pub fn step(step: &CartStep, known: KnownCart<'_>, outcome: &Outcome) -> Option<Violation> {
    if outcome.error().is_some() {
        return None;
    }
    let allowed = life::allowed(step_of_life(step), known.life());
    match outcome {
        Outcome::CartInState { state, expires_at } if allowed.states.contains(state) => {
            let is_longer = *expires_at > known.expires_at || !matches!(step, CartStep::Extend(_));
            (!is_longer).then_some("a cart was extended, and its holds end no later")
        }
        Outcome::Refused(refused) if allowed.code() == Some(*refused) => None,
        _ => Some(match step {
            CartStep::Show if known.is_stranger => "a cart was shown to a stranger",
            CartStep::Show => "a cart was shown in a wrong state",
            CartStep::Extend(_) => {
                "an extension had an outcome that the cart's state does not allow"
            }
            CartStep::Pay(_) => "a payment had an outcome that the cart's state does not allow",
            CartStep::Cancel => {
                "a cancellation had an outcome that the cart's state does not allow"
            }
            CartStep::Refund => "a refund had an outcome that the cart's state does not allow",
        }),
    }
}

fn step_of_life(step: &CartStep) -> Step<'_> {
    match step {
        CartStep::Show => Step::Show,
        CartStep::Extend(_) => Step::Extend,
        CartStep::Pay(payment) => Step::Pay(payment),
        CartStep::Cancel => Step::Cancel,
        CartStep::Refund => Step::Refund,
    }
}

/// Judges the states of the lines of one cart that were shown one after the other, while the cart
/// changed. Each must be reachable from the one before, as if all were one order.
pub fn lines_in_turn(states: &[OrderState]) -> Option<Violation> {
    let is_half_sold = states
        .windows(2)
        .any(|pair| pair[0] != pair[1] && !may_follow(pair[0], pair[1]));
    is_half_sold.then_some("a cart was half sold: its lines were shown in states that no cart has")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client::{CartState, OrderState};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::{KnownCart, copies, lines_in_turn, new_cart, repeat, step};
    use crate::{
        cart::{CartRef, CartRefusal, CartStep, LineRef, RefusalReason, WantedLine},
        outcome::Outcome,
    };

    fn held(id: u128, replayed: bool) -> Outcome {
        let line = |item| LineRef {
            order: Uuid::from_u128(id * 10 + item as u128),
            item,
            quantity: 1,
        };
        Outcome::CartHeld {
            cart: CartRef {
                id: Uuid::from_u128(id),
                lines: Arc::new([line(0), line(1)]),
                expires_at: Timestamp::UNIX_EPOCH,
            },
            replayed,
        }
    }

    fn refused(reason: RefusalReason, is_final: bool) -> Outcome {
        Outcome::CartRefused(CartRefusal {
            reason,
            line: Some(1),
            is_final,
        })
    }

    fn moved_on(id: u128, state: CartState) -> Outcome {
        let id = Uuid::from_u128(id);
        Outcome::CartMovedOn { id, state }
    }

    #[test]
    fn a_cart_may_exceed_no_limit_of_one_of_its_items() {
        let line = |item| WantedLine {
            item,
            id: format!("vase-{item}"),
            quantity: 2,
        };
        let lines = [line(0), line(1)];
        let limited = refused(RefusalReason::Limited, true);
        let judge = |outcome: &Outcome, fits| new_cart(outcome, &lines, |_| fits);
        assert_eq!(judge(&held(1, false), Some(true)), None);
        assert!(judge(&held(1, false), Some(false)).is_some());
        assert!(judge(&limited, Some(true)).is_some());
        assert_eq!(judge(&limited, Some(false)), None);
        assert_eq!(judge(&limited, None), None, "another session may hold some");
        assert_eq!(judge(&held(1, false), None), None);
        assert!(judge(&moved_on(1, CartState::Cancelled), Some(true)).is_some());
        assert!(judge(&refused(RefusalReason::TimedOut, true), Some(true)).is_some());
    }

    #[test]
    fn a_repeat_is_the_same_cart() {
        const HELD: [CartState; 1] = [CartState::Held];
        let sold_out = |is_final| refused(RefusalReason::SoldOut, is_final);
        let ended = [CartState::Cancelled];
        assert_eq!(repeat(&held(1, false), &HELD, &held(1, true)), None);
        assert!(repeat(&held(1, false), &HELD, &held(1, false)).is_some());
        assert!(repeat(&held(1, false), &HELD, &held(2, true)).is_some());
        assert!(repeat(&held(1, false), &HELD, &sold_out(true)).is_some());
        let cancelled = moved_on(1, CartState::Cancelled);
        assert_eq!(repeat(&held(1, false), &ended, &cancelled), None);
        assert!(repeat(&held(1, false), &HELD, &cancelled).is_some());
        assert!(repeat(&held(1, false), &ended, &held(1, true)).is_some());
        assert_eq!(repeat(&sold_out(true), &HELD, &sold_out(false)), None);
        assert!(repeat(&sold_out(true), &HELD, &held(1, false)).is_some());
        assert_eq!(repeat(&sold_out(false), &HELD, &held(1, false)), None);
    }

    #[test]
    fn concurrent_copies_are_one_cart() {
        let sold_out = |is_final| refused(RefusalReason::SoldOut, is_final);
        assert_eq!(copies(&held(1, false), &held(1, true), false), None);
        assert_eq!(copies(&held(1, true), &held(1, true), true), None);
        assert!(copies(&held(1, true), &held(1, true), false).is_some());
        assert!(copies(&held(1, false), &held(1, false), false).is_some());
        assert!(copies(&held(1, false), &held(2, false), false).is_some());
        assert!(copies(&held(1, false), &sold_out(true), false).is_some());
        assert_eq!(copies(&sold_out(false), &held(1, false), false), None);
        assert_eq!(copies(&sold_out(true), &sold_out(true), false), None);
    }

    #[test]
    fn a_step_has_the_states_and_the_refusal_that_are_allowed() {
        use CartState::{Cancelled, Confirmed, Held, Refunded};
        use CartStep::{Cancel, Extend, Pay, Refund, Show};
        let expires_at = Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let is = |state| Outcome::CartInState { state, expires_at };
        let no = Outcome::Refused;
        let pay = |payment: &str| Pay(payment.to_owned());
        let table = [
            (Cancel, Held, true, is(Cancelled), true),
            (Cancel, Held, true, no("cart_not_cancellable"), true),
            (Cancel, Held, false, no("cart_not_cancellable"), false),
            (Cancel, Confirmed, false, is(Cancelled), false),
            (Cancel, Confirmed, false, no("cart_not_payable"), false),
            (Extend(9), Held, false, is(Held), true),
            (Extend(9), Confirmed, false, no("cart_not_extendable"), true),
            (Refund, Confirmed, false, is(Refunded), true),
            (pay("its own"), Confirmed, false, is(Confirmed), true),
            (pay("another"), Confirmed, false, is(Confirmed), false),
            (pay("another"), Confirmed, false, no("already_paid"), true),
            (Show, Confirmed, false, is(Confirmed), true),
            (Show, Confirmed, false, is(Held), false),
        ];
        for (request, state, may_have_expired, outcome, is_allowed) in table {
            let known = KnownCart {
                state,
                expires_at: Timestamp::UNIX_EPOCH,
                may_have_expired,
                payment: Some("its own"),
                is_stranger: false,
            };
            let violation = step(&request, known, &outcome);
            assert_eq!(violation.is_none(), is_allowed, "{request:?} {outcome:?}");
        }
    }

    #[test]
    fn an_extended_cart_ends_later_and_a_stranger_sees_nothing() {
        let known = KnownCart {
            state: CartState::Held,
            expires_at: Timestamp::UNIX_EPOCH,
            may_have_expired: false,
            payment: None,
            is_stranger: false,
        };
        let shown = Outcome::CartInState {
            state: CartState::Held,
            expires_at: Timestamp::UNIX_EPOCH,
        };
        assert!(step(&CartStep::Extend(9), known, &shown).is_some());
        assert_eq!(step(&CartStep::Show, known, &shown), None);
        let is_stranger = true;
        let stranger = KnownCart {
            is_stranger,
            ..known
        };
        assert!(step(&CartStep::Show, stranger, &shown).is_some());
        let hidden = Outcome::Refused("cart_not_found");
        assert_eq!(step(&CartStep::Show, stranger, &hidden), None);
    }

    #[test]
    fn lines_that_are_read_in_turn_show_one_cart_that_moves_on() {
        use OrderState::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded};
        for good in [
            &[Held, Held, Confirmed][..],
            &[Held, Cancelled],
            &[Expired, RefundDue],
            &[Expired, Held, Confirmed],
            &[Confirmed, Confirmed, Refunded],
            &[],
        ] {
            assert_eq!(lines_in_turn(good), None, "{good:?}");
        }
        for bad in [
            [Confirmed, Held],
            [Confirmed, Cancelled],
            [Cancelled, Confirmed],
            [Cancelled, Held],
            [Confirmed, Expired],
            [RefundDue, Confirmed],
        ] {
            assert!(lines_in_turn(&bad).is_some(), "{bad:?}");
        }
    }
}
