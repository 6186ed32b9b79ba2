//! When each of many things is due. What is not due costs nothing, however many things there are.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// The moment of each thing that has one.
#[derive(Debug)]
pub struct Calendar<K, M> {
    moments: HashMap<K, M>,
    in_order: BTreeSet<(M, K)>,
}

impl<K, M> Default for Calendar<K, M> {
    fn default() -> Self {
        Self {
            moments: HashMap::new(),
            in_order: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord + Hash, M: Copy + Ord> Calendar<K, M> {
    /// Enters the moment of a thing in place of an earlier one. `None`: it has none.
    pub fn set(&mut self, key: &K, moment: Option<M>) {
        let before = match moment {
            Some(moment) => self.moments.insert(key.clone(), moment),
            None => self.moments.remove(key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, key.clone()));
        }
        self.in_order
            .extend(moment.map(|moment| (moment, key.clone())));
    }

    /// The moment of a thing, if it has one.
    pub fn moment(&self, key: &K) -> Option<M> {
        self.moments.get(key).copied()
    }

    /// What is due, the earliest first. Each stays due until its moment is another one.
    pub fn due(&self, now: M) -> impl Iterator<Item = &K> {
        let due = self.in_order.iter();
        due.take_while(move |(moment, _)| *moment <= now)
            .map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::Calendar;

    #[test]
    fn a_thing_is_due_from_its_moment_until_it_has_another_one() {
        let mut calendar = Calendar::default();
        calendar.set(&"vase", Some(20));
        calendar.set(&"lamp", Some(10));
        let due = |calendar: &Calendar<&'static str, u64>, now| {
            let due = calendar.due(now).copied();
            due.collect::<Vec<_>>()
        };
        assert!(due(&calendar, 9).is_empty());
        assert_eq!(due(&calendar, 10), ["lamp"]);
        assert_eq!(due(&calendar, 20), ["lamp", "vase"]);
        assert_eq!(
            ["lamp", "bowl"].map(|key| calendar.moment(&key)),
            [Some(10), None]
        );
        calendar.set(&"lamp", Some(30));
        calendar.set(&"vase", Some(20));
        assert_eq!(due(&calendar, 29), ["vase"]);
        calendar.set(&"vase", None);
        calendar.set(&"vase", None);
        assert!(due(&calendar, 29).is_empty());
        assert_eq!(due(&calendar, 30), ["lamp"]);
    }
}
