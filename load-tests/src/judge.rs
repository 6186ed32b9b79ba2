//! Whether the outcome of an order request is allowed, given the earlier outcomes of its buyer.

use client::OrderState;
use uuid::Uuid;

use crate::{
    outcome::Outcome,
    violation::{ALL_MARKED, UNMARKED, UNMARKED_COPIES, Violation},
};

/// The units of a buyer.
#[derive(Debug, Clone, Copy)]
pub struct Holdings {
    /// Units that the buyer holds, as far as the session knows.
    pub held: u32,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// Whether other sessions of the buyer may hold more.
    pub may_return: bool,
}

/// Judges the outcome of a request with a new key.
pub fn new_order(outcome: &Outcome, quantity: u32, holdings: Holdings) -> Option<Violation> {
    let over = holdings.held + quantity > holdings.limit;
    match outcome {
        Outcome::Held { .. } if over => Some("an order over the buyer's limit was held"),
        Outcome::MovedOn { .. } => Some("a new order was not held when it was placed"),
        Outcome::Limited if !over && !holdings.may_return => {
            Some("a buyer below the limit was refused because of the limit")
        }
        _ => None,
    }
}

/// Judges the outcome of a request that was sent after the same request had been settled.
///
/// If the stock only falls, a refusal is final. If `units_return`, a refused order may be held
/// later, but a held order may never be refused later.
pub fn repeat(first: &Outcome, again: &Outcome, units_return: bool) -> Option<Violation> {
    match (first, again) {
        (
            Outcome::Held { .. },
            Outcome::Held {
                replayed: false, ..
            },
        ) => Some(UNMARKED),
        (
            Outcome::SoldOut | Outcome::Limited,
            Outcome::Held { .. } | Outcome::SoldOut | Outcome::Limited,
        ) if units_return => None,
        _ => same(first, again),
    }
}

/// Judges the outcome of a repeat after the order has changed its state: the repeat must report one
/// of `states` under the same id.
pub fn repeat_of(id: Uuid, states: &[OrderState], again: &Outcome) -> Option<Violation> {
    let is_consistent = match again {
        Outcome::Held {
            id: again,
            replayed,
        } => *again == id && *replayed && states.contains(&OrderState::Held),
        Outcome::MovedOn { id: again, state } => *again == id && states.contains(state),
        _ => again.error().is_some(),
    };
    (!is_consistent).then_some("a repeat reported another order or another state")
}

/// Judges the outcomes of the same request that was sent several times, partly concurrently.
/// `given_up` further copies were sent without waiting for the response.
///
/// Any copy may have placed the order.
pub fn copies(outcomes: &[&Outcome], given_up: usize, units_return: bool) -> Option<Violation> {
    let held = |outcome: &&&Outcome| matches!(outcome, Outcome::Held { .. });
    let firsts = outcomes
        .iter()
        .filter(|outcome| {
            matches!(
                outcome,
                Outcome::Held {
                    replayed: false,
                    ..
                }
            )
        })
        .count();
    let one = outcomes.iter().find(held).or(outcomes.first())?;
    let differs = outcomes.iter().find_map(|other| match (one, other) {
        (Outcome::Held { .. }, Outcome::SoldOut | Outcome::Limited) if units_return => None,
        _ => same(one, other),
    });
    // The copy that placed the order must be among the outcomes only if no copy was given up.
    let none_is_first = firsts == 0
        && given_up == 0
        && outcomes.iter().any(|outcome| held(&outcome))
        && outcomes.iter().all(|outcome| outcome.error().is_none());
    match firsts {
        _ if differs.is_some() => differs,
        2.. => Some(UNMARKED_COPIES),
        _ if none_is_first => Some(ALL_MARKED),
        _ => None,
    }
}

/// Judges the outcomes of different concurrent orders of one buyer.
pub fn concurrent_orders(
    outcomes: &[&Outcome],
    quantity: u32,
    holdings: Holdings,
) -> Option<Violation> {
    let held: u32 = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Held { .. }))
        .map(|_| quantity)
        .sum();
    // An order that is finally sold out counts against the limit while it is in progress. Orders
    // with an unknown outcome cannot be counted.
    let all_were_decided = outcomes
        .iter()
        .all(|outcome| matches!(outcome, Outcome::Held { .. } | Outcome::Limited));
    if holdings.held + held > holdings.limit {
        return Some("concurrent orders hold more than the buyer's limit");
    }
    let one_more_fits = holdings.held + held + quantity <= holdings.limit;
    let limited = outcomes
        .iter()
        .any(|outcome| matches!(outcome, Outcome::Limited));
    (limited && one_more_fits && all_were_decided && !holdings.may_return)
        .then_some("a buyer below the limit was refused because of the limit")
}

fn same(first: &Outcome, again: &Outcome) -> Option<Violation> {
    match (first, again) {
        // These are counted as errors already, or have no outcome.
        (Outcome::Unknown(_) | Outcome::Wrong(_) | Outcome::GivenUp, _)
        | (_, Outcome::Unknown(_) | Outcome::Wrong(_) | Outcome::GivenUp) => None,
        (Outcome::Held { id: first, .. }, Outcome::Held { id: again, .. }) if first != again => {
            Some("a repeat returned another order")
        }
        (Outcome::Held { .. }, Outcome::Held { .. })
        | (Outcome::SoldOut, Outcome::SoldOut)
        | (Outcome::Limited, Outcome::Limited) => None,
        (Outcome::Held { .. }, Outcome::MovedOn { .. }) => {
            Some("a repeat reported a state that was not requested")
        }
        (Outcome::Held { .. }, _) => Some("a repeat of a held order was refused"),
        (_, Outcome::Held { .. }) => Some("a repeat of a refused order was held"),
        _ => Some("a repeat was refused for another reason"),
    }
}

