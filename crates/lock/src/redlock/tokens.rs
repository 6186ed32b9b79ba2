//! The highest tokens that nodes have told us of, so that the first proposal is usually high enough.

use std::collections::HashMap;

use crate::{FencingToken, keys::Keys};

/// Names whose tokens are remembered.
const SEEN_MAX: usize = 10_000;

/// Forgetting them costs a proposal, never a token.
#[derive(Default)]
pub(crate) struct Seen {
    by_name: HashMap<String, FencingToken>,
    /// Of any name: what a node has forgotten of an idle name is not above it.
    highest: Option<FencingToken>,
}

impl Seen {
    pub(crate) fn note(&mut self, keys: &Keys, token: FencingToken) {
        // The last token of one name must not be the last one of all.
        self.highest = self.highest.max(Some(token).filter(|token| *token < FencingToken::LAST));
        if self.by_name.len() >= SEEN_MAX && !self.by_name.contains_key(keys.lock()) {
            self.by_name.clear();
        }
        let seen = self.by_name.entry(keys.lock().to_owned()).or_insert(token);
        *seen = token.max(*seen);
    }

    pub(crate) fn proposal(&self, keys: &Keys) -> Option<FencingToken> {
        match self.by_name.get(keys.lock()).copied().or(self.highest) {
            None => Some(FencingToken::FIRST),
            Some(seen) => seen.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FencingToken, Keys, SEEN_MAX, Seen};

    #[test]
    fn forgetting_what_was_seen_never_lowers_a_proposal() {
        let mut seen = Seen::default();
        let name = |name: usize| Keys::new(&name.to_string()).unwrap();
        assert_eq!(seen.proposal(&name(0)), Some(FencingToken::FIRST));
        seen.note(&name(0), FencingToken::new(1000).unwrap());
        for other in 1..=SEEN_MAX {
            seen.note(&name(other), FencingToken::FIRST);
        }
        assert!(seen.by_name.len() < SEEN_MAX);
        assert_eq!(seen.proposal(&name(0)), FencingToken::new(1001));
        seen.note(&name(0), FencingToken::LAST);
        assert_eq!(seen.proposal(&name(0)), None);
    }
}
