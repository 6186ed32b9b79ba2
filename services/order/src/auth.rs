//! Authentication: buyers by a JWT, admins by a secret token.

mod admins;
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
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use keys::Key;

pub use admins::{Admin, Scope, TokenHash, UnknownScope};

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

/// The key, or a set of keys, cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("expected a PEM public key (RSA, EC or Ed25519), or a JSON Web Key Set with one of them")]
pub struct BadKey;

/// Capacity of the cache of valid tokens: initial and maximum number.
const TOKEN_CACHE_INITIAL: usize = 10_000;
const TOKEN_CACHE_MAX: u64 = 100_000;

/// Cache of valid tokens. Verifying a signature costs more than all other steps of a refused order.
///
/// The hash has random keys, and a token enters only with a valid signature: a flood of tokens cannot
/// collide.
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
    /// Checks buyers with `key`. The admin with `admin_token` has every scope.
    pub fn new(key: &BuyerKey, admin_token: impl AsRef<[u8]>) -> Result<Self, BadKey> {
        Ok(Self::with_policy(key, TokenPolicy::default())?.or_admin_token(admin_token))
    }

    /// Checks buyers with `key`, and that their tokens comply with `policy`. Has no admins.
    pub fn with_policy(key: &BuyerKey, policy: TokenPolicy) -> Result<Self, BadKey> {
        Self::without_keys(policy).or_key(key)
    }

    /// Checks buyers with the keys of a JSON Web Key Set (RFC 7517), and that their tokens comply with
    /// `policy`. Has no admins.
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
        let kid = decode_header(token).ok()?.kid;
        let keys = self.keys();
        let mut candidates = keys
            .iter()
            .filter(|key| key.may_verify(kid.as_deref()))
            .peekable();
        if candidates.peek().is_none() {
            self.unknown_key.notify_one();
        }
        let decoded = candidates.find_map(
            |Key {
                 key, validation, ..
             }| { jsonwebtoken::decode::<Claims>(token, key, validation).ok() },
        );
        let claims = Arc::new(decoded?.claims);
        self.checked.insert(token.into(), Arc::clone(&claims));
        // The keys may have been replaced, and the cache cleared, in the meantime.
        if !Arc::ptr_eq(&keys, &self.keys()) {
            self.checked.remove(token);
        }
        Some(claims)
    }

    /// The admin with this token.
    pub fn admin(&self, token: &str) -> Option<&Admin> {
        admins::find(&self.admins, token)
    }

    /// What all instances share, to derive the key of the lists' cursors from. It need not be secret:
    /// a forged cursor shows its forger, an admin, what the admin may see anyway.
    pub(crate) fn cursor_secret(&self) -> &[u8] {
        self.admins.first().map_or(&[], Admin::token_hash)
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
            let credentials = Credentials::with_policy(&key, required.clone());
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
        assert!(credentials.admin("admin-token").is_some());
        for other in ["", "admin", "admin-tokex", "admin-token "] {
            assert!(credentials.admin(other).is_none(), "{other:?}");
        }
    }
}
