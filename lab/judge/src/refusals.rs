//! What the ledger has although its buyer was refused.

use std::{collections::HashMap, hash::Hash};

/// What was found in the ledger and no request explains.
///
/// The ledger lists no idempotency keys. So what no acknowledgement names is compared by what it
/// looks like, such as its buyer and units. `may_exist` has the look of each request whose outcome
/// its client does not know, and each of them explains one that was found.
pub fn unexplained<K: Eq + Hash, T>(
    may_exist: impl IntoIterator<Item = K>,
    found: impl IntoIterator<Item = (K, T)>,
) -> Vec<T> {
    let mut unknown_outcomes = HashMap::<K, usize>::new();
    for look in may_exist {
        *unknown_outcomes.entry(look).or_default() += 1;
    }
    let is_unexplained = |(look, what): (K, T)| match unknown_outcomes.get_mut(&look) {
        Some(left) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => Some(what),
    };
    found.into_iter().filter_map(is_unexplained).collect()
}

#[cfg(test)]
mod tests {
    use super::unexplained;

    #[test]
    fn each_unknown_outcome_explains_one_order() {
        let found = [(("ann", 1), 'a'), (("ann", 1), 'b'), (("ann", 2), 'c')];
        assert_eq!(unexplained([], found), ['a', 'b', 'c']);
        assert_eq!(unexplained([("ann", 1)], found), ['b', 'c']);
        assert_eq!(unexplained([("ann", 1), ("ann", 1)], found), ['c']);
        assert_eq!(unexplained([("bob", 2)], found), ['a', 'b', 'c']);
    }
}
