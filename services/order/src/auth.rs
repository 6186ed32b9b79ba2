//! Authentication: buyers by a JWT, admins by a secret token.

mod crypto;

use std::{sync::Arc, time::Duration};

use domain::BuyerId;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use quick_cache::{UnitWeighter, sync::Cache};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The key that verifies buyers' tokens.
pub enum BuyerKey {
    /// HS256: a secret that is shared with the token's issuer.
    Secret(Vec<u8>),
    /// The issuer's public key in PEM: RSA (RS256, RS384, RS512), EC (ES256, ES384) or Ed25519
    /// (EdDSA).
    PublicKey(Vec<u8>),
}

/// What a token must say besides its buyer, so that a token for another application of the same
/// issuer does not buy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenPolicy {
    /// Required issuer (`iss`). `None`: any.
    pub issuer: Option<String>,
    /// Required audience (`aud`). `None`: any.
    pub audience: Option<String>,
}

/// The key cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("expected a PEM public key (RSA, EC or Ed25519)")]
pub struct BadKey;

/// Capacity of the cache of valid tokens: initial and maximum number.
const TOKEN_CACHE_INITIAL: usize = 10_000;
const TOKEN_CACHE_MAX: u64 = 100_000;

/// Authenticates buyers and admins.
pub struct Credentials {
    /// More than one while the issuer changes its key.
    keys: Vec<(DecodingKey, Validation)>,
    policy: TokenPolicy,
    admin_token: Box<[u8]>,
    /// Cache of valid tokens. Verifying a signature costs more than all other steps of a refused
    /// order.
    checked: Cache<Box<str>, Arc<Claims>>,
}

/// The claims of a buyer's token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub sub: BuyerId,
    /// Seconds since 1970, perhaps with a fraction (RFC 7519, NumericDate). Required: a token that
    /// never expires can never be revoked.
    exp: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<f64>,
}

/// The claims of a token that is minted here.
#[derive(Serialize)]
struct MintedClaims<'a> {
    #[serde(flatten)]
    claims: Claims,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
}

impl Claims {
    fn is_good_at(&self, now: f64) -> bool {
        now < self.exp && self.nbf.is_none_or(|nbf| nbf <= now)
    }
}

impl Credentials {
    /// Checks buyers with `key` and admins with `admin_token`.
    pub fn new(key: &BuyerKey, admin_token: impl AsRef<[u8]>) -> Result<Self, BadKey> {
        Self::with_policy(key, admin_token, TokenPolicy::default())
    }

    /// The same, for tokens that comply with `policy`.
    pub fn with_policy(
        key: &BuyerKey,
        admin_token: impl AsRef<[u8]>,
        policy: TokenPolicy,
    ) -> Result<Self, BadKey> {
        crypto::install();
        let credentials = Self {
            keys: Vec::new(),
            policy,
            admin_token: admin_token.as_ref().into(),
            checked: Cache::with_weighter(TOKEN_CACHE_INITIAL, TOKEN_CACHE_MAX, UnitWeighter),
        };
        credentials.or_key(key)
    }

    /// Also accepts tokens that were signed with `key`, while the issuer changes its key.
    pub fn or_key(mut self, key: &BuyerKey) -> Result<Self, BadKey> {
        let (key, algorithms) = decoding_key(key)?;
        let validation = validation(algorithms, &self.policy);
        self.keys.push((key, validation));
        Ok(self)
    }

    /// The buyer of a valid token.
    pub(crate) fn buyer(&self, token: &str) -> Option<Arc<Claims>> {
        let claims = self.checked.get(token).or_else(|| self.check(token))?;
        Some(claims)
            .filter(|claims| claims.is_good_at(jiff::Timestamp::now().as_duration().as_secs_f64()))
    }

    /// The name of the buyer of a valid token. The benchmark's baselines use it, so that they are
    /// not faster because they skip authentication.
    pub fn buyer_name(&self, token: &str) -> Option<BuyerId> {
        self.buyer(token).map(|claims| claims.sub.clone())
    }

    fn check(&self, token: &str) -> Option<Arc<Claims>> {
        let decoded = self.keys.iter().find_map(|(key, validation)| {
            jsonwebtoken::decode::<Claims>(token, key, validation).ok()
        });
        let claims = Arc::new(decoded?.claims);
        self.checked.insert(token.into(), Arc::clone(&claims));
        Some(claims)
    }

