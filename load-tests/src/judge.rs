//! Whether an answer may be given, by what the buyer was answered before.

use uuid::Uuid;

use crate::{answer::Answer, wish::State};

/// What is wrong with an answer.
pub type Flaw = &'static str;

/// What a buyer holds and may hold.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Units that the buyer holds, as far as we know.
    pub held: u32,
    /// Units that one buyer may hold.
    pub limit: u32,
    /// The buyer may hold more than that.
    pub may_return: bool,
}

/// The answer to a request with a new key.
pub fn new_order(answer: &Answer, quantity: u32, standing: Standing) -> Option<Flaw> {
    let over = standing.held + quantity > standing.limit;
    match answer {
        Answer::Held { .. } if over => Some("an order beyond the buyer's limit was held"),
        Answer::MovedOn { .. } => Some("a new order had gone on before it was placed"),
        Answer::Limited if !over && !standing.may_return => {
            Some("a buyer below the limit was refused as limited")
        }
        _ => None,
    }
}

/// The answer to a request that was made after the same request had been answered.
///
/// Where the stock only falls a refusal stands; where `units_return`, what was refused may be held later, and never the other way round.
pub fn repeat(first: &Answer, again: &Answer, units_return: bool) -> Option<Flaw> {
    match (first, again) {
        (
            Answer::Held { .. },
            Answer::Held {
                replayed: false, ..
            },
        ) => Some("a repeat was not marked as replayed"),
        (
            Answer::SoldOut | Answer::Limited,
            Answer::Held { .. } | Answer::SoldOut | Answer::Limited,
        ) if units_return => None,
        _ => same(first, again),
    }
}

/// The answer to a repeat of an order that has gone on since: where it stands now, under the same id.
pub fn repeat_of(id: Uuid, states: &[State], again: &Answer) -> Option<Flaw> {
    let as_it_stands = match again {
        Answer::Held {
            id: again,
            replayed,
        } => *again == id && *replayed && states.contains(&State::Held),
        Answer::MovedOn { id: again, state } => *again == id && states.contains(state),
        _ => again.error().is_some(),
    };
    (!as_it_stands).then_some("a repeat was answered otherwise than the order stands")
}

/// The answers to the same request made several times, some of them at once, and `given_up` times more without waiting for the answer.
///
/// Any of them may have been the first.
pub fn copies(answers: &[&Answer], given_up: usize, units_return: bool) -> Option<Flaw> {
    let held = |answer: &&&Answer| matches!(answer, Answer::Held { .. });
    let firsts = answers
        .iter()
        .filter(|answer| {
            matches!(
                answer,
                Answer::Held {
                    replayed: false,
                    ..
                }
            )
        })
        .count();
    let one = answers.iter().find(held).or(answers.first())?;
    let differs = answers.iter().find_map(|other| match (one, other) {
        (Answer::Held { .. }, Answer::SoldOut | Answer::Limited) if units_return => None,
        _ => same(one, other),
    });
    // Only if all were answered must the first be among them.
    let none_is_first = firsts == 0
        && given_up == 0
        && answers.iter().any(|answer| held(&answer))
        && answers.iter().all(|answer| answer.error().is_none());
    match firsts {
        _ if differs.is_some() => differs,
        2.. => Some("of several at once more than one was not marked as replayed"),
        _ if none_is_first => Some("of several at once all were marked as replayed"),
        _ => None,
    }
}

/// The answers to different orders of one buyer, made at once.
pub fn all_at_once(answers: &[&Answer], quantity: u32, standing: Standing) -> Option<Flaw> {
    let held: u32 = answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Held { .. }))
        .map(|_| quantity)
        .sum();
    // An order that ends as sold out counts against the limit while it is under way; and what we could not read we cannot count.
    let all_were_decided = answers
        .iter()
        .all(|answer| matches!(answer, Answer::Held { .. } | Answer::Limited));
    if standing.held + held > standing.limit {
        return Some("orders that were made at once hold more than the buyer's limit");
    }
    let one_more_fits = standing.held + held + quantity <= standing.limit;
    let limited = answers
        .iter()
        .any(|answer| matches!(answer, Answer::Limited));
    (limited && one_more_fits && all_were_decided && !standing.may_return)
        .then_some("a buyer below the limit was refused as limited")
}

