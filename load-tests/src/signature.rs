//! The payment provider's signature, as the API describes it: `t=SECONDS,v1=HEX`.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

/// What payments are signed with.
pub struct Provider(hmac::Key);

impl Provider {
    /// The provider that the service believes.
    pub fn new(secret: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
    }

    /// The header for a body that is sent now.
    pub fn sign(&self, body: &str) -> String {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.sign_at(body, seconds)
    }

    fn sign_at(&self, body: &str, seconds: u64) -> String {
        let tag = hmac::sign(&self.0, format!("{seconds}.{body}").as_bytes());
        let hex: String = tag
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("t={seconds},v1={hex}")
    }
}

#[cfg(test)]
mod tests {
    use super::Provider;

    /// Computed with `openssl dgst -sha256 -hmac Jefe`.
    #[test]
    fn the_signature_is_what_others_compute() {
        let value =
            "t=1700000000,v1=be58a524c57faff791d2efc5092c4bb91bbefd0b8fee0a5d6e53ebfa6405d25e";
        assert_eq!(
            Provider::new("Jefe").sign_at(r#"{"payment":"pay_1"}"#, 1_700_000_000),
            value
        );
    }
}
