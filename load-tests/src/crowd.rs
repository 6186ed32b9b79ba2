//! The crowd: which buyer comes next, for which item, and how the buyer behaves.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use crate::{
    behaviors::Behavior,
    buyers::VirtualUser,
    items::Items,
    mix::{self, Mix},
    skew::Skew,
};

/// The sessions to come.
pub struct Crowd {
    mix: Mix,
    seed: u64,
    skew: Skew,
    /// Whether a buyer can have more than one session.
    may_return: bool,
    sessions: AtomicU64,
}

impl Crowd {
    /// At most `sessions` sessions of so many buyers.
    pub fn new(mix: Mix, seed: u64, (buyers, skew): (u64, f64), sessions: u64) -> Result<Self> {
        let skew = Skew::new("--skew", buyers, skew)?;
        let may_return = !skew.chooses_once(sessions);
        Ok(Self {
            mix,
            seed,
            skew,
            may_return,
            sessions: AtomicU64::new(0),
        })
    }

    /// The next virtual user, for one of these items, with what the session does.
    pub fn next(&self, items: &Items) -> (VirtualUser, &'static Behavior) {
        let session = self.sessions.fetch_add(1, Ordering::Relaxed);
        let random = mix::random(self.seed, session);
        let (scenario, behavior) = self.mix.pick(random);
        // Each decision gets its own random bits, so that they are independent.
        let (of_buyer, of_item) = (mix::random(random, 1), mix::random(random, 2));
        let buyer = usize::try_from(self.skew.choose(session, of_buyer)).unwrap_or(0);
        let virtual_user = VirtualUser {
            session,
            buyer,
            item: items.choose(scenario.policy, of_item, of_item),
            may_return: self.may_return,
            random,
        };
        (virtual_user, behavior)
    }
}

#[cfg(test)]
mod tests {
    use super::Crowd;
    use crate::{items::Items, mix::Mix, options::Options, scenarios::RUSH};

    fn crowd(buyers: u64, skew: f64, sessions: u64) -> (Crowd, Items) {
        let mix = Mix::of(&RUSH);
        let options = Options::for_tests(&["--items", "3"]);
        let items = Items::new(mix.policies(), "vase", &options).unwrap();
        let crowd = Crowd::new(mix, 1, (buyers, skew), sessions).unwrap();
        (crowd, items)
    }

    #[test]
    fn buyers_return_only_after_every_buyer_had_a_session() {
        let (crowd, items) = crowd(3, 0.0, 4);
        let users: Vec<_> = (0..4).map(|_| crowd.next(&items).0).collect();
        let sessions: Vec<_> = users
            .iter()
            .map(|user| (user.session, user.buyer))
            .collect();
        assert_eq!(sessions, [(0, 0), (1, 1), (2, 2), (3, 0)]);
        assert!(
            users.iter().all(|user| user.may_return),
            "the first session may still run when the second begins"
        );
    }

    #[test]
    fn in_a_large_crowd_no_buyer_returns_unless_it_is_skewed() {
        let may_return = |skew| {
            let (crowd, items) = crowd(4, skew, 4);
            crowd.next(&items).0.may_return
        };
        assert!(!may_return(0.0));
        assert!(may_return(1.0));
    }

    #[test]
    fn every_item_is_bought() {
        let (crowd, items) = crowd(100, 0.0, 100);
        let bought: std::collections::BTreeSet<_> =
            (0..100).map(|_| crowd.next(&items).0.item).collect();
        assert_eq!(bought.len(), 3);
    }
}
