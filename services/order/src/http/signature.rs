//! The signature of a payment provider's message: `Stockade-Signature: t=SECONDS,v1=HEX`.
//!
//! `v1` is the HMAC-SHA256 of the time, a dot and the raw body. The signature covers the time, so
//! an intercepted message is valid for the replay window only. Within the window, a replay to the
//! same order changes nothing, because payments are idempotent.
//!
//! The signature does not cover the path. The field `order` in the body binds a message to its
//! order. A message without that field could be replayed to another order within the window.

use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use ring::hmac;
use subtle::ConstantTimeEq;

use super::{Problem, body, single::single};

/// Names of the headers.
const OF_PROVIDER: &str = "Stockade-Signature";
const OF_STRIPE: &str = "Stripe-Signature";

/// The keys of payment providers. Without a provider's key, its messages are refused.
#[derive(Clone, Default)]
pub struct PaymentKeys {
    /// Signs `POST /v1/orders/{order}/payment`.
    pub provider: Option<PaymentKey>,
    /// Sign Stripe's webhooks: the endpoint's secret, and the one before it while it changes.
    pub stripe: Vec<PaymentKey>,
}

/// The key that signs messages of the payment provider.
#[derive(Clone)]
pub struct PaymentKey {
    key: hmac::Key,
    window: Duration,
}

impl PaymentKey {
    /// A key that checks with `secret`, and refuses messages whose time differs by more than
    /// `window`.
    pub fn new(secret: &[u8], window: Duration) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            window,
        }
    }

    /// The value of the header for a body that is sent now, for tests, tools and providers that use
    /// this crate.
    pub fn sign(&self, body: &[u8]) -> String {
        self.sign_at(Timestamp::now().as_second(), body)
    }

    fn sign_at(&self, time: i64, body: &[u8]) -> String {
        format!("t={time},v1={}", hex(self.tag(time, body).as_ref()))
    }

    /// It costs as much as the body is long.
    fn tag(&self, time: i64, body: &[u8]) -> hmac::Tag {
        #[cfg(test)]
        tests::TAGS.set(tests::TAGS.get() + 1);
        hmac::sign(&self.key, &signed_text(time, body))
    }

    #[cfg(test)]
    fn check_at(&self, value: &str, body: &[u8], now: i64) -> Result<(), Problem> {
        let signature = Signature::parse(value).map_err(Problem::invalid_signature)?;
        self.check_age(&signature, now)?;
        self.check_tags(&signature, body)
    }

    fn check_age(&self, signature: &Signature, now: i64) -> Result<(), Problem> {
        if now.abs_diff(signature.time) > self.window.as_secs() {
            let window = self.window.as_secs();
            return Err(Problem::invalid_signature(&format!(
                "t differs from the server's time by more than {window} seconds: sign the message again"
            )));
        }
        Ok(())
    }

    fn check_tags(&self, signature: &Signature, body: &[u8]) -> Result<(), Problem> {
        let expected = self.tag(signature.time, body);
        if !signature.has(expected.as_ref()) {
            return Err(Problem::invalid_signature(
                "v1 is not the HMAC-SHA256 of the time, a dot and the body",
            ));
        }
        Ok(())
    }
}

impl PaymentKeys {
    /// Who signs reports of payments.
    pub(crate) fn provider(&self) -> Signer<'_> {
        Signer {
            keys: self.provider.as_slice(),
            header: OF_PROVIDER,
            without_key: Problem::no_payment_secret,
        }
    }

    /// Who signs Stripe's webhooks.
    pub(crate) fn stripe(&self) -> Signer<'_> {
        Signer {
            keys: &self.stripe,
            header: OF_STRIPE,
            without_key: Problem::no_stripe_secret,
        }
    }
}

/// Who signs messages of a kind: one of these keys, in this header.
pub(crate) struct Signer<'a> {
    keys: &'a [PaymentKey],
    header: &'static str,
    /// The answer of a service that has no key.
    without_key: fn() -> Problem,
}

