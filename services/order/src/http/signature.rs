//! The signature of a payment provider's message: `Stockade-Signature: t=SECONDS,v1=HEX`.
//!
//! `v1` is the HMAC-SHA256 of the time, a dot and the body as it came. The time is signed along, so a message that somebody has overheard is
//! good for the replay window only; and within it, sent to the same order, it changes nothing, because payments are idempotent.
//!
//! The path is not signed. A message is bound to its order by the field `order` in its body; one without that field could be sent to another
//! order within the window.

use std::time::Duration;

use aws_lc_rs::hmac;
use http::HeaderMap;
use jiff::Timestamp;

use super::Problem;

/// The header's name.
pub(crate) const SIGNATURE: &str = "Stockade-Signature";

/// What messages about payments are signed with.
#[derive(Clone)]
pub struct PaymentKey {
    key: hmac::Key,
    window: Duration,
}

impl PaymentKey {
    /// Checks with `secret` and takes no message whose time is further away than `window`.
    pub fn new(secret: &[u8], window: Duration) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            window,
        }
    }

    /// The header's value for a body that is sent now. For tests, tools and providers written with this crate.
    pub fn sign(&self, body: &[u8]) -> String {
        let time = Timestamp::now().as_second();
        let tag = hmac::sign(&self.key, &signed_text(time, body));
        format!("t={time},v1={}", hex(tag.as_ref()))
    }

    pub(crate) fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
        let value = headers.get(SIGNATURE).and_then(|value| value.to_str().ok());
        let value = value.ok_or_else(|| {
            Problem::invalid_signature("expected the header Stockade-Signature: t=SECONDS,v1=HEX")
        })?;
        self.check_at(value, body, Timestamp::now().as_second())
    }

    fn check_at(&self, value: &str, body: &[u8], now: i64) -> Result<(), Problem> {
        let (time, tags) =
            parse(value).ok_or_else(|| Problem::invalid_signature("expected t=SECONDS,v1=HEX"))?;
        let text = signed_text(time, body);
        // Several, while a provider changes its secret. The comparison takes the same time however much of a tag is right.
        if !tags
            .iter()
            .any(|tag| hmac::verify(&self.key, &text, tag).is_ok())
        {
            return Err(Problem::invalid_signature(
                "v1 is not the HMAC-SHA256 of the time, a dot and the body",
            ));
        }
        if now.abs_diff(time) > self.window.as_secs() {
            let window = self.window.as_secs();
            return Err(Problem::invalid_signature(&format!(
                "t is more than {window} seconds away from the time here: sign the message anew"
            )));
        }
        Ok(())
    }
}

fn signed_text(time: i64, body: &[u8]) -> Vec<u8> {
    [time.to_string().as_bytes(), b".", body].concat()
}

fn parse(value: &str) -> Option<(i64, Vec<Vec<u8>>)> {
    let (mut time, mut tags) = (None, Vec::new());
    for part in value.split(',') {
        match part.trim().split_once('=')? {
            ("t", seconds) => time = Some(seconds.parse().ok()?),
            ("v1", tag) => tags.push(unhex(tag)?),
            // A later version of the scheme may stand beside ours.
            _ => {}
        }
    }
    Some((time?, tags))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty()
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::PaymentKey;

    #[test]
    fn a_signature_is_good_for_its_body_its_time_and_its_secret() {
        let key = PaymentKey::new(b"a secret of the shop", Duration::from_secs(300));
        let now = Timestamp::now().as_second();
        let value = key.sign(b"{}");
        let good = |key: &PaymentKey, value: &str, body: &[u8], now| {
            key.check_at(value, body, now).is_ok()
        };
        assert!(good(&key, &value, b"{}", now));
        assert!(
            good(&key, &format!("{value},v1=00,v2=x"), b"{}", now),
            "more tags do no harm"
        );
        assert!(good(
            &key,
            &value
                .to_uppercase()
                .replace("T=", "t=")
                .replace("V1=", "v1="),
            b"{}",
            now
        ));
        assert!(!good(&key, &value, b"{ }", now));
        assert!(!good(
            &PaymentKey::new(b"another secret", Duration::from_secs(300)),
            &value,
            b"{}",
            now
        ));
        for late in [now + 302, now - 302] {
            assert!(!good(&key, &value, b"{}", late));
        }
        let other_time = value.replace(&format!("t={now}"), &format!("t={}", now + 5));
        assert!(
            !good(&key, &other_time, b"{}", now),
            "the time is signed too"
        );
        for bad in [
            "",
            "t=1",
            "v1=00",
            "t=x,v1=00",
            "t=1,v1=0",
            "t=1,v1=zz",
            "t=1;v1=00",
        ] {
            assert!(!good(&key, bad, b"{}", now), "{bad:?}");
        }
    }

    /// Computed with `openssl dgst -sha256 -hmac Jefe`.
    #[test]
    fn the_signature_is_what_others_compute() {
        let key = PaymentKey::new(b"Jefe", Duration::from_secs(300));
        let value =
            "t=1700000000,v1=be58a524c57faff791d2efc5092c4bb91bbefd0b8fee0a5d6e53ebfa6405d25e";
        assert!(
            key.check_at(value, br#"{"payment":"pay_1"}"#, 1_700_000_000)
                .is_ok()
        );
    }
}
