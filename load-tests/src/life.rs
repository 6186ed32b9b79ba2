//! Whether the outcome of a step in an order's life is allowed, given the state before.

use client::OrderState;

use crate::{action::Action, outcome::Outcome, violation::Violation};

/// What the session knows about an order before a request.
#[derive(Debug, Clone, Copy)]
pub struct KnownOrder<'a> {
    /// The last reported state.
    pub state: OrderState,
    /// Whether the hold may have ended, if the state is `held`.
    pub may_have_expired: bool,
    /// The payment that paid the order.
    pub payment: Option<&'a str>,
    /// Whether the request is from another buyer.
    pub is_stranger: bool,
}

/// Judges the outcome of a request about an order or an item.
pub fn judge(action: &Action, known: KnownOrder<'_>, outcome: &Outcome) -> Option<Violation> {
    if outcome.error().is_some() {
        return None;
    }
    let (allowed, violation) = allowed(action, known);
    (!allowed.contains(outcome)).then_some(violation)
}

fn allowed(action: &Action, known: KnownOrder<'_>) -> (Vec<Outcome>, Violation) {
    match action {
        // Carts have their own rules.
        Action::Order(_) | Action::Browse | Action::Cart(_) | Action::Step(..) => {
            (vec![Outcome::Item], "the item was not shown")
        }
        Action::Show(_) if known.is_stranger => (
            vec![Outcome::Refused("order_not_found")],
            "an order was shown to a stranger",
        ),
        Action::Show(_) => (shown(known), "an order was shown in a wrong state"),
        Action::Pay { payment, .. } => (
            paid(known, payment),
            "a payment had an outcome that the order's state does not allow",
        ),
        Action::Cancel(_) => (
            cancelled(known),
            "a cancellation had an outcome that the order's state does not allow",
        ),
        Action::Refund(_) => (
            refunded(known),
            "a refund had an outcome that the order's state does not allow",
        ),
    }
}

fn shown(known: KnownOrder<'_>) -> Vec<Outcome> {
    match known.state {
        OrderState::Held if known.may_have_expired => {
            vec![
                Outcome::InState(OrderState::Held),
                Outcome::InState(OrderState::Expired),
            ]
        }
        state => vec![Outcome::InState(state)],
    }
}

fn paid(known: KnownOrder<'_>, payment: &str) -> Vec<Outcome> {
    let late = || {
        vec![
            Outcome::InState(OrderState::Confirmed),
            Outcome::InState(OrderState::RefundDue),
        ]
    };
    match known.state {
        OrderState::Held if known.may_have_expired => late(),
        OrderState::Expired => late(),
        OrderState::Held => vec![Outcome::InState(OrderState::Confirmed)],
        state @ (OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded)
            if known.payment == Some(payment) =>
        {
            vec![Outcome::InState(state)]
        }
        OrderState::Confirmed | OrderState::RefundDue => vec![Outcome::Refused("already_paid")],
        OrderState::Cancelled | OrderState::Refunded => vec![Outcome::Refused("order_not_payable")],
        OrderState::Rejected => Vec::new(),
    }
}

fn cancelled(known: KnownOrder<'_>) -> Vec<Outcome> {
    const REFUSED: Outcome = Outcome::Refused("order_not_cancellable");
    match known.state {
        OrderState::Held if known.may_have_expired => {
            vec![Outcome::InState(OrderState::Cancelled), REFUSED]
        }
        OrderState::Held | OrderState::Cancelled => vec![Outcome::InState(OrderState::Cancelled)],
        OrderState::Confirmed
        | OrderState::Expired
        | OrderState::RefundDue
        | OrderState::Refunded => vec![REFUSED],
        OrderState::Rejected => Vec::new(),
    }
}

fn refunded(known: KnownOrder<'_>) -> Vec<Outcome> {
    match known.state {
        OrderState::Confirmed | OrderState::RefundDue | OrderState::Refunded => {
            vec![Outcome::InState(OrderState::Refunded)]
        }
        OrderState::Held | OrderState::Expired | OrderState::Cancelled => {
            vec![Outcome::Refused("order_not_refundable")]
        }
        OrderState::Rejected => Vec::new(),
    }
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
    const STATES: [OrderState; 6] = [
        OrderState::Held,
        OrderState::Confirmed,
        OrderState::Cancelled,
        OrderState::Expired,
        OrderState::RefundDue,
        OrderState::Refunded,
    ];
    const REFUSALS: [&str; 4] = [
        "order_not_payable",
        "already_paid",
        "order_not_cancellable",
        "order_not_refundable",
    ];

    fn pay(payment: &str) -> Action {
        Action::Pay {
            order: ORDER,
            payment: payment.into(),
        }
    }

    /// The outcomes that are allowed, of all possible ones.
    fn passes(action: &Action, state: OrderState, may_have_expired: bool) -> Vec<Outcome> {
        let known = KnownOrder {
            state,
            may_have_expired,
            payment: Some("its own"),
            is_stranger: false,
        };
        let outcomes = STATES
            .into_iter()
            .map(Outcome::InState)
            .chain(REFUSALS.into_iter().map(Outcome::Refused));
        outcomes
            .filter(|outcome| judge(action, known, outcome).is_none())
            .collect()
    }

    #[test]
    fn each_step_from_each_state_has_its_allowed_outcomes() {
        use OrderState::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded};
        let is = |states: &[OrderState]| {
            states
                .iter()
                .copied()
                .map(Outcome::InState)
                .collect::<Vec<_>>()
        };
        let no = |code| vec![Outcome::Refused(code)];
        let (cancel, refund, show) = (
            Action::Cancel(ORDER),
            Action::Refund(ORDER),
            Action::Show(ORDER),
        );
        let table = [
            (pay("its own"), Held, false, is(&[Confirmed])),
            (pay("its own"), Held, true, is(&[Confirmed, RefundDue])),
            (pay("its own"), Expired, false, is(&[Confirmed, RefundDue])),
            (pay("its own"), Confirmed, false, is(&[Confirmed])),
            (pay("another"), Confirmed, false, no("already_paid")),
            (pay("another"), Cancelled, false, no("order_not_payable")),
            (pay("another"), Refunded, false, no("order_not_payable")),
            (cancel.clone(), Held, false, is(&[Cancelled])),
            (
                cancel.clone(),
                Held,
                true,
                [is(&[Cancelled]), no("order_not_cancellable")].concat(),
            ),
            (cancel.clone(), Cancelled, false, is(&[Cancelled])),
            (cancel, Confirmed, false, no("order_not_cancellable")),
            (refund.clone(), Confirmed, false, is(&[Refunded])),
            (refund.clone(), Refunded, false, is(&[Refunded])),
            (refund, Held, false, no("order_not_refundable")),
            (show.clone(), Held, false, is(&[Held])),
            (show.clone(), Held, true, is(&[Held, Expired])),
            (show, Confirmed, false, is(&[Confirmed])),
        ];
        for (action, state, may_have_expired, expected) in table {
            assert_eq!(
                passes(&action, state, may_have_expired),
                expected,
                "{action:?} from {state:?}, may have expired: {may_have_expired}"
            );
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