impl Signer<'_> {
    /// The body of a message, if it is signed.
    ///
    /// Whatever can be refused without the body is refused before it is read. Anyone can send a head
    /// and half a body, and a request that waits for the rest keeps its connection.
    pub(crate) async fn read(&self, request: Request, max: usize) -> Result<Bytes, Problem> {
        if self.keys.is_empty() {
            return Err((self.without_key)());
        }
        let signature = Signature::parse(self.value(request.headers())?);
        let signature = signature.map_err(Problem::invalid_signature)?;
        let now = Timestamp::now().as_second();
        self.any(|key| key.check_age(&signature, now))?;
        let body = body::read(request, max).await?;
        self.any(|key| key.check_tags(&signature, &body))?;
        Ok(body)
    }

    fn value<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let value = single(headers, self.header).map_err(|several| {
            let expected = several.expected;
            Problem::invalid_signature(&format!("{}: expected {expected}", self.header))
        })?;
        let value = value.and_then(|value| value.to_str().ok());
        value.ok_or_else(|| {
            let expected = format!("expected the header {}: t=SECONDS,v1=HEX", self.header);
            Problem::invalid_signature(&expected)
        })
    }

    /// Whether the check succeeds with one of the keys.
    fn any(&self, check: impl Fn(&PaymentKey) -> Result<(), Problem>) -> Result<(), Problem> {
        let mut refused = (self.without_key)();
        for key in self.keys {
            match check(key) {
                Ok(()) => return Ok(()),
                Err(problem) => refused = problem,
            }
        }
        Err(refused)
    }
}

fn signed_text(time: i64, body: &[u8]) -> Vec<u8> {
    [time.to_string().as_bytes(), b".", body].concat()
}

/// Length of an HMAC-SHA256.
const TAG_BYTES: usize = 32;
/// A provider that changes its secret signs with the old and the new one. Anyone can send the
/// header, so the number is bounded.
const TAGS_MAX: usize = 4;

/// The header, as it was sent.
struct Signature {
    time: i64,
    tags: Vec<[u8; TAG_BYTES]>,
}

impl Signature {
    /// Reads the header. The error says what was expected.
    fn parse(value: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected t=SECONDS,v1=HEX";
        let (mut time, mut tags) = (None, Vec::new());
        for part in value.split(',') {
            match part.trim().split_once('=').ok_or(EXPECTED)? {
                ("t", seconds) => time = Some(seconds.parse().map_err(|_| EXPECTED)?),
                ("v1", _) if tags.len() == TAGS_MAX => return Err("expected at most four v1"),
                ("v1", tag) => tags.push(unhex(tag).ok_or("expected 64 hex digits as v1")?),
                // Ignore fields of later versions of the scheme.
                _ => {}
            }
        }
        let time = time.ok_or(EXPECTED)?;
        if tags.is_empty() {
            return Err(EXPECTED);
        }
        Ok(Self { time, tags })
    }

