//! Where an order may stand after a step of its life, by where it stood before.

use crate::{
    answer::Answer,
    judge::Flaw,
    wish::{State, Wish},
};

/// What we know of an order before it is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Where it stood when it was last spoken of.
    pub state: State,
    /// If that is `held`: its hold may have ended meanwhile.
    pub may_be_over: bool,
    /// The payment that it was paid with.
    pub payment: Option<&'a str>,
    /// Whoever asks is not its buyer.
    pub stranger: bool,
}

/// What is wrong with the answer to a request about an order, if something is.
pub fn judge(wish: &Wish, known: Known<'_>, answer: &Answer) -> Option<Flaw> {
    if answer.error().is_some() {
        return None;
    }
    let (allowed, flaw) = allowed(wish, known);
    (!allowed.contains(answer)).then_some(flaw)
}

fn allowed(wish: &Wish, known: Known<'_>) -> (Vec<Answer>, Flaw) {
    match wish {
        Wish::Order { .. } | Wish::Browse => (vec![Answer::Item], "the item was not shown"),
        Wish::Show(_) if known.stranger => (
            vec![Answer::Refused("order_not_found")],
            "an order was shown to a stranger",
        ),
        Wish::Show(_) => (shown(known), "an order was shown otherwise than it stands"),
        Wish::Pay { payment, .. } => (
            paid(known, payment),
            "a payment was answered otherwise than the order stands",
        ),
        Wish::Cancel(_) => (
            cancelled(known),
            "a cancellation was answered otherwise than the order stands",
        ),
        Wish::Refund(_) => (
            refunded(known),
            "a refund was answered otherwise than the order stands",
        ),
    }
}

fn shown(known: Known<'_>) -> Vec<Answer> {
    match known.state {
        State::Held if known.may_be_over => {
            vec![Answer::Stands(State::Held), Answer::Stands(State::Expired)]
        }
        state => vec![Answer::Stands(state)],
    }
}

fn paid(known: Known<'_>, payment: &str) -> Vec<Answer> {
    let late = || {
        vec![
            Answer::Stands(State::Confirmed),
            Answer::Stands(State::RefundDue),
        ]
    };
    match known.state {
        State::Held if known.may_be_over => late(),
        State::Expired => late(),
        State::Held => vec![Answer::Stands(State::Confirmed)],
        state @ (State::Confirmed | State::RefundDue | State::Refunded)
            if known.payment == Some(payment) =>
        {
            vec![Answer::Stands(state)]
        }
        State::Confirmed | State::RefundDue => vec![Answer::Refused("already_paid")],
        State::Cancelled | State::Refunded => vec![Answer::Refused("order_not_payable")],
    }
}

fn cancelled(known: Known<'_>) -> Vec<Answer> {
    const REFUSED: Answer = Answer::Refused("order_not_cancellable");
    match known.state {
        State::Held if known.may_be_over => vec![Answer::Stands(State::Cancelled), REFUSED],
        State::Held | State::Cancelled => vec![Answer::Stands(State::Cancelled)],
        State::Confirmed | State::Expired | State::RefundDue | State::Refunded => vec![REFUSED],
    }
}

fn refunded(known: Known<'_>) -> Vec<Answer> {
    match known.state {
        State::Confirmed | State::RefundDue | State::Refunded => {
            vec![Answer::Stands(State::Refunded)]
        }
        State::Held | State::Expired | State::Cancelled => {
            vec![Answer::Refused("order_not_refundable")]
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Known, judge};
    use crate::{
        answer::Answer,
        wish::{Placed, State, Wish},
    };

    const ORDER: Placed = Placed {
        id: Uuid::nil(),
        quantity: 1,
    };
    const STATES: [State; 6] = [
        State::Held,
        State::Confirmed,
        State::Cancelled,
        State::Expired,
        State::RefundDue,
        State::Refunded,
    ];
    const REFUSALS: [&str; 4] = [
        "order_not_payable",
        "already_paid",
        "order_not_cancellable",
        "order_not_refundable",
    ];

    fn pay(payment: &str) -> Wish {
        Wish::Pay {
            order: ORDER,
            payment: payment.into(),
        }
    }

    /// The answers that are let pass, of all that can be given.
    fn passes(wish: &Wish, state: State, may_be_over: bool) -> Vec<Answer> {
        let known = Known {
            state,
            may_be_over,
            payment: Some("its own"),
            stranger: false,
        };
        let answers = STATES
            .into_iter()
            .map(Answer::Stands)
            .chain(REFUSALS.into_iter().map(Answer::Refused));
        answers
            .filter(|answer| judge(wish, known, answer).is_none())
            .collect()
    }

    #[test]
    fn every_step_from_every_state_has_its_answers() {
        use State::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded};
        let is = |states: &[State]| {
            states
                .iter()
                .copied()
                .map(Answer::Stands)
                .collect::<Vec<_>>()
        };
        let no = |code| vec![Answer::Refused(code)];
        let (cancel, refund, show) = (Wish::Cancel(ORDER), Wish::Refund(ORDER), Wish::Show(ORDER));
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
        for (wish, state, may_be_over, expected) in table {
            assert_eq!(
                passes(&wish, state, may_be_over),
                expected,
                "{wish:?} from {state:?}, may be over: {may_be_over}"
            );
        }
    }

    #[test]
    fn a_stranger_sees_nothing() {
        let known = Known {
            state: State::Held,
            may_be_over: false,
            payment: None,
            stranger: true,
        };
        assert_eq!(
            judge(
                &Wish::Show(ORDER),
                known,
                &Answer::Refused("order_not_found")
            ),
            None
        );
        assert!(judge(&Wish::Show(ORDER), known, &Answer::Stands(State::Held)).is_some());
    }

    #[test]
    fn an_error_is_counted_once_as_what_it_is() {
        let known = Known {
            state: State::Held,
            may_be_over: false,
            payment: None,
            stranger: false,
        };
        assert_eq!(
            judge(
                &Wish::Cancel(ORDER),
                known,
                &Answer::Unknown("503 unavailable".into())
            ),
            None
        );
    }
}
