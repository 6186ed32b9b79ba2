//! Whether the outcome of a step in an order's life is allowed, given the state before.

use ::judge::life::{self, Known, Step};
use client::OrderState;

use crate::{action::Action, outcome::Outcome, violation::Violation};

/// What the session knows about an order before a request.
pub type KnownOrder<'a> = Known<'a, OrderState>;

/// Judges the outcome of a request about an order or an item.
pub fn judge(action: &Action, known: KnownOrder<'_>, outcome: &Outcome) -> Option<Violation> {
    if outcome.error().is_some() {
        return None;
    }
    let (step, violation) = match action {
        // Carts have their own rules.
        Action::Order(_) | Action::Browse | Action::Cart(_) | Action::Step(..) => {
            return (*outcome != Outcome::Item).then_some("the item was not shown");
        }
        Action::Show(_) if known.is_stranger => (Step::Show, "an order was shown to a stranger"),
        Action::Show(_) => (Step::Show, "an order was shown in a wrong state"),
        Action::Pay { payment, .. } => (
            Step::Pay(payment),
            "a payment had an outcome that the order's state does not allow",
        ),
        Action::Cancel(_) => (
            Step::Cancel,
            "a cancellation had an outcome that the order's state does not allow",
        ),
        Action::Refund(_) => (
            Step::Refund,
            "a refund had an outcome that the order's state does not allow",
        ),
    };
    let allowed = life::allowed(step, known);
    let is_allowed = match outcome {
        Outcome::InState(state) => allowed.states.contains(state),
        Outcome::Refused(code) => allowed.code() == Some(*code),
        _ => false,
    };
    (!is_allowed).then_some(violation)
}

#[cfg(test)]
mod tests {
    use client::OrderState;
    use uuid::Uuid;

    use super::{KnownOrder, judge};
    use crate::{
        action::{Action, OrderRef},
        outcome::Outcome,
    };

    const ORDER: OrderRef = OrderRef {
        id: Uuid::nil(),
        quantity: 1,
    };

    #[test]
    fn a_step_has_the_states_and_the_refusal_that_are_allowed() {
        use OrderState::{Cancelled, Confirmed, Held, Refunded};
        let pay = |payment: &str| Action::Pay {
            order: ORDER,
            payment: payment.into(),
        };
        let (cancel, refund) = (Action::Cancel(ORDER), Action::Refund(ORDER));
        let (is, no) = (Outcome::InState, Outcome::Refused);
        let table = [
            (&cancel, Held, true, is(Cancelled), true),
            (&cancel, Held, true, no("order_not_cancellable"), true),
            (&cancel, Held, false, no("order_not_cancellable"), false),
            (&cancel, Held, false, Outcome::SoldOut, false),
            (&cancel, Confirmed, false, is(Cancelled), false),
            (&cancel, Confirmed, false, no("order_not_payable"), false),
            (&refund, Confirmed, false, is(Refunded), true),
            (&pay("its own"), Confirmed, false, is(Confirmed), true),
            (&pay("another"), Confirmed, false, is(Confirmed), false),
            (&pay("another"), Confirmed, false, no("already_paid"), true),
        ];
        for (action, state, may_have_expired, outcome, is_allowed) in table {
            let known = KnownOrder {
                state,
                may_have_expired,
                payment: Some("its own"),
                is_stranger: false,
            };
            let violation = judge(action, known, &outcome);
            assert_eq!(violation.is_none(), is_allowed, "{action:?} {outcome:?}");
        }
    }

    #[test]
    fn another_buyer_sees_nothing() {
        let known = KnownOrder {
            state: OrderState::Held,
            may_have_expired: false,
            payment: None,
            is_stranger: true,
        };
        assert_eq!(
            judge(
                &Action::Show(ORDER),
                known,
                &Outcome::Refused("order_not_found")
            ),
            None
        );
        assert!(
            judge(
                &Action::Show(ORDER),
                known,
                &Outcome::InState(OrderState::Held)
            )
            .is_some()
        );
    }

    #[test]
    fn an_error_is_not_reported_twice() {
        let known = KnownOrder {
            state: OrderState::Held,
            may_have_expired: false,
            payment: None,
            is_stranger: false,
        };
        assert_eq!(
            judge(
                &Action::Cancel(ORDER),
                known,
                &Outcome::Unknown("503 unavailable".into())
            ),
            None
        );
    }
}