    /// Whether one of the tags is the expected one. Every comparison takes the same time.
    fn has(&self, expected: &[u8]) -> bool {
        self.tags
            .iter()
            .any(|tag| tag.as_slice().ct_eq(expected).into())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; TAG_BYTES]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != TAG_BYTES || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let mut tag = [0; TAG_BYTES];
    for (byte, [high, low]) in tag.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(tag)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible, time::Duration};

    use axum::body::Body;
    use bytes::Bytes;
    use futures::{FutureExt, stream};
    use http::Request;

    use super::{PaymentKey, PaymentKeys, Signer};

    thread_local! {
        /// The tags that this thread has computed.
        pub(super) static TAGS: Cell<usize> = const { Cell::new(0) };
    }

    const NOW: i64 = 1_700_000_000;

    /// Why the signature is refused, and the number of tags that were computed for that.
    fn refusal(key: &PaymentKey, value: &str, body: &[u8]) -> (String, usize) {
        let before = TAGS.get();
        let problem = key.check_at(value, body, NOW).expect_err("it is wrong");
        let problem = serde_json::to_value(problem).unwrap();
        let detail = problem["detail"].as_str().unwrap().to_owned();
        (detail, TAGS.get() - before)
    }

    #[test]
    fn a_signature_is_good_for_its_body_its_time_and_its_secret() {
        let key = PaymentKey::new(b"a secret of the shop", Duration::from_secs(300));
        let now = NOW;
        let value = key.sign_at(now, b"{}");
        let good = |key: &PaymentKey, value: &str, body: &[u8], now| {
            key.check_at(value, body, now).is_ok()
        };
        assert!(good(&key, &value, b"{}", now));
        assert!(
            good(
                &key,
                &format!("{value},v1={},v2=x", "0".repeat(64)),
                b"{}",
                now
            ),
            "a tag by another secret does no harm"
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
        for (late, is_good) in [(300, true), (301, false)] {
            assert_eq!(good(&key, &value, b"{}", now + late), is_good);
            assert_eq!(good(&key, &value, b"{}", now - late), is_good);
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
            &format!("{value},v1="),
            &format!("{value},v1=00"),
            &format!("{value}{}", format!(",v1={}", "0".repeat(64)).repeat(4)),
        ] {
            assert!(!good(&key, bad, b"{}", now), "{bad:?}");
        }
    }

    /// Anyone may send this header, and it fits into the head of a request.
    #[test]
    fn thousands_of_tags_cost_less_than_one_signature() {
        let key = PaymentKey::new(b"a secret of the shop", Duration::from_secs(300));
        let tag = format!(",v1={}", "0".repeat(64));
        let refused = |value: &str| refusal(&key, value, b"{}");
        let wrong = "v1 is not the HMAC-SHA256 of the time, a dot and the body";
        for few in [1, 4] {
            let value = format!("t={NOW}{}", tag.repeat(few));
            assert_eq!(refused(&value), (wrong.to_owned(), 1), "{few} tags");
        }
        // Reading ends at the first tag that is one too many, or none.
        for (many, why) in [
            (tag.repeat(200), "expected at most four v1"),
            (",v1=".repeat(4000), "expected 64 hex digits as v1"),
            (
                tag.repeat(4) + &",v1=".repeat(4000),
                "expected at most four v1",
            ),
        ] {
            assert_eq!(refused(&format!("t={NOW}{many}")), (why.to_owned(), 0));
        }
        let (why, tags) = refused(&format!("t={}{tag}", NOW - 1000));
        assert!(why.starts_with("t differs") && tags == 0, "{why}");
    }

    /// The code of the refusal. `None`: the signer waits for the body, which never comes.
    fn refusal_without_body(signer: &Signer<'_>, values: &[&str]) -> Option<String> {
        let never = stream::pending::<Result<Bytes, Infallible>>();
        let mut request = Request::new(Body::from_stream(never));
        for value in values {
            let value = value.parse().unwrap();
            request.headers_mut().append(signer.header, value);
        }
        let read = signer.read(request, 100).now_or_never()?;
        let problem = serde_json::to_value(read.unwrap_err()).unwrap();
        Some(problem["code"].as_str().unwrap().to_owned())
    }

    #[test]
    fn what_the_headers_refuse_is_refused_before_the_body() {
        let key = PaymentKey::new(b"a secret of the shop", Duration::from_secs(300));
        let keys = PaymentKeys {
            provider: Some(key.clone()),
            stripe: vec![key.clone()],
        };
        let now = key.sign(b"{}");
        let (old, none) = (key.sign_at(NOW, b"{}"), PaymentKeys::default());
        for (signer, without) in [
            (keys.provider(), none.provider()),
            (keys.stripe(), none.stripe()),
        ] {
            let refused = |values: &[&str]| refusal_without_body(&signer, values);
            let invalid = Some("invalid_signature".to_owned());
            for values in [
                &[][..],
                &[""],
                &["t=1"],
                &["v1=00"],
                &[&*old],
                &[&*now, &*now],
            ] {
                assert_eq!(refused(values), invalid, "{values:?}");
            }
            assert_eq!(refused(&[&now]), None, "only the body can tell");
            let refused = refusal_without_body(&without, &[&now]);
            assert_eq!(refused.as_deref(), Some("payments_not_configured"));
        }
    }

    /// Computed with `openssl dgst -sha256 -hmac Jefe`.
    #[test]
    fn the_signature_is_what_others_compute() {
        let key = PaymentKey::new(b"Jefe", Duration::from_secs(300));
        let value =
            "t=1700000000,v1=be58a524c57faff791d2efc5092c4bb91bbefd0b8fee0a5d6e53ebfa6405d25e";
        assert!(key.check_at(value, br#"{"payment":"pay_1"}"#, NOW).is_ok());
    }
}