fn same(first: &Answer, again: &Answer) -> Option<Flaw> {
    match (first, again) {
        // Counted as errors in their own right, or no answers.
        (Answer::Unknown(_) | Answer::Wrong(_) | Answer::GivenUp, _)
        | (_, Answer::Unknown(_) | Answer::Wrong(_) | Answer::GivenUp) => None,
        (Answer::Held { id: first, .. }, Answer::Held { id: again, .. }) if first != again => {
            Some("a repeat was given another order")
        }
        (Answer::Held { .. }, Answer::Held { .. })
        | (Answer::SoldOut, Answer::SoldOut)
        | (Answer::Limited, Answer::Limited) => None,
        (Answer::Held { .. }, Answer::MovedOn { .. }) => {
            Some("a repeat says that the order has gone on, and nobody did that")
        }
        (Answer::Held { .. }, _) => Some("a repeat of a held order was refused"),
        (_, Answer::Held { .. }) => Some("a repeat of a refused order was held"),
        _ => Some("a repeat was refused for another reason"),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Standing, all_at_once, copies, new_order, repeat, repeat_of};
    use crate::{answer::Answer, wish::State};

    fn held(id: u128, replayed: bool) -> Answer {
        Answer::Held {
            id: Uuid::from_u128(id),
            replayed,
        }
    }

    #[test]
    fn a_repeat_must_get_the_same_answer_and_say_so() {
        for units_return in [false, true] {
            assert_eq!(repeat(&held(1, false), &held(1, true), units_return), None);
            assert_eq!(
                repeat(&Answer::SoldOut, &Answer::SoldOut, units_return),
                None
            );
            assert_eq!(
                repeat(&Answer::Limited, &Answer::Limited, units_return),
                None
            );
            for (first, again) in [
                (held(1, false), held(1, false)),
                (held(1, false), held(2, true)),
                (held(1, false), Answer::SoldOut),
                (held(1, false), Answer::Limited),
            ] {
                assert!(
                    repeat(&first, &again, units_return).is_some(),
                    "{first:?} {again:?}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_stands_only_where_units_do_not_return() {
        for (first, again) in [
            (Answer::SoldOut, held(1, false)),
            (Answer::SoldOut, Answer::Limited),
        ] {
            assert!(
                repeat(&first, &again, false).is_some(),
                "{first:?} {again:?}"
            );
            assert_eq!(repeat(&first, &again, true), None);
        }
    }

    #[test]
    fn a_repeat_says_where_the_order_stands_by_now() {
        let id = Uuid::from_u128(1);
        let confirmed = Answer::MovedOn {
            id,
            state: State::Confirmed,
        };
        assert_eq!(repeat_of(id, &[State::Confirmed], &confirmed), None);
        for (states, again) in [
            (State::Cancelled, confirmed.clone()),
            (State::Confirmed, held(1, true)),
            (
                State::Confirmed,
                Answer::MovedOn {
                    id: Uuid::from_u128(2),
                    state: State::Confirmed,
                },
            ),
            (State::Cancelled, Answer::SoldOut),
            (State::Held, held(1, false)),
        ] {
            assert!(
                repeat_of(id, &[states], &again).is_some(),
                "{states:?} {again:?}"
            );
        }
    }

    #[test]
    fn of_copies_any_is_the_first_and_exactly_one() {
        let judge = |answers: &[&Answer], given_up| copies(answers, given_up, false);
        assert_eq!(judge(&[&held(1, false), &held(1, true)], 0), None);
        assert_eq!(
            judge(&[&held(1, true), &held(1, false), &held(1, true)], 0),
            None
        );
        assert_eq!(judge(&[&Answer::SoldOut, &Answer::SoldOut], 0), None);
        assert!(judge(&[&held(1, false), &held(1, false)], 0).is_some());
        assert!(judge(&[&held(1, true), &held(2, false)], 0).is_some());
        assert!(judge(&[&Answer::SoldOut, &held(1, false)], 0).is_some());
        assert!(judge(&[&held(1, true), &held(1, true)], 0).is_some());
        assert_eq!(
            judge(&[&held(1, true), &held(1, true)], 1),
            None,
            "the one that nobody waited for was the first"
        );
        assert!(judge(&[&held(1, false), &held(1, false)], 1).is_some());
        assert_eq!(
            copies(&[&Answer::SoldOut, &held(1, false)], 0, true),
            None,
            "a unit came back in between"
        );
    }

    #[test]
    fn the_limit_refuses_neither_too_early_nor_too_late() {
        let standing = |held, may_return| Standing {
            held,
            limit: 2,
            may_return,
        };
        assert_eq!(new_order(&held(1, false), 1, standing(1, false)), None);
        assert_eq!(new_order(&Answer::Limited, 1, standing(2, false)), None);
        assert_eq!(new_order(&Answer::Limited, 1, standing(0, true)), None);
        assert!(new_order(&held(1, false), 1, standing(2, false)).is_some());
        assert!(new_order(&held(1, false), 3, standing(0, false)).is_some());
        assert!(new_order(&Answer::Limited, 1, standing(1, false)).is_some());
    }

    #[test]
    fn at_once_as_many_are_held_as_the_limit_allows() {
        let (one, other, third) = (held(1, false), held(2, false), held(3, false));
        let judge = |answers: &[&Answer], may_return| {
            all_at_once(
                answers,
                1,
                Standing {
                    held: 0,
                    limit: 2,
                    may_return,
                },
            )
        };
        assert_eq!(
            judge(&[&one, &other, &Answer::Limited, &Answer::Limited], false),
            None
        );
        assert!(
            judge(&[&one, &other, &third], false).is_some(),
            "over the limit"
        );
        assert!(
            judge(&[&one, &Answer::Limited, &Answer::Limited], false).is_some(),
            "below the limit"
        );
        assert_eq!(
            judge(&[&one, &Answer::Limited], true),
            None,
            "the buyer is here twice"
        );
        assert_eq!(
            judge(&[&one, &Answer::Limited, &Answer::SoldOut], false),
            None,
            "the third was under way when the second was refused"
        );
    }
}
