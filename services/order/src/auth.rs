//! Authentication: buyers by a JWT, admins by a secret token.

mod admins;
mod claims;
mod crypto;
mod keys;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use domain::BuyerId;
use jsonwebtoken::{Algorithm, EncodingKey, Header, decode_header};
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use serde::Serialize;
use tokio::sync::Notify;

use claims::Claims;
use keys::Key;

pub use admins::{Admin, Scope, TokenHash, UnknownScope};
pub(crate) use claims::TokenRefused;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPolicy {
    /// Required issuer (`iss`). `None`: any.
    pub issuer: Option<String>,
    /// Required audience (`aud`). `None`: any.
    pub audience: Option<String>,
    /// How far `nbf` and `iat` may be in the future, because the issuer's clock is another one.
    pub leeway: Duration,
}

/// More than clocks differ that are set by the network, and less than anyone waits for a token.
const LEEWAY: Duration = Duration::from_secs(30);

impl Default for TokenPolicy {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: None,
            leeway: LEEWAY,
        }
    }
}

/// The key, or a set of keys, cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("expected a PEM public key (RSA, EC or Ed25519), or a JSON Web Key Set with one of them")]
pub struct BadKey;

/// Capacity of the cache of valid tokens: initial and maximum number.
const TOKEN_CACHE_INITIAL: usize = 10_000;
const TOKEN_CACHE_MAX: u64 = 100_000;

/// Cache of valid tokens. Verifying a signature costs more than all other steps of a refused order.
///
/// The hash has random keys, and a token enters only with a valid signature: a flood of tokens
/// cannot collide.
type CheckedTokens = Cache<Box<str>, Arc<Claims>, UnitWeighter, ahash::RandomState>;

/// Authenticates buyers and admins.
pub struct Credentials {
    /// More than one while the issuer changes its key.
    keys: RwLock<Arc<[Key]>>,
    /// A token named a key that is not among them.
    unknown_key: Notify,
    policy: TokenPolicy,
    admins: Vec<Admin>,
    checked: CheckedTokens,
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

impl Credentials {
    /// Checks buyers with `key`. The admin with `admin_token` has every scope.
    pub fn new(key: &BuyerKey, admin_token: impl AsRef<[u8]>) -> Result<Self, BadKey> {
        Ok(Self::with_policy(key, TokenPolicy::default())?.or_admin_token(admin_token))
    }

    /// Checks buyers with `key`, and that their tokens comply with `policy`. Has no admins.
    pub fn with_policy(key: &BuyerKey, policy: TokenPolicy) -> Result<Self, BadKey> {
        Self::without_keys(policy).or_key(key)
    }

    /// Checks buyers with the keys of a JSON Web Key Set (RFC 7517), and that their tokens comply
    /// with `policy`. Has no admins.
    pub fn with_key_set(json: &str, policy: TokenPolicy) -> Result<Self, BadKey> {
        let credentials = Self::without_keys(policy);
        credentials.replace_keys(json)?;
        Ok(credentials)
    }

