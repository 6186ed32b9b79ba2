//! The buyers: their tokens, and which of them is next.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Result;
use client::Token;

use crate::{
    behaviors::Behavior,
    items::Items,
    mix::{self, Mix},
    skew::Skew,
};

/// Longer than any run.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// All buyers.
pub struct Population {
    mix: Mix,
    seed: u64,
    skew: Skew,
    jwt_secret: String,
    /// Signed before the clock starts, because signing costs as much as a request.
    tokens: Vec<Token>,
    /// Whether a buyer can have more than one session.
    may_return: bool,
    sessions: AtomicU64,
}

/// A buyer for one session.
#[derive(Debug, Clone, Copy)]
pub struct VirtualUser {
    /// The number of the session.
    pub session: u64,
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item.
    pub item: usize,
    /// Whether the buyer can have another session, even concurrently. A session then does not know
    /// all units that the buyer holds.
    pub may_return: bool,
    /// What the session does.
    pub behavior: &'static Behavior,
    /// Random bits for all decisions of the session.
    pub random: u64,
}

impl Population {
    /// Buyers for at most `sessions` sessions, with valid tokens.
    pub fn new(
        mix: Mix,
        seed: u64,
        (buyers, skew): (u64, f64),
        sessions: u64,
        jwt_secret: &str,
    ) -> Result<Self> {
        let skew = Skew::new("--skew", buyers, skew)?;
        let may_return = !skew.chooses_once(sessions);
        Ok(Self {
            mix,
            seed,
            skew,
            jwt_secret: jwt_secret.to_owned(),
            tokens: (0..buyers).map(|buyer| mint(jwt_secret, buyer)).collect(),
            may_return,
            sessions: AtomicU64::new(0),
        })
    }

    /// The next virtual user, for one of these items.
    pub fn next(&self, items: &Items) -> VirtualUser {
        let session = self.sessions.fetch_add(1, Ordering::Relaxed);
        let random = mix::random(self.seed, session);
        let (scenario, behavior) = self.mix.pick(random);
        // Each decision gets its own random bits, so that they are independent.
        let (of_buyer, of_item) = (mix::random(random, 1), mix::random(random, 2));
        let buyer = usize::try_from(self.skew.choose(session, of_buyer)).unwrap_or(0);
        let item = items.choose(scenario, of_item, of_item);
        VirtualUser {
            session,
            buyer,
            item,
            may_return: self.may_return,
            behavior,
            random,
        }
    }

    /// Number of buyers. A higher number than that is a new buyer.
    pub fn buyers(&self) -> usize {
        self.tokens.len()
    }

    /// The token of a buyer.
    pub fn token(&self, buyer: usize) -> Token {
        match self.tokens.get(buyer) {
            Some(token) => token.clone(),
            None => mint(&self.jwt_secret, buyer as u64),
        }
    }
}

fn mint(jwt_secret: &str, buyer: u64) -> Token {
    Token::mint_buyer(jwt_secret, &format!("buyer-{buyer}"), TOKEN_LIFETIME)
}

#[cfg(test)]
mod tests {
    use super::Population;
    use crate::{items::Items, mix::Mix, options::Options, scenarios::RUSH};

    fn population(buyers: u64, skew: f64, sessions: u64) -> (Population, Items) {
        let mix = Mix::of(&RUSH);
        let items = Items::new(&mix, "vase", &Options::for_tests(&["--items", "3"])).unwrap();
        let secret = "a secret that is long enough";
        let population = Population::new(mix, 1, (buyers, skew), sessions, secret).unwrap();
        (population, items)
    }

    #[test]
    fn buyers_return_only_after_every_buyer_had_a_session() {
        let (population, items) = population(3, 0.0, 4);
        let users: Vec<_> = (0..4).map(|_| population.next(&items)).collect();
        let sessions: Vec<_> = users
            .iter()
            .map(|user| (user.session, user.buyer))
            .collect();
        assert_eq!(sessions, [(0, 0), (1, 1), (2, 2), (3, 0)]);
        assert!(
            users.iter().all(|user| user.may_return),
            "the first session may still run when the second begins"
        );
        let token = |buyer| population.token(buyer).as_str().to_owned();
        assert_ne!(token(0), token(1));
        assert_ne!(
            token(0),
            token(population.buyers()),
            "there is always one more buyer"
        );
    }

    #[test]
    fn in_a_large_population_no_buyer_returns_unless_it_is_skewed() {
        let may_return = |skew| {
            let (population, items) = population(4, skew, 4);
            population.next(&items).may_return
        };
        assert!(!may_return(0.0));
        assert!(may_return(1.0));
    }

    #[test]
    fn every_item_is_bought() {
        let (population, items) = population(100, 0.0, 100);
        let bought: std::collections::BTreeSet<_> =
            (0..100).map(|_| population.next(&items).item).collect();
        assert_eq!(bought.len(), 3);
    }
}
