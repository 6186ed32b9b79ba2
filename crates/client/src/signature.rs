//! The signature of a payment report: `Stockade-Signature: t=SECONDS,v1=HEX`.
//!
//! `v1` is the HMAC-SHA256 of the seconds, a dot and the body. The time is signed as well, so a
//! copied message is useless after the service's replay window (300 seconds by default).

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::HeaderName;
use sha2::Sha256;

pub(crate) const SIGNATURE: HeaderName = HeaderName::from_static("stockade-signature");

/// The secret that a payment provider shares with the service.
#[derive(Clone)]
pub struct PaymentKey(Box<[u8]>);

impl PaymentKey {
    /// A key from the service's `STOCKADE_PAYMENT_SECRET`.
    pub fn new(secret: impl AsRef<[u8]>) -> Self {
        Self(secret.as_ref().into())
    }

    /// The value of `Stockade-Signature` for a body that is sent at `time`.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// let value = client::PaymentKey::new("Jefe").sign(br#"{"payment":"pay_1"}"#, time);
    /// assert!(value.starts_with("t=1700000000,v1=be58a524c57faff7"));
    /// ```
    pub fn sign(&self, body: &[u8], time: SystemTime) -> String {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let tag = hmac_sha256(&self.0, &[seconds.to_string().as_bytes(), b".", body]);
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("t={seconds},v1={hex}")
    }
}

impl fmt::Debug for PaymentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaymentKey(..)")
    }
}

/// The HMAC-SHA256 of the concatenated `parts`.
pub(crate) fn hmac_sha256(secret: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    mac(secret, parts).finalize().into_bytes().into()
}

/// Whether `tag` is that HMAC. The time does not depend on where they differ.
pub(crate) fn is_hmac_sha256(secret: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    mac(secret, parts).verify_slice(tag).is_ok()
}

fn mac(secret: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::PaymentKey;

    /// Computed with `openssl dgst -sha256 -hmac Jefe`.
    #[test]
    fn the_signature_is_what_others_compute() {
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let value =
            "t=1700000000,v1=be58a524c57faff791d2efc5092c4bb91bbefd0b8fee0a5d6e53ebfa6405d25e";
        let key = PaymentKey::new("Jefe");
        assert_eq!(key.sign(br#"{"payment":"pay_1"}"#, time), value);
        assert_eq!(format!("{key:?}"), "PaymentKey(..)", "logs do not leak it");
    }
}