    fn without_keys(policy: TokenPolicy) -> Self {
        crypto::install();
        Self {
            keys: RwLock::new(Arc::new([])),
            unknown_key: Notify::new(),
            policy,
            admins: Vec::new(),
            checked: Cache::with(
                TOKEN_CACHE_INITIAL,
                TOKEN_CACHE_MAX,
                UnitWeighter,
                ahash::RandomState::new(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// Also accepts tokens that were signed with `key`, while the issuer changes its key.
    pub fn or_key(self, key: &BuyerKey) -> Result<Self, BadKey> {
        let key = Key::new(key, &self.policy)?;
        let keys = self.keys().iter().cloned().chain([key]).collect();
        self.set_keys(keys);
        Ok(self)
    }

    /// Verifies tokens with the keys of this set from now on, and no longer with earlier keys.
    pub fn replace_keys(&self, json: &str) -> Result<(), BadKey> {
        let keys = keys::parse_set(json, &self.policy)?;
        self.set_keys(keys.into());
        // A token whose key was withdrawn is refused from now on.
        self.checked.clear();
        Ok(())
    }

    /// Returns when a token names a key that is missing, as the first one does after the issuer has
    /// changed its key.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_keys(&self, keys: Arc<[Key]>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Also accepts the token of an admin who has every scope.
    pub fn or_admin_token(self, token: impl AsRef<[u8]>) -> Self {
        self.or_admin(Admin::with_every_scope(token.as_ref()))
    }

    /// Also accepts this admin's token.
    pub fn or_admin(mut self, admin: Admin) -> Self {
        self.admins.push(admin);
        self
    }

    /// The buyer of a valid token.
    pub(crate) fn buyer(&self, token: &str) -> Result<Arc<Claims>, TokenRefused> {
        let claims = match self.checked.get(token) {
            Some(claims) => claims,
            None => self.check(token)?,
        };
        // The cache does not stop the clock.
        let now = jiff::Timestamp::now().as_duration().as_secs_f64();
        claims.check_at(now, self.policy.leeway)?;
        Ok(claims)
    }

    /// The name of the buyer of a valid token. The benchmark's baselines use it, so that they are
    /// not faster because they skip authentication.
    pub fn buyer_name(&self, token: &str) -> Option<BuyerId> {
        self.buyer(token).ok().map(|claims| claims.sub.clone())
    }

    fn check(&self, token: &str) -> Result<Arc<Claims>, TokenRefused> {
        let header = decode_header(token).map_err(|_| TokenRefused::Unverified)?;
        let kid = header.kid;
        let keys = self.keys();
        let mut candidates = keys
            .iter()
            .filter(|key| key.may_verify(kid.as_deref()))
            .peekable();
        if candidates.peek().is_none() {
            self.unknown_key.notify_one();
        }
        let claims = Arc::new(verified(token, candidates)?);
        self.checked.insert(token.into(), Arc::clone(&claims));
        // The keys may have been replaced, and the cache cleared, in the meantime.
        if !Arc::ptr_eq(&keys, &self.keys()) {
            self.checked.remove(token);
        }
        Ok(claims)
    }

    /// The admin with this token.
    pub fn admin(&self, token: &str) -> Option<&Admin> {
        admins::find(&self.admins, token)
    }

    /// What all instances share, to derive the key of the lists' cursors from. It need not be
    /// secret: a forged cursor shows its forger, an admin, what the admin may see anyway.
    pub(crate) fn cursor_secret(&self) -> &[u8] {
        self.admins.first().map_or(&[], Admin::token_hash)
    }
}

/// The claims of a token that one of these keys has signed.
fn verified<'a>(token: &str, keys: impl Iterator<Item = &'a Key>) -> Result<Claims, TokenRefused> {
    let mut refused = TokenRefused::Unverified;
    for Key {
        key, validation, ..
    } in keys
    {
        match jsonwebtoken::decode::<Claims>(token, key, validation) {
            Ok(decoded) => return Ok(decoded.claims),
            Err(error) => refused = refused.or(TokenRefused::of(&error)),
        }
    }
    Err(refused)
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
            iat: None,
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
        assert!(self::credentials("other").buyer(&token).is_err());
        assert!(credentials.buyer("nonsense").is_err());
        assert!(credentials.buyer(&format!("{token}x")).is_err());
    }

    #[test]
    fn an_expired_early_or_unsigned_token_is_nobodys() {
        let credentials = credentials("secret");
        let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.";
        assert!(credentials.buyer(none).is_err());
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
            (
                serde_json::json!({ "sub": "ann", "exp": now + 60, "nbf": now + 10, "iat": now + 10 }),
                true,
            ),
            (
                serde_json::json!({ "sub": "ann", "exp": now + 60, "iat": now + 3600 }),
                false,
            ),
            (serde_json::json!({ "sub": "..", "exp": now + 60 }), false),
            (serde_json::json!({ "sub": "", "exp": now + 60 }), false),
            (serde_json::json!({ "exp": now + 60 }), false),
        ];
        for (claims, good) in table {
            let token =
                jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
            for _ in 0..2 {
                assert_eq!(
                    credentials.buyer(&token).is_ok(),
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
            ..TokenPolicy::default()
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
            let credentials = Credentials::with_policy(&key, required.clone());
            let token = mint_buyer_token(b"secret", &ann, MINUTE, minted).unwrap();
            assert_eq!(
                credentials.unwrap().buyer(&token).is_ok(),
                good,
                "{minted:?} where {required:?} is required"
            );
        }
    }

    #[test]
    fn the_leeway_is_that_of_the_policy() {
        let key = jsonwebtoken::EncodingKey::from_secret(b"secret");
        let nbf = jiff::Timestamp::now().as_second() + 600;
        let claims = serde_json::json!({ "sub": "ann", "exp": nbf + 600, "nbf": nbf });
        let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
        for (leeway, good) in [(Duration::ZERO, false), (Duration::from_secs(3600), true)] {
            let policy = TokenPolicy {
                leeway,
                ..TokenPolicy::default()
            };
            let key = BuyerKey::Secret(b"secret".to_vec());
            let credentials = Credentials::with_policy(&key, policy).unwrap();
            assert_eq!(credentials.buyer(&token).is_ok(), good, "{leeway:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_claim_only_if_the_signature_is_good() {
        let policy = TokenPolicy {
            audience: Some("shop".into()),
            ..TokenPolicy::default()
        };
        let of = |secret: &str| {
            let key = BuyerKey::Secret(secret.into());
            Credentials::with_policy(&key, policy.clone()).unwrap()
        };
        let ann = BuyerId::new("ann").unwrap();
        let other = TokenPolicy {
            audience: Some("newsletter".into()),
            ..TokenPolicy::default()
        };
        let token = mint_buyer_token(b"old", &ann, MINUTE, &other).unwrap();
        let both = of("new")
            .or_key(&BuyerKey::Secret(b"old".to_vec()))
            .unwrap();
        for (credentials, names_it) in [(of("old"), true), (both, true), (of("new"), false)] {
            let refused = credentials.buyer(&token).unwrap_err().to_string();
            assert_eq!(refused.contains("aud"), names_it, "{refused}");
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
            assert_eq!(credentials.buyer(&token).is_ok(), good, "{secret}");
        }
    }

    #[test]
    fn only_the_admin_token_is_the_admins() {
        let credentials = credentials("secret");
        assert!(credentials.admin("admin-token").is_some());
        for other in ["", "admin", "admin-tokex", "admin-token "] {
            assert!(credentials.admin(other).is_none(), "{other:?}");
        }
    }
}
