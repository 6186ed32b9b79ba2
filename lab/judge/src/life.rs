//! The life of an order and that of a cart, which are the same.

use std::collections::BTreeSet;

use client::{CartState, OrderState};

/// The states that orders and carts have in common, and the codes by which their steps are refused.
pub trait State: Copy + Ord {
    /// Its units are reserved until it expires.
    const HELD: Self;
    /// It is paid, and its units are sold.
    const CONFIRMED: Self;
    /// It was cancelled before it was paid.
    const CANCELLED: Self;
    /// It was not paid in time.
    const EXPIRED: Self;
    /// It was paid after it had expired, and no units were left.
    const REFUND_DUE: Self;
    /// The money was returned.
    const REFUNDED: Self;

    /// Whether the end of a hold changes nothing once this state was acknowledged.
    fn outlasts_the_hold(self) -> bool;

    /// The code of a refusal.
    fn code(refusal: Refusal) -> &'static str;
}

/// Why a step is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is another buyer's.
    NotFound,
    /// It is not held.
    NotExtendable,
    /// It is not held and has not expired.
    NotPayable,
    /// Another payment has paid it.
    AlreadyPaid,
    /// It is not held.
    NotCancellable,
    /// It is not paid.
    NotRefundable,
}

/// What is requested of an order or a cart that was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Shows it.
    Show,
    /// Extends its hold.
    Extend,
    /// Reports this payment of it.
    Pay(&'a str),
    /// Cancels it.
    Cancel,
    /// Notes that the money was returned.
    Refund,
}

/// What the requester knows before a step.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a, S> {
    /// The last reported state.
    pub state: S,
    /// Whether the hold may have ended, if the state is `held`.
    pub may_have_expired: bool,
    /// The payment that paid it.
    pub payment: Option<&'a str>,
    /// Whether the request is from another buyer.
    pub is_stranger: bool,
}

/// What may answer a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed<S> {
    /// The states that may be reported.
    pub states: Vec<S>,
    /// The refusal that may be reported.
    pub refusal: Option<Refusal>,
}

impl State for OrderState {
    const HELD: Self = Self::Held;
    const CONFIRMED: Self = Self::Confirmed;
    const CANCELLED: Self = Self::Cancelled;
    const EXPIRED: Self = Self::Expired;
    const REFUND_DUE: Self = Self::RefundDue;
    const REFUNDED: Self = Self::Refunded;

    // A rejection says no more than the hold before it.
    fn outlasts_the_hold(self) -> bool {
        !matches!(self, Self::Held | Self::Expired | Self::Rejected)
    }

    fn code(refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NotFound => "order_not_found",
            Refusal::NotExtendable => "order_not_extendable",
            Refusal::NotPayable => "order_not_payable",
            Refusal::AlreadyPaid => "already_paid",
            Refusal::NotCancellable => "order_not_cancellable",
            Refusal::NotRefundable => "order_not_refundable",
        }
    }
}

impl State for CartState {
    const HELD: Self = Self::Held;
    const CONFIRMED: Self = Self::Confirmed;
    const CANCELLED: Self = Self::Cancelled;
    const EXPIRED: Self = Self::Expired;
    const REFUND_DUE: Self = Self::RefundDue;
    const REFUNDED: Self = Self::Refunded;

    fn outlasts_the_hold(self) -> bool {
        !matches!(self, Self::Held | Self::Expired)
    }

    fn code(refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NotFound => "cart_not_found",
            Refusal::NotExtendable => "cart_not_extendable",
            Refusal::NotPayable => "cart_not_payable",
            Refusal::AlreadyPaid => "already_paid",
            Refusal::NotCancellable => "cart_not_cancellable",
            Refusal::NotRefundable => "cart_not_refundable",
        }
    }
}

impl<S: State> Allowed<S> {
    fn one_of(states: impl Into<Vec<S>>) -> Self {
        Self {
            states: states.into(),
            refusal: None,
        }
    }

    fn refused(refusal: Refusal) -> Self {
        Self {
            states: Vec::new(),
            refusal: Some(refusal),
        }
    }

