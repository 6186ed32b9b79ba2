//! Secrets and signatures of Standard Webhooks: HMAC-SHA256 over id, time and body.
//!
//! The id and the time are signed as well, so that a recorded message can neither be sent again as
//! another one nor much later.

use std::{fmt, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};

const PREFIX: &str = "whsec_";
/// The specification allows 24 to 64.
const SECRET_BYTES: usize = 32;

/// The secret of a webhook.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
    text: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Why there is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text is no secret.
    #[error("expected whsec_ and base64")]
    Invalid,
    /// The system has no random numbers.
    #[error("the system gave no random bytes")]
    NoRandomness,
}

impl Secret {
    /// A new secret.
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| SecretError::NoRandomness)?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, bytes),
            text: format!("{PREFIX}{}", BASE64_STANDARD.encode(bytes)),
        }
    }

    /// The secret as its receiver gets it: `whsec_` and base64.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The header `webhook-signature` of a message. `seconds` is its header `webhook-timestamp`.
    pub fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let mut signed = format!("{id}.{seconds}.").into_bytes();
        signed.extend_from_slice(body);
        let signature = hmac::sign(&self.key, &signed);
        format!("v1,{}", BASE64_STANDARD.encode(signature))
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let base64 = text.strip_prefix(PREFIX).ok_or(SecretError::Invalid)?;
        let bytes = BASE64_STANDARD.decode(base64);
        bytes
            .map(|bytes| Self::of(&bytes))
            .map_err(|_| SecretError::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    /// The vector that the libraries of Standard Webhooks are tested with.
    #[test]
    fn a_message_is_signed_as_standard_webhooks_says() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_secret_is_random_and_survives_its_text() {
        let [one, two] = [Secret::random().unwrap(), Secret::random().unwrap()];
        assert_ne!(one.expose(), two.expose());
        let again: Secret = one.expose().parse().unwrap();
        assert_eq!(again.sign("1-1", 7, b"{}"), one.sign("1-1", 7, b"{}"));
        assert_ne!(two.sign("1-1", 7, b"{}"), one.sign("1-1", 7, b"{}"));
        assert!(!format!("{one:?}").contains(one.expose()));
        for invalid in ["", "secret", "whsec_!", "WHSEC_c2VjcmV0"] {
            assert!(invalid.parse::<Secret>().is_err(), "{invalid}");
        }
    }
}
