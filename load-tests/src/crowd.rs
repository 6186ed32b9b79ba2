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
    mix::{self, Mix},
};

/// Longer than any run.
const TOKEN_SECONDS: u64 = 24 * 3600;

/// Everybody who might come.
pub struct Crowd {
    mix: &'static Mix,
    seed: u64,
    /// Signed before the clock starts: it costs as much as a request.
    authorizations: Vec<HeaderValue>,
    /// There are too few buyers for the visits.
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
    pub fn new(mix: &'static Mix, seed: u64, buyers: u64, visits: u64, jwt_secret: &str) -> Result<Self> {
        let key = EncodingKey::from_secret(jwt_secret.as_bytes());
        let exp = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + TOKEN_SECONDS;
        let authorizations = (0..buyers).map(|buyer| authorization(&key, buyer, exp)).collect::<Result<_>>()?;
        Ok(Self { mix, seed, authorizations, may_return: buyers < visits, visits: AtomicU64::new(0) })
    }

    /// Who comes next.
    pub fn next(&self) -> Guest {
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let buyer = usize::try_from(visit).unwrap_or(usize::MAX) % self.authorizations.len();
        let dice = mix::dice(self.seed, visit);
        Guest { visit, buyer, may_return: self.may_return, kind: self.mix.pick(dice), dice }
    }

    /// What the buyer shows.
    pub fn authorization(&self, buyer: usize) -> HeaderValue {
        self.authorizations[buyer].clone()
    }
}

fn authorization(key: &EncodingKey, buyer: u64, exp: u64) -> Result<HeaderValue> {
    let claims = Claims { sub: format!("buyer-{buyer}"), exp };
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key)?;
    Ok(HeaderValue::try_from(format!("Bearer {token}"))?)
}

#[cfg(test)]
mod tests {
    use super::Crowd;
    use crate::rush::MIX;

    #[test]
    fn buyers_come_again_only_when_all_have_been_here() {
        let crowd = Crowd::new(&MIX, 1, 3, 4, "a secret that is long enough").unwrap();
        let guests: Vec<_> = (0..4).map(|_| crowd.next()).collect();
        assert_eq!(guests.iter().map(|guest| (guest.visit, guest.buyer)).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 0)]);
        assert!(guests.iter().all(|guest| guest.may_return), "the first visit may not be over when the second begins");
        assert_ne!(crowd.authorization(0), crowd.authorization(1));
    }

    #[test]
    fn in_a_large_crowd_nobody_returns() {
        assert!(!Crowd::new(&MIX, 1, 4, 4, "a secret that is long enough").unwrap().next().may_return);
    }
}