    /// The code of the refusal that may be reported.
    pub fn code(&self) -> Option<&'static str> {
        self.refusal.map(S::code)
    }
}

/// Whether it was paid, in time or too late.
pub fn is_paid<S: State>(state: S) -> bool {
    state == S::CONFIRMED || state == S::REFUND_DUE
}

/// The states in which it may be shown, if it was in `state` before.
pub fn shown<S: State>(state: S, may_have_expired: bool) -> Vec<S> {
    if state == S::HELD && may_have_expired {
        vec![S::HELD, S::EXPIRED]
    } else {
        vec![state]
    }
}

/// What may answer a step.
pub fn allowed<S: State>(step: Step<'_>, known: Known<'_, S>) -> Allowed<S> {
    match step {
        Step::Show if known.is_stranger => Allowed::refused(Refusal::NotFound),
        Step::Show => Allowed::one_of(shown(known.state, known.may_have_expired)),
        Step::Extend => while_held(known, S::HELD, Refusal::NotExtendable),
        Step::Cancel if known.state == S::CANCELLED => Allowed::one_of([S::CANCELLED]),
        Step::Cancel => while_held(known, S::CANCELLED, Refusal::NotCancellable),
        Step::Pay(payment) => paid(known, payment),
        Step::Refund if has_been_paid(known.state) => Allowed::one_of([S::REFUNDED]),
        Step::Refund => Allowed::refused(Refusal::NotRefundable),
    }
}

fn while_held<S: State>(known: Known<'_, S>, to: S, refusal: Refusal) -> Allowed<S> {
    if known.state != S::HELD {
        return Allowed::refused(refusal);
    }
    Allowed {
        states: vec![to],
        refusal: known.may_have_expired.then_some(refusal),
    }
}

fn paid<S: State>(known: Known<'_, S>, payment: &str) -> Allowed<S> {
    let state = known.state;
    if state == S::HELD && !known.may_have_expired {
        Allowed::one_of([S::CONFIRMED])
    } else if state == S::HELD || state == S::EXPIRED {
        Allowed::one_of([S::CONFIRMED, S::REFUND_DUE])
    } else if has_been_paid(state) && known.payment == Some(payment) {
        Allowed::one_of([state])
    } else if is_paid(state) {
        Allowed::refused(Refusal::AlreadyPaid)
    } else {
        Allowed::refused(Refusal::NotPayable)
    }
}

fn has_been_paid<S: State>(state: S) -> bool {
    is_paid(state) || state == S::REFUNDED
}

/// Whether an order that was shown in one state may be shown in the other later.
pub fn may_follow(before: OrderState, after: OrderState) -> bool {
    use OrderState::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded, Rejected};
    match before {
        Held => matches!(
            after,
            Confirmed | Cancelled | Expired | RefundDue | Refunded
        ),
        // A late payment takes units again.
        Expired => matches!(after, Held | Confirmed | RefundDue | Refunded),
        Confirmed | RefundDue => after == Refunded,
        Cancelled | Refunded | Rejected => false,
    }
}

/// The states in which the ledger may have an order or a cart, once every hold has ended.
///
/// `acknowledged` are all states that its buyer was told, the oldest first. `requested` are all
/// states that were asked for, because a request without a response may have taken effect.
pub fn after_hold<S: State>(acknowledged: &[S], requested: &BTreeSet<S>) -> BTreeSet<S> {
    let mut newest_first = acknowledged.iter().rev();
    let mut allowed = match newest_first.find(|state| **state != S::HELD) {
        Some(state) if state.outlasts_the_hold() => BTreeSet::from([*state]),
        _ => after_mere_hold(requested),
    };
    if allowed.iter().copied().any(is_paid) && requested.contains(&S::REFUNDED) {
        allowed.insert(S::REFUNDED);
    }
    allowed
}

