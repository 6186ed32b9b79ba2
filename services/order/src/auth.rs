//! Who asks: buyers by a JWT, admins by a secret token.

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use quick_cache::{UnitWeighter, sync::Cache};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// What a buyer's token is checked with.
pub enum BuyerKey {
    /// HS256, a secret that the token's issuer has too.
    Secret(Vec<u8>),
    /// The issuer's public key in PEM: RSA (RS256, RS384, RS512), EC (ES256, ES384) or Ed25519 (EdDSA).
    PublicKey(Vec<u8>),
}

/// The key could not be used.
#[derive(Debug, thiserror::Error)]
#[error("not a PEM public key (RSA, EC or Ed25519)")]
pub struct BadKey;

/// Tokens that are remembered as good: so many have room from the beginning, and so many at most.
const TOKENS_USUALLY: usize = 10_000;
const TOKENS_MOST: u64 = 100_000;

/// Tells buyers and admins from everybody else.
pub struct Credentials {
    key: DecodingKey,
    validation: Validation,
    admin_token: Box<[u8]>,
    /// Tokens that were found good. Checking a signature costs more than the rest of a refusal.
    checked: Cache<Box<str>, Arc<Claims>>,
}

/// What a buyer's token says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub sub: BuyerId,
    /// Seconds since 1970, perhaps with a fraction (RFC 7519, NumericDate).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exp: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<f64>,
}

impl Claims {
    fn is_good_at(&self, now: f64) -> bool {
        self.exp.is_none_or(|exp| now < exp) && self.nbf.is_none_or(|nbf| nbf <= now)
    }
}

impl Credentials {
    /// Checks buyers with `key` and admins with `admin_token`.
    pub fn new(key: &BuyerKey, admin_token: impl AsRef<[u8]>) -> Result<Self, BadKey> {
        let (key, algorithms) = decoding_key(key)?;
        let mut validation = Validation::new(algorithms[0]);
        validation.algorithms = algorithms;
        // Whether its tokens expire is the issuer's decision; one that says when is held to it.
        validation.set_required_spec_claims(&["sub"]);
        validation.validate_aud = false;
        // We look at the times ourselves, with and without the cache.
        validation.validate_exp = false;
        let checked = Cache::with_weighter(TOKENS_USUALLY, TOKENS_MOST, UnitWeighter);
        Ok(Self {
            key,
            validation,
            admin_token: admin_token.as_ref().into(),
            checked,
        })
    }

    /// The buyer whose token this is.
    pub(crate) fn buyer(&self, token: &str) -> Option<Arc<Claims>> {
        let claims = self.checked.get(token).or_else(|| self.check(token))?;
        Some(claims)
            .filter(|claims| claims.is_good_at(jiff::Timestamp::now().as_duration().as_secs_f64()))
    }

    /// The name of the buyer whose token this is: for a service that is measured beside ours, and must not be faster for letting anybody in.
    pub fn buyer_name(&self, token: &str) -> Option<BuyerId> {
        self.buyer(token).map(|claims| claims.sub.clone())
    }

    fn check(&self, token: &str) -> Option<Arc<Claims>> {
        let claims = Arc::new(
            jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation)
                .ok()?
                .claims,
        );
        self.checked.insert(token.into(), Arc::clone(&claims));
        Some(claims)
    }

    /// Whether this is the admins' token. Takes the same time for every token of the right length.
    pub(crate) fn is_admin(&self, token: &str) -> bool {
        self.admin_token.ct_eq(token.as_bytes()).into()
    }
}

fn decoding_key(key: &BuyerKey) -> Result<(DecodingKey, Vec<Algorithm>), BadKey> {
    match key {
        BuyerKey::Secret(secret) => Ok((DecodingKey::from_secret(secret), vec![Algorithm::HS256])),
        BuyerKey::PublicKey(pem) => {
            let rsa = || {
                DecodingKey::from_rsa_pem(pem).map(|key| {
                    (
                        key,
                        vec![Algorithm::RS256, Algorithm::RS384, Algorithm::RS512],
                    )
                })
            };
            let ec = || {
                DecodingKey::from_ec_pem(pem)
                    .map(|key| (key, vec![Algorithm::ES256, Algorithm::ES384]))
            };
            let ed = || DecodingKey::from_ed_pem(pem).map(|key| (key, vec![Algorithm::EdDSA]));
            rsa()
                .or_else(|_| ec())
                .or_else(|_| ed())
                .map_err(|_| BadKey)
        }
    }
}

/// A token for `buyer`, as a shop's login would issue it, good for `lifetime`.
pub fn mint_buyer_token(secret: &[u8], buyer: &BuyerId, lifetime: Duration) -> Option<String> {
    let now = jiff::Timestamp::now().as_duration().as_secs_f64();
    let claims = Claims {
        sub: buyer.clone(),
        exp: Some((now + lifetime.as_secs_f64()).floor()),
        nbf: None,
    };
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(secret),
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::BuyerId;

    use super::{BuyerKey, Credentials, mint_buyer_token};

    fn credentials(secret: &str) -> Credentials {
        Credentials::new(&BuyerKey::Secret(secret.into()), "admin-token").unwrap()
    }

    #[test]
    fn a_token_names_its_buyer_to_whoever_has_the_secret() {
        let ann = BuyerId::new("ann").unwrap();
        let token = mint_buyer_token(b"secret", &ann, Duration::from_secs(60)).unwrap();
        let credentials = credentials("secret");
        for _ in 0..2 {
            assert_eq!(
                credentials.buyer(&token).unwrap().sub,
                ann,
                "also from the cache"
            );
        }
        assert!(self::credentials("other").buyer(&token).is_none());
        assert!(credentials.buyer("nonsense").is_none());
        assert!(credentials.buyer(&format!("{token}x")).is_none());
    }

    #[test]
    fn an_expired_early_or_unsigned_token_is_nobodys() {
        let credentials = credentials("secret");
        let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.";
        assert!(credentials.buyer(none).is_none());
        let key = jsonwebtoken::EncodingKey::from_secret(b"secret");
        let now = jiff::Timestamp::now().as_second();
        let table = [
            (serde_json::json!({ "sub": "ann" }), true),
            (serde_json::json!({ "sub": "ann", "exp": 1_000 }), false),
            (serde_json::json!({ "sub": "ann", "exp": now + 60 }), true),
            (
                serde_json::json!({ "sub": "ann", "exp": now as f64 + 60.5 }),
                true,
            ),
            (serde_json::json!({ "sub": "ann", "nbf": now + 60 }), false),
            (serde_json::json!({ "sub": "ann", "nbf": now - 60 }), true),
            (serde_json::json!({ "sub": "", "exp": now + 60 }), false),
            (serde_json::json!({ "exp": now + 60 }), false),
        ];
        for (claims, good) in table {
            let token =
                jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
            for _ in 0..2 {
                assert_eq!(
                    credentials.buyer(&token).is_some(),
                    good,
                    "{claims}, also from the cache"
                );
            }
        }
    }

    #[test]
    fn only_the_admin_token_is_the_admins() {
        let credentials = credentials("secret");
        assert!(credentials.is_admin("admin-token"));
        for other in ["", "admin", "admin-tokex", "admin-token "] {
            assert!(!credentials.is_admin(other), "{other:?}");
        }
    }
}
