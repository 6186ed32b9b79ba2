//! The highest tokens that nodes have reported, so that the first proposal is usually high
//! enough.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{FencingToken, redis_server::Keys};

/// Names whose tokens are remembered.
const SEEN_MAX: usize = 10_000;

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

    pub(crate) fn proposal(&self, keys: &Keys) -> Option<FencingToken> {
        let tokens = self.tokens();
        match tokens.by_name.get(keys.lock()).copied().or(tokens.highest) {
            None => Some(FencingToken::FIRST),
            Some(seen) => seen.next(),
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
        assert_eq!(seen.proposal(&name(0)), Some(FencingToken::FIRST));
        seen.note(&name(0), FencingToken::new(1000).unwrap());
        for other in 1..=SEEN_MAX {
            seen.note(&name(other), FencingToken::FIRST);
        }
        assert!(seen.tokens().by_name.len() < SEEN_MAX);
        assert_eq!(seen.proposal(&name(0)), FencingToken::new(1001));
        seen.note(&name(0), FencingToken::LAST);
        assert_eq!(seen.proposal(&name(0)), None);
    }
}
