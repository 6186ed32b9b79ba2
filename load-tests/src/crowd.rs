//! The buyers: their tokens, and who comes next.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::header::HeaderValue;
use serde::Serialize;

use crate::{
    buyers::Kind,
    items::Items,
    mix::{self, Mix},
    skew::Skew,
};

/// Longer than any run.
const TOKEN_SECONDS: u64 = 24 * 3600;

/// Everybody who might come.
pub struct Crowd {
    mix: Mix,
    seed: u64,
    skew: Skew,
    key: EncodingKey,
    exp: u64,
    /// Signed before the clock starts: it costs as much as a request.
    authorizations: Vec<HeaderValue>,
    /// The same buyer may come more than once.
    may_return: bool,
    visits: AtomicU64,
}

/// A buyer who comes to buy.
#[derive(Debug, Clone, Copy)]
pub struct Guest {
    /// The number of the visit.
    pub visit: u64,
    /// Who.
    pub buyer: usize,
    /// For which item.
    pub item: usize,
    /// The buyer may be here twice, even at the same time, so a visit does not know all that the buyer holds.
    pub may_return: bool,
    /// How the buyer behaves.
    pub kind: &'static Kind,
    /// What the buyer's whims are decided with.
    pub dice: u64,
}

#[derive(Serialize)]
struct Claims {
    sub: String,
    exp: u64,
}

impl Crowd {
    /// That many buyers for at most that many visits, with tokens that the service will accept.
    pub fn new(
        mix: Mix,
        seed: u64,
        (buyers, skew): (u64, f64),
        visits: u64,
        jwt_secret: &str,
    ) -> Result<Self> {
        let skew = Skew::new("--skew", buyers, skew)?;
        let key = EncodingKey::from_secret(jwt_secret.as_bytes());
        let exp = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + TOKEN_SECONDS;
        let authorizations = (0..buyers)
            .map(|buyer| authorization(&key, buyer, exp))
            .collect::<Result<_>>()?;
        let may_return = !skew.chooses_once(visits);
        Ok(Self {
            mix,
            seed,
            skew,
            key,
            exp,
            authorizations,
            may_return,
            visits: AtomicU64::new(0),
        })
    }

    /// Who comes next, and for which of these items.
    pub fn next(&self, items: &Items) -> Guest {
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let dice = mix::dice(self.seed, visit);
        let (scenario, kind) = self.mix.pick(dice);
        // What was decided by these dice must not decide anything else.
        let (of_buyer, of_item) = (mix::dice(dice, 1), mix::dice(dice, 2));
        let buyer = usize::try_from(self.skew.choose(visit, of_buyer)).unwrap_or(0);
        let item = items.choose(scenario, of_item, of_item);
        Guest {
            visit,
            buyer,
            item,
            may_return: self.may_return,
            kind,
            dice,
        }
    }

    /// How many buyers there are. Who has a higher number has never been here.
    pub fn buyers(&self) -> usize {
        self.authorizations.len()
    }

    /// What the buyer shows.
    pub fn authorization(&self, buyer: usize) -> Result<HeaderValue> {
        match self.authorizations.get(buyer) {
            Some(authorization) => Ok(authorization.clone()),
            None => authorization(&self.key, buyer as u64, self.exp),
        }
    }
}

fn authorization(key: &EncodingKey, buyer: u64, exp: u64) -> Result<HeaderValue> {
    let claims = Claims {
        sub: format!("buyer-{buyer}"),
        exp,
    };
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key)?;
    Ok(HeaderValue::try_from(format!("Bearer {token}"))?)
}

#[cfg(test)]
mod tests {
    use super::Crowd;
    use crate::{cli::Options, items::Items, mix::Mix, scenarios::RUSH};

    fn crowd(buyers: u64, skew: f64, visits: u64) -> (Crowd, Items) {
        let mix = Mix::of(&RUSH);
        let items = Items::new(
            &mix,
            "http://127.0.0.1:1",
            "vase",
            &Options::for_tests(&["--items", "3"]),
        )
        .unwrap();
        (
            Crowd::new(
                mix,
                1,
                (buyers, skew),
                visits,
                "a secret that is long enough",
            )
            .unwrap(),
            items,
        )
    }

    #[test]
    fn buyers_come_again_only_when_all_have_been_here() {
        let (crowd, items) = crowd(3, 0.0, 4);
        let guests: Vec<_> = (0..4).map(|_| crowd.next(&items)).collect();
        assert_eq!(
            guests
                .iter()
                .map(|guest| (guest.visit, guest.buyer))
                .collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 2), (3, 0)]
        );
        assert!(
            guests.iter().all(|guest| guest.may_return),
            "the first visit may not be over when the second begins"
        );
        assert_ne!(
            crowd.authorization(0).unwrap(),
            crowd.authorization(1).unwrap()
        );
        assert_ne!(
            crowd.authorization(0).unwrap(),
            crowd.authorization(crowd.buyers()).unwrap(),
            "one more can always come"
        );
    }

    #[test]
    fn in_a_large_crowd_nobody_returns_unless_it_is_skewed() {
        let may_return = |skew| {
            let (crowd, items) = crowd(4, skew, 4);
            crowd.next(&items).may_return
        };
        assert!(!may_return(0.0));
        assert!(may_return(1.0));
    }

    #[test]
    fn every_item_is_asked_for() {
        let (crowd, items) = crowd(100, 0.0, 100);
        let asked: std::collections::BTreeSet<_> =
            (0..100).map(|_| crowd.next(&items).item).collect();
        assert_eq!(asked.len(), 3);
    }
}
