//! The keys that verify buyers' tokens.

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde::Deserialize;

use super::{BadKey, BuyerKey, TokenPolicy};

/// A key, and what a token must comply with that it verifies.
#[derive(Clone)]
pub(super) struct Key {
    /// Its `kid`, if it comes from a key set.
    id: Option<String>,
    pub key: DecodingKey,
    pub validation: Validation,
}

impl Key {
    pub fn new(key: &BuyerKey, policy: &TokenPolicy) -> Result<Self, BadKey> {
        let (key, algorithms) = decoding_key(key)?;
        Ok(Self {
            id: None,
            key,
            validation: validation(algorithms, policy),
        })
    }

    /// Whether it may have signed a token whose header has this `kid`. A token without `kid` is
    /// tried with every key, and so is a key without one.
    pub fn may_verify(&self, kid: Option<&str>) -> bool {
        match (&self.id, kid) {
            (Some(id), Some(kid)) => id == kid,
            _ => true,
        }
    }
}

/// A JSON Web Key Set (RFC 7517). Members are parsed one by one, so that one of an unknown kind
/// does not spoil the others.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// The keys of a set that can verify signatures. Fails if there are none.
///
/// Symmetric keys are left out: a set that others may read must not contain a secret.
pub(super) fn parse_set(json: &str, policy: &TokenPolicy) -> Result<Vec<Key>, BadKey> {
    let set: KeySet = serde_json::from_str(json).map_err(|_| BadKey)?;
    let keys: Vec<_> = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .filter_map(|key| of_set(&key, policy))
        .collect();
    if keys.is_empty() {
        Err(BadKey)
    } else {
        Ok(keys)
    }
}

fn of_set(jwk: &Jwk, policy: &TokenPolicy) -> Option<Key> {
    if !matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    ) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![Algorithm::RS256, Algorithm::RS384, Algorithm::RS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        _ => return None,
    };
    if let Some(named) = jwk.common.key_algorithm {
        algorithms.retain(|algorithm| named.to_string().parse() == Ok(*algorithm));
    }
    if algorithms.is_empty() {
        return None;
    }
    Some(Key {
        id: jwk.common.key_id.clone(),
        key: DecodingKey::from_jwk(jwk).ok()?,
        validation: validation(algorithms, policy),
    })
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

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use futures::FutureExt;
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, KeyPair},
    };
    use serde_json::{Value, json};

    use crate::auth::{Credentials, TokenPolicy};

    /// The keys of `vectors/*.pem`, and a key of each kind that must not be used.
    const VECTORS: &str = include_str!("vectors/jwks.json");

    struct Issuer(Ed25519KeyPair);

    impl Issuer {
        fn new() -> Self {
            let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Self(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
        }

        fn public(&self, id: &str) -> Value {
            let x = URL_SAFE_NO_PAD.encode(self.0.public_key());
            json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": id, "x": x })
        }

        /// A token of `ann`.
        fn token(&self, id: Option<&str>) -> String {
            let header = match id {
                Some(id) => json!({ "alg": "EdDSA", "kid": id }),
                None => json!({ "alg": "EdDSA" }),
            };
            let claims = json!({ "sub": "ann", "exp": 4_102_444_800_u64 });
            let part = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
            let text = format!("{}.{}", part(header), part(claims));
            let signature = URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()));
            format!("{text}.{signature}")
        }
    }

    fn set(keys: &[Value]) -> String {
        json!({ "keys": keys }).to_string()
    }

    fn credentials(json: &str) -> Credentials {
        Credentials::with_key_set(json, TokenPolicy::default()).unwrap()
    }

    #[test]
    fn every_kind_of_key_verifies_tokens_of_other_libraries() {
        let credentials = credentials(VECTORS);
        for token in [
            include_str!("vectors/rs256.jwt"),
            include_str!("vectors/rs512.jwt"),
            include_str!("vectors/es256.jwt"),
            include_str!("vectors/es384.jwt"),
            include_str!("vectors/eddsa.jwt"),
        ] {
            assert!(credentials.buyer(token.trim()).is_ok(), "{token}");
        }
        let pss = include_str!("vectors/ps256.jwt");
        assert!(credentials.buyer(pss.trim()).is_err());
    }

    #[test]
    fn a_token_is_verified_with_the_key_that_it_names() {
        let (old, new) = (Issuer::new(), Issuer::new());
        let credentials = credentials(&set(&[old.public("old"), new.public("new")]));
        for (token, good) in [
            (old.token(Some("old")), true),
            (new.token(Some("new")), true),
            (new.token(None), true),
            (new.token(Some("old")), false),
            (Issuer::new().token(Some("new")), false),
            (Issuer::new().token(None), false),
        ] {
            assert_eq!(credentials.buyer(&token).is_ok(), good, "{token}");
        }
        assert!(credentials.unknown_key().now_or_never().is_none());
    }

    #[test]
    fn after_a_change_of_keys_tokens_of_withdrawn_keys_are_refused() {
        let (old, new) = (Issuer::new(), Issuer::new());
        let credentials = credentials(&set(&[old.public("old")]));
        let (by_old, by_new) = (old.token(Some("old")), new.token(Some("new")));
        assert!(credentials.buyer(&by_old).is_ok(), "and it is cached");
        assert!(credentials.buyer(&by_new).is_err());
        assert!(credentials.unknown_key().now_or_never().is_some());
        credentials
            .replace_keys(&set(&[new.public("new")]))
            .unwrap();
        assert!(credentials.buyer(&by_old).is_err());
        assert!(credentials.buyer(&by_new).is_ok());
        for bad in [
            "",
            "{}",
            "{\"keys\":[]}",
            &set(&[json!({ "kty": "oct", "k": "c2VjcmV0" })]),
        ] {
            assert!(credentials.replace_keys(bad).is_err(), "{bad}");
        }
        assert!(
            credentials.buyer(&by_new).is_ok(),
            "the keys stay as they were"
        );
    }
}