#[cfg(test)]
mod tests {
    use client::OrderState;
    use uuid::Uuid;

    use super::{Holdings, concurrent_orders, copies, new_order, repeat, repeat_of};
    use crate::outcome::Outcome;

    fn held(id: u128, replayed: bool) -> Outcome {
        Outcome::Held {
            id: Uuid::from_u128(id),
            replayed,
        }
    }

    #[test]
    fn a_repeat_must_get_the_same_outcome_and_be_marked() {
        for units_return in [false, true] {
            assert_eq!(repeat(&held(1, false), &held(1, true), units_return), None);
            assert_eq!(
                repeat(&Outcome::SoldOut, &Outcome::SoldOut, units_return),
                None
            );
            assert_eq!(
                repeat(&Outcome::Limited, &Outcome::Limited, units_return),
                None
            );
            for (first, again) in [
                (held(1, false), held(1, false)),
                (held(1, false), held(2, true)),
                (held(1, false), Outcome::SoldOut),
                (held(1, false), Outcome::Limited),
            ] {
                assert!(
                    repeat(&first, &again, units_return).is_some(),
                    "{first:?} {again:?}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_is_final_only_if_units_do_not_return() {
        for (first, again) in [
            (Outcome::SoldOut, held(1, false)),
            (Outcome::SoldOut, Outcome::Limited),
        ] {
            assert!(
                repeat(&first, &again, false).is_some(),
                "{first:?} {again:?}"
            );
            assert_eq!(repeat(&first, &again, true), None);
        }
    }

    #[test]
    fn a_repeat_must_report_the_current_state() {
        let id = Uuid::from_u128(1);
        let confirmed = Outcome::MovedOn {
            id,
            state: OrderState::Confirmed,
        };
        assert_eq!(repeat_of(id, &[OrderState::Confirmed], &confirmed), None);
        for (states, again) in [
            (OrderState::Cancelled, confirmed.clone()),
            (OrderState::Confirmed, held(1, true)),
            (
                OrderState::Confirmed,
                Outcome::MovedOn {
                    id: Uuid::from_u128(2),
                    state: OrderState::Confirmed,
                },
            ),
            (OrderState::Cancelled, Outcome::SoldOut),
            (OrderState::Held, held(1, false)),
        ] {
            assert!(
                repeat_of(id, &[states], &again).is_some(),
                "{states:?} {again:?}"
            );
        }
    }

    #[test]
    fn exactly_one_copy_places_the_order() {
        let judge = |outcomes: &[&Outcome], given_up| copies(outcomes, given_up, false);
        assert_eq!(judge(&[&held(1, false), &held(1, true)], 0), None);
        assert_eq!(
            judge(&[&held(1, true), &held(1, false), &held(1, true)], 0),
            None
        );
        assert_eq!(judge(&[&Outcome::SoldOut, &Outcome::SoldOut], 0), None);
        assert!(judge(&[&held(1, false), &held(1, false)], 0).is_some());
        assert!(judge(&[&held(1, true), &held(2, false)], 0).is_some());
        assert!(judge(&[&Outcome::SoldOut, &held(1, false)], 0).is_some());
        assert!(judge(&[&held(1, true), &held(1, true)], 0).is_some());
        assert_eq!(
            judge(&[&held(1, true), &held(1, true)], 1),
            None,
            "the copy that was given up placed the order"
        );
        assert!(judge(&[&held(1, false), &held(1, false)], 1).is_some());
        assert_eq!(
            copies(&[&Outcome::SoldOut, &held(1, false)], 0, true),
            None,
            "a unit returned in between"
        );
    }

    #[test]
    fn the_limit_must_refuse_neither_too_early_nor_too_late() {
        let holdings = |held, may_return| Holdings {
            held,
            limit: 2,
            may_return,
        };
        assert_eq!(new_order(&held(1, false), 1, holdings(1, false)), None);
        assert_eq!(new_order(&Outcome::Limited, 1, holdings(2, false)), None);
        assert_eq!(new_order(&Outcome::Limited, 1, holdings(0, true)), None);
        assert!(new_order(&held(1, false), 1, holdings(2, false)).is_some());
        assert!(new_order(&held(1, false), 3, holdings(0, false)).is_some());
        assert!(new_order(&Outcome::Limited, 1, holdings(1, false)).is_some());
    }

    #[test]
    fn concurrent_orders_must_exhaust_the_limit_exactly() {
        let (one, other, third) = (held(1, false), held(2, false), held(3, false));
        let judge = |outcomes: &[&Outcome], may_return| {
            concurrent_orders(
                outcomes,
                1,
                Holdings {
                    held: 0,
                    limit: 2,
                    may_return,
                },
            )
        };
        assert_eq!(
            judge(&[&one, &other, &Outcome::Limited, &Outcome::Limited], false),
            None
        );
        assert!(
            judge(&[&one, &other, &third], false).is_some(),
            "over the limit"
        );
        assert!(
            judge(&[&one, &Outcome::Limited, &Outcome::Limited], false).is_some(),
            "below the limit"
        );
        assert_eq!(
            judge(&[&one, &Outcome::Limited], true),
            None,
            "the buyer may have another session"
        );
        assert_eq!(
            judge(&[&one, &Outcome::Limited, &Outcome::SoldOut], false),
            None,
            "the third was in progress when the second was refused"
        );
    }
}