/// Only the hold was acknowledged. It has expired, unless a request without a response took effect.
fn after_mere_hold<S: State>(requested: &BTreeSet<S>) -> BTreeSet<S> {
    let mut allowed = BTreeSet::from([S::EXPIRED]);
    if requested.contains(&S::CONFIRMED) {
        allowed.extend([S::CONFIRMED, S::REFUND_DUE]);
    }
    if requested.contains(&S::CANCELLED) {
        allowed.insert(S::CANCELLED);
    }
    allowed
}

/// Whether it takes no units again once the ledger shows its end. A payment that comes late may.
pub fn gives_back_for_good<S: State>(acknowledged: &[S], requested: &BTreeSet<S>) -> bool {
    !requested.contains(&S::CONFIRMED) || acknowledged.contains(&S::REFUNDED)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug};

    use client::{CartState, OrderState};

    use super::{
        Known, Refusal, State, Step, after_hold, allowed, gives_back_for_good, may_follow,
    };

    /// A step, the state before, whether it may have expired, and what is allowed.
    type Row<S> = (Step<'static>, S, bool, Vec<S>, Option<Refusal>);

    fn table<S: State>() -> Vec<Row<S>> {
        use Refusal::{AlreadyPaid, NotCancellable, NotExtendable, NotPayable, NotRefundable};
        use Step::{Cancel, Extend, Pay, Refund, Show};
        let is = |states: &[S]| (states.to_vec(), None);
        let no = |refusal| (Vec::new(), Some(refusal));
        let either = |state: S, refusal| (vec![state], Some(refusal));
        let late = [S::CONFIRMED, S::REFUND_DUE];
        let own = Pay("its own");
        let another = Pay("another");
        let rows = [
            (own, S::HELD, false, is(&[S::CONFIRMED])),
            (own, S::HELD, true, is(&late)),
            (own, S::EXPIRED, false, is(&late)),
            (own, S::CONFIRMED, false, is(&[S::CONFIRMED])),
            (own, S::REFUND_DUE, false, is(&[S::REFUND_DUE])),
            (own, S::REFUNDED, false, is(&[S::REFUNDED])),
            (another, S::CONFIRMED, false, no(AlreadyPaid)),
            (another, S::REFUND_DUE, false, no(AlreadyPaid)),
            (another, S::CANCELLED, false, no(NotPayable)),
            (another, S::REFUNDED, false, no(NotPayable)),
            (Cancel, S::HELD, false, is(&[S::CANCELLED])),
            (Cancel, S::HELD, true, either(S::CANCELLED, NotCancellable)),
            (Cancel, S::CANCELLED, false, is(&[S::CANCELLED])),
            (Cancel, S::CONFIRMED, false, no(NotCancellable)),
            (Extend, S::HELD, false, is(&[S::HELD])),
            (Extend, S::HELD, true, either(S::HELD, NotExtendable)),
            (Extend, S::CONFIRMED, false, no(NotExtendable)),
            (Refund, S::CONFIRMED, false, is(&[S::REFUNDED])),
            (Refund, S::REFUNDED, false, is(&[S::REFUNDED])),
            (Refund, S::HELD, false, no(NotRefundable)),
            (Show, S::HELD, false, is(&[S::HELD])),
            (Show, S::HELD, true, is(&[S::HELD, S::EXPIRED])),
            (Show, S::CONFIRMED, false, is(&[S::CONFIRMED])),
        ];
        let flat = |(step, state, may_have_expired, (states, refusal))| {
            (step, state, may_have_expired, states, refusal)
        };
        rows.into_iter().map(flat).collect()
    }

    fn check_steps<S: State + Debug>() {
        for (step, state, may_have_expired, states, refusal) in table::<S>() {
            let known = Known {
                state,
                may_have_expired,
                payment: Some("its own"),
                is_stranger: false,
            };
            let found = allowed(step, known);
            assert_eq!(
                (found.states, found.refusal),
                (states, refusal),
                "{step:?} from {state:?}, may have expired: {may_have_expired}"
            );
        }
    }

    #[test]
    fn each_step_from_each_state_has_its_allowed_outcomes() {
        check_steps::<OrderState>();
        check_steps::<CartState>();
    }

    #[test]
    fn each_refusal_has_its_code() {
        let codes = [
            (Refusal::NotFound, "not_found"),
            (Refusal::NotExtendable, "not_extendable"),
            (Refusal::NotPayable, "not_payable"),
            (Refusal::NotCancellable, "not_cancellable"),
            (Refusal::NotRefundable, "not_refundable"),
        ];
        for (refusal, code) in codes {
            assert_eq!(OrderState::code(refusal), format!("order_{code}"));
            assert_eq!(CartState::code(refusal), format!("cart_{code}"));
        }
        assert_eq!(OrderState::code(Refusal::AlreadyPaid), "already_paid");
        assert_eq!(CartState::code(Refusal::AlreadyPaid), "already_paid");
    }

    #[test]
    fn another_buyer_sees_nothing() {
        let known = Known {
            state: OrderState::Held,
            may_have_expired: false,
            payment: None,
            is_stranger: true,
        };
        let found = allowed(Step::Show, known);
        assert!(found.states.is_empty());
        assert_eq!(found.code(), Some("order_not_found"));
    }

    #[test]
    fn an_order_moves_on_and_not_back() {
        use OrderState::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded, Rejected};
        let all = [
            Held, Confirmed, Cancelled, Expired, RefundDue, Refunded, Rejected,
        ];
        let table: [(OrderState, &[OrderState]); 7] = [
            (Held, &[Confirmed, Cancelled, Expired, RefundDue, Refunded]),
            (Confirmed, &[Refunded]),
            (Cancelled, &[]),
            (Expired, &[Held, Confirmed, RefundDue, Refunded]),
            (RefundDue, &[Refunded]),
            (Refunded, &[]),
            (Rejected, &[]),
        ];
        for (before, later) in table {
            for after in all {
                let expected = later.contains(&after);
                assert_eq!(may_follow(before, after), expected, "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn the_last_acknowledgement_decides_the_allowed_states() {
        check_after_hold::<OrderState>();
        check_after_hold::<CartState>();
        let nothing = BTreeSet::new();
        let rejected = [OrderState::Held, OrderState::Rejected];
        let expired = BTreeSet::from([OrderState::Expired]);
        assert_eq!(after_hold(&rejected, &nothing), expired);
        let failed = BTreeSet::from([CartState::Failed]);
        assert_eq!(after_hold(&[CartState::Failed], &BTreeSet::new()), failed);
    }

    #[test]
    fn units_come_back_for_good_unless_a_payment_may_come_late() {
        let (held, refunded) = ([CartState::Held], [CartState::Held, CartState::Refunded]);
        let (nothing, paid) = (BTreeSet::new(), BTreeSet::from([CartState::Confirmed]));
        assert!(gives_back_for_good(&held, &nothing));
        assert!(!gives_back_for_good(&held, &paid));
        assert!(gives_back_for_good(&refunded, &paid));
    }

    fn check_after_hold<S: State + Debug>() {
        let (held, confirmed, due) = (S::HELD, S::CONFIRMED, S::REFUND_DUE);
        let (cancelled, expired, refunded) = (S::CANCELLED, S::EXPIRED, S::REFUNDED);
        let table: [(&[S], &[S], &[S]); 9] = [
            (&[held], &[], &[expired]),
            (&[held], &[confirmed], &[expired, confirmed, due]),
            (&[held], &[cancelled], &[expired, cancelled]),
            (&[held, confirmed], &[confirmed], &[confirmed]),
            (&[held, held, due], &[confirmed], &[due]),
            (
                &[held, confirmed],
                &[confirmed, refunded],
                &[confirmed, refunded],
            ),
            (
                &[held, confirmed, refunded],
                &[confirmed, refunded],
                &[refunded],
            ),
            (&[held, cancelled], &[cancelled], &[cancelled]),
            (&[], &[], &[expired]),
        ];
        for (acknowledged, requested, expected) in table {
            let requested = requested.iter().copied().collect();
            let expected: BTreeSet<_> = expected.iter().copied().collect();
            let found = after_hold(acknowledged, &requested);
            assert_eq!(found, expected, "{acknowledged:?} {requested:?}");
        }
    }
}
