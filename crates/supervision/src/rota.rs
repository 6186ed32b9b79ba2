//! What a worker looks at: a few things often, and all others rarely.
//!
//! A thing is awake from a sign of work until the worker puts it to rest. Awake, it is looked at in
//! every round. At rest it is looked at once, at its time, or at the next sign of work. So a round
//! costs what there is to do, and not what there is.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher as _},
    time::{Duration, Instant},
};

use crate::Calendar;

/// What a worker looks at, and when.
#[derive(Debug)]
pub struct Rota<K> {
    /// Each with the time until which it stays awake, also if there is nothing to do.
    awake: HashMap<K, Instant>,
    resting: HashSet<K>,
    /// The next look at each that rests, if there is one.
    looks: Calendar<K, Instant>,
}

impl<K> Default for Rota<K> {
    fn default() -> Self {
        Self {
            awake: HashMap::new(),
            resting: HashSet::new(),
            looks: Calendar::default(),
        }
    }
}

impl<K: Clone + Ord + Hash> Rota<K> {
    /// Wakes it, until this time at least.
    pub fn wake(&mut self, key: &K, until: Instant) {
        self.stop_resting(key);
        let awake = self.awake.entry(key.clone()).or_insert(until);
        *awake = until.max(*awake);
    }

    /// Puts it to rest until its next look, if there is one, unless it has to stay awake.
    pub fn rest(&mut self, key: &K, next: Option<Instant>, now: Instant) {
        if self.awake.get(key).is_some_and(|until| *until > now) {
            return;
        }
        self.remove(key);
        self.resting.insert(key.clone());
        self.looks.set(key, next);
    }

    /// Puts it to rest until the next sign of work, also if it had to stay awake: nothing more is to
    /// come of it.
    pub fn rest_for_good(&mut self, key: &K) {
        self.remove(key);
        self.resting.insert(key.clone());
    }

    /// Puts it to rest for about so long, or for good. Things that come to rest together are not
    /// looked at together.
    pub fn rest_about(&mut self, key: &K, pause: Option<Duration>, now: Instant) {
        match pause {
            Some(pause) => self.rest(key, Some(now + spread(key, pause)), now),
            None => self.rest_for_good(key),
        }
    }

    /// Forgets it.
    pub fn remove(&mut self, key: &K) {
        self.awake.remove(key);
        self.stop_resting(key);
    }

    /// Has everything at rest looked at, as soon as there is time. What has waited for its look before
    /// this stays in front, so that repeated looks in parts reach everything.
    pub fn look_everywhere(&mut self, now: Instant) {
        for key in &self.resting {
            if self.looks.moment(key).is_none_or(|moment| moment > now) {
                self.looks.set(key, Some(now));
            }
        }
    }

    /// Whether it is looked at in every round.
    pub fn is_awake(&self, key: &K) -> bool {
        self.awake.contains_key(key)
    }

    /// What is to be looked at now: whatever is awake, and of what rests those whose time has come,
    /// at most so many. Each stays due until it is put to rest.
    pub fn due(&self, now: Instant, resting_max: usize) -> Vec<K> {
        let resting = self.looks.due(now).take(resting_max);
        self.awake.keys().chain(resting).cloned().collect()
    }

    fn stop_resting(&mut self, key: &K) {
        if self.resting.remove(key) {
            self.looks.set(key, None);
        }
    }
}

/// Between half of a time and one and a half, always the same for a key: what begins together does
/// not come together again.
pub fn spread(key: &impl Hash, time: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let share = f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    time.mul_f64(0.5 + share)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Rota;

    const SECOND: Duration = Duration::from_secs(1);

    fn due(rota: &Rota<u8>, now: Instant) -> Vec<u8> {
        let mut due = rota.due(now, 9);
        due.sort_unstable();
        due
    }

    #[test]
    fn what_is_awake_is_always_due_and_what_rests_at_its_time() {
        let (mut rota, now) = (Rota::default(), Instant::now());
        rota.wake(&1, now + SECOND);
        rota.rest(&2, Some(now + SECOND * 5), now);
        rota.rest(&3, None, now);
        assert_eq!(due(&rota, now), [1]);
        rota.rest(&1, None, now);
        assert_eq!(due(&rota, now), [1], "it has to stay awake");
        assert_eq!(
            [1, 2, 3].map(|key| rota.is_awake(&key)),
            [true, false, false]
        );
        rota.rest(&1, None, now + SECOND);
        assert_eq!(due(&rota, now + SECOND * 4), []);
        assert_eq!(due(&rota, now + SECOND * 5), [2]);
        assert_eq!(due(&rota, now + SECOND * 6), [2], "until it rests again");
        rota.rest(&2, Some(now + SECOND * 9), now + SECOND * 6);
        assert_eq!(due(&rota, now + SECOND * 8), []);
        rota.wake(&3, now);
        rota.wake(&2, now);
        assert_eq!(due(&rota, now + SECOND * 9), [2, 3], "each once");
        rota.remove(&2);
        rota.remove(&3);
        assert_eq!(due(&rota, now + SECOND * 99), []);
    }

    #[test]
    fn what_is_over_rests_at_once_until_it_is_woken() {
        let (mut rota, now) = (Rota::default(), Instant::now());
        rota.wake(&1, now + SECOND);
        rota.rest_for_good(&1);
        assert_eq!(due(&rota, now + SECOND * 99), []);
        rota.look_everywhere(now);
        assert_eq!(due(&rota, now), [1]);
        rota.rest_for_good(&1);
        rota.wake(&1, now);
        assert_eq!(due(&rota, now), [1]);
    }

    #[test]
    fn times_are_spread_over_as_long_as_the_time() {
        let spread: Vec<_> = (0..1000).map(|key| super::spread(&key, SECOND)).collect();
        let late = spread.iter().filter(|time| **time >= SECOND).count();
        assert!((400..600).contains(&late), "{late} of 1000");
        let range = SECOND / 2..=SECOND * 3 / 2;
        assert!(spread.iter().all(|time| range.contains(time)));
        assert_eq!(super::spread(&7, SECOND), spread[7]);
    }

    #[test]
    fn looks_everywhere_that_come_in_parts_reach_everything() {
        let (mut rota, now) = (Rota::default(), Instant::now());
        for key in 0..9 {
            rota.rest(&key, None, now);
        }
        let mut looked_at = Vec::new();
        for round in 0..3 {
            let now = now + SECOND * round;
            rota.look_everywhere(now);
            for key in rota.due(now, 3) {
                looked_at.push(key);
                rota.rest(&key, Some(now + SECOND * 2), now);
            }
        }
        looked_at.sort_unstable();
        assert_eq!(looked_at, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_look_everywhere_comes_in_parts_and_does_not_hold_up_what_is_awake() {
        let (mut rota, now) = (Rota::default(), Instant::now());
        for key in 0..9 {
            rota.rest(&key, None, now);
        }
        rota.look_everywhere(now);
        rota.wake(&8, now);
        let first = rota.due(now, 3);
        assert_eq!((first.len(), first[0]), (4, 8));
        for key in &first {
            rota.rest(key, None, now);
        }
        assert_eq!(rota.due(now, 9).len(), 5, "the others");
    }
}
