//! Whether an answer may be given, by what the buyer was answered before.

use crate::answer::Answer;

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
        Answer::Limited if !over && !standing.may_return => Some("a buyer below the limit was refused as limited"),
        _ => None,
    }
}

/// The answer to a request that was made after the same request had been answered.
///
/// The item's stock only falls in these scenarios, so a refusal stands.
pub fn repeat(first: &Answer, again: &Answer) -> Option<Flaw> {
    match (first, again) {
        (Answer::Held { .. }, Answer::Held { replayed: false, .. }) => Some("a repeat was not marked as replayed"),
        _ => same(first, again),
    }
}

/// The answers to the same request made twice at once. Either may have been the first.
pub fn twins(one: &Answer, other: &Answer) -> Option<Flaw> {
    match (one, other) {
        (Answer::Held { replayed: false, .. }, Answer::Held { replayed: false, .. }) => Some("of two at once none was marked as replayed"),
        _ => same(one, other),
    }
}

fn same(first: &Answer, again: &Answer) -> Option<Flaw> {
    match (first, again) {
        // Counted as errors in their own right.
        (Answer::Unknown(_) | Answer::Wrong(_), _) | (_, Answer::Unknown(_) | Answer::Wrong(_)) => None,
        (Answer::Held { id: first, .. }, Answer::Held { id: again, .. }) if first != again => Some("a repeat was given another order"),
        (Answer::Held { .. }, Answer::Held { .. }) | (Answer::SoldOut, Answer::SoldOut) | (Answer::Limited, Answer::Limited) => None,
        (Answer::Held { .. }, _) => Some("a repeat of a held order was refused"),
        (_, Answer::Held { .. }) => Some("a repeat of a refused order was held"),
        _ => Some("a repeat was refused for another reason"),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Standing, new_order, repeat, twins};
    use crate::answer::Answer;

    fn held(id: u128, replayed: bool) -> Answer {
        Answer::Held { id: Uuid::from_u128(id), replayed }
    }

    #[test]
    fn a_repeat_must_get_the_same_answer_and_say_so() {
        assert_eq!(repeat(&held(1, false), &held(1, true)), None);
        assert_eq!(repeat(&Answer::SoldOut, &Answer::SoldOut), None);
        assert_eq!(repeat(&Answer::Limited, &Answer::Limited), None);
        for (first, again) in [
            (held(1, false), held(1, false)),
            (held(1, false), held(2, true)),
            (held(1, false), Answer::SoldOut),
            (held(1, false), Answer::Limited),
            (Answer::SoldOut, held(1, false)),
            (Answer::SoldOut, Answer::Limited),
        ] {
            assert!(repeat(&first, &again).is_some(), "{first:?} {again:?}");
        }
    }

    #[test]
    fn of_twins_either_is_the_first_and_one_must_be_the_repeat() {
        assert_eq!(twins(&held(1, false), &held(1, true)), None);
        assert_eq!(twins(&held(1, true), &held(1, false)), None);
        assert_eq!(twins(&Answer::SoldOut, &Answer::SoldOut), None);
        assert!(twins(&held(1, false), &held(1, false)).is_some());
        assert!(twins(&held(1, true), &held(2, false)).is_some());
        assert!(twins(&Answer::SoldOut, &held(1, false)).is_some());
    }

    #[test]
    fn the_limit_refuses_neither_too_early_nor_too_late() {
        let standing = |held, may_return| Standing { held, limit: 2, may_return };
        assert_eq!(new_order(&held(1, false), 1, standing(1, false)), None);
        assert_eq!(new_order(&Answer::Limited, 1, standing(2, false)), None);
        assert_eq!(new_order(&Answer::Limited, 1, standing(0, true)), None);
        assert!(new_order(&held(1, false), 1, standing(2, false)).is_some());
        assert!(new_order(&held(1, false), 3, standing(0, false)).is_some());
        assert!(new_order(&Answer::Limited, 1, standing(1, false)).is_some());
    }
}
