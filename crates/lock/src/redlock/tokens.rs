//! The highest tokens that nodes have reported, so that the first proposal is usually high
//! enough.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{FencingToken, redis_server::Keys};

/// Names whose tokens are remembered.
const SEEN_MAX: usize = 10_000;

/// Proposals that are one above what was seen. Those after them leap ahead, each twice as far as the
/// one before: a node that does not know the name wants a token above every token that it has
/// accepted for any name, and other clients may raise that as fast as it is read.
const NEXT_PROPOSALS: u32 = 2;

/// Forgetting them costs a proposal, never a token.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Tokens>);

#[derive(Default)]
struct Tokens {
    by_name: HashMap<String, FencingToken>,
    /// Of any name: what a node has forgotten of an idle name is not above it.
    highest: Option<FencingToken>,
}

impl Seen {
    pub(crate) fn note(&self, keys: &Keys, token: FencingToken) {
        let mut tokens = self.tokens();
        tokens.note_any(token);
        if tokens.by_name.len() >= SEEN_MAX && !tokens.by_name.contains_key(keys.lock()) {
            tokens.by_name.clear();
        }
        let seen = tokens
            .by_name
            .entry(keys.lock().to_owned())
            .or_insert(token);
        *seen = token.max(*seen);
    }

    /// A token of some name.
    pub(crate) fn note_any(&self, token: FencingToken) {
        self.tokens().note_any(token);
    }

    /// What to propose after so many proposals that were too low.
    pub(crate) fn proposal(&self, keys: &Keys, too_low: u32) -> Option<FencingToken> {
        let tokens = self.tokens();
        let distance = 1 << (too_low + 1).saturating_sub(NEXT_PROPOSALS);
        match tokens.by_name.get(keys.lock()).copied().or(tokens.highest) {
            None => Some(FencingToken::FIRST),
            Some(seen) => seen.after(distance),
        }
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tokens {
    /// The last token of one name must not be the last one of all.
    fn note_any(&mut self, token: FencingToken) {
        self.highest = self
            .highest
            .max(Some(token).filter(|token| *token < FencingToken::LAST));
    }
}

#[cfg(test)]
mod tests {
    use super::{FencingToken, Keys, SEEN_MAX, Seen};

    #[test]
    fn forgetting_what_was_seen_never_lowers_a_proposal() {
        let seen = Seen::default();
        let name = |name: usize| Keys::new(&name.to_string()).unwrap();
        assert_eq!(seen.proposal(&name(0), 0), Some(FencingToken::FIRST));
        seen.note(&name(0), FencingToken::new(1000).unwrap());
        for other in 1..=SEEN_MAX {
            seen.note(&name(other), FencingToken::FIRST);
        }
        assert!(seen.tokens().by_name.len() < SEEN_MAX);
        assert_eq!(seen.proposal(&name(0), 0), FencingToken::new(1001));
        seen.note(&name(0), FencingToken::LAST);
        assert_eq!(seen.proposal(&name(0), 0), None);
    }

    #[test]
    fn a_proposal_that_was_too_low_again_and_again_leaps_ahead() {
        let seen = Seen::default();
        let name = Keys::new("name").unwrap();
        seen.note(&name, FencingToken::new(100).unwrap());
        let proposed = (0..6).map(|too_low| seen.proposal(&name, too_low));
        let proposed: Vec<_> = proposed.map(|token| token.unwrap().get()).collect();
        assert_eq!(proposed, [101, 101, 102, 104, 108, 116]);
    }

    #[test]
    fn a_leap_does_not_use_up_the_tokens_of_a_name() {
        let seen = Seen::default();
        let name = Keys::new("name").unwrap();
        let near_the_end = FencingToken::LAST.get() - 16;
        seen.note(&name, FencingToken::new(near_the_end).unwrap());
        for (too_low, proposed) in [(4, 8), (5, 1), (7, 1)] {
            let expected = FencingToken::new(near_the_end + proposed);
            assert_eq!(seen.proposal(&name, too_low), expected, "{too_low}");
        }
    }
}