    /// Whether this is the admin token. Runs in constant time for every token of the right length.
    pub(crate) fn is_admin(&self, token: &str) -> bool {
        self.admin_token.ct_eq(token.as_bytes()).into()
    }
}

fn validation(algorithms: Vec<Algorithm>, policy: &TokenPolicy) -> Validation {
    let mut validation = Validation::new(algorithms[0]);
    validation.algorithms = algorithms;
    let mut required = vec!["sub"];
    if let Some(issuer) = &policy.issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    validation.validate_aud = policy.audience.is_some();
    if let Some(audience) = &policy.audience {
        validation.set_audience(&[audience]);
        required.push("aud");
    }
    validation.set_required_spec_claims(&required);
    // `buyer` checks the times itself, with and without the cache.
    validation.validate_exp = false;
    validation
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

/// A token for `buyer` that is valid for `lifetime`, as a shop's login would issue it.
pub fn mint_buyer_token(
    secret: &[u8],
    buyer: &BuyerId,
    lifetime: Duration,
    policy: &TokenPolicy,
) -> Option<String> {
    crypto::install();
    let now = jiff::Timestamp::now().as_duration().as_secs_f64();
    let claims = MintedClaims {
        claims: Claims {
            sub: buyer.clone(),
            exp: (now + lifetime.as_secs_f64()).floor(),
            nbf: None,
        },
        iss: policy.issuer.as_deref(),
        aud: policy.audience.as_deref(),
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

    use super::{BuyerKey, Credentials, TokenPolicy, mint_buyer_token};

    const MINUTE: Duration = Duration::from_secs(60);

    fn credentials(secret: &str) -> Credentials {
        Credentials::new(&BuyerKey::Secret(secret.into()), "admin-token").unwrap()
    }

    #[test]
    fn a_token_names_its_buyer_to_whoever_has_the_secret() {
        let ann = BuyerId::new("ann").unwrap();
        let token = mint_buyer_token(b"secret", &ann, MINUTE, &TokenPolicy::default()).unwrap();
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
            (serde_json::json!({ "sub": "ann" }), false),
            (serde_json::json!({ "sub": "ann", "exp": 1_000 }), false),
            (serde_json::json!({ "sub": "ann", "exp": now + 60 }), true),
            (
                serde_json::json!({ "sub": "ann", "exp": now as f64 + 60.5 }),
                true,
            ),
            (
                serde_json::json!({ "sub": "ann", "exp": now + 60, "nbf": now + 60 }),
                false,
            ),
            (
                serde_json::json!({ "sub": "ann", "exp": now + 60, "nbf": now - 60 }),
                true,
            ),
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
    fn a_token_for_another_application_or_from_another_issuer_is_refused() {
        let policy = |issuer: Option<&str>, audience: Option<&str>| TokenPolicy {
            issuer: issuer.map(Into::into),
            audience: audience.map(Into::into),
        };
        let (any, shop) = (policy(None, None), policy(Some("login"), Some("shop")));
        let ann = BuyerId::new("ann").unwrap();
        for (minted, required, good) in [
            (&shop, &any, true),
            (&shop, &shop, true),
            (&any, &shop, false),
            (&policy(Some("login"), Some("newsletter")), &shop, false),
            (&policy(Some("elsewhere"), Some("shop")), &shop, false),
            (&policy(None, Some("shop")), &shop, false),
            (&policy(Some("login"), None), &shop, false),
        ] {
            let key = BuyerKey::Secret(b"secret".to_vec());
            let credentials = Credentials::with_policy(&key, "admin-token", required.clone());
            let token = mint_buyer_token(b"secret", &ann, MINUTE, minted).unwrap();
            assert_eq!(
                credentials.unwrap().buyer(&token).is_some(),
                good,
                "{minted:?} where {required:?} is required"
            );
        }
    }

    #[test]
    fn while_the_secret_changes_tokens_of_both_are_good() {
        let credentials = credentials("new")
            .or_key(&BuyerKey::Secret(b"old".to_vec()))
            .unwrap();
        let ann = BuyerId::new("ann").unwrap();
        for (secret, good) in [("new", true), ("old", true), ("older", false)] {
            let policy = TokenPolicy::default();
            let token = mint_buyer_token(secret.as_bytes(), &ann, MINUTE, &policy).unwrap();
            assert_eq!(credentials.buyer(&token).is_some(), good, "{secret}");
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
