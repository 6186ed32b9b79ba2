//! Webhooks: what Stockade sends to a shop, and the proof that Stockade has sent it.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::header::HeaderMap;
use uuid::Uuid;

use crate::{Error, Event, signature::is_hmac_sha256};

/// How far the clock of the sender may be from this one.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Verifies webhooks by [Standard Webhooks](https://www.standardwebhooks.com).
#[derive(Clone)]
pub struct Webhook {
    keys: Vec<Vec<u8>>,
}

/// A message that does not come from Stockade, or that is too old. Answer 400 and drop it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the webhook is refused: {0}")]
pub struct InvalidSignature(&'static str);

impl Webhook {
    /// With the secrets (`whsec_...`) of one webhook or several, or the old and the new one while
    /// it changes.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let invalid = || Error::InvalidInput {
            field: "secrets",
            expected: "one or more, each whsec_ and base64",
        };
        let key = |secret: S| {
            let secret = secret.as_ref();
            let text = secret.strip_prefix("whsec_").unwrap_or(secret);
            let key = STANDARD.decode(text).ok().filter(|key| !key.is_empty());
            key.ok_or_else(invalid)
        };
        let keys: Vec<_> = secrets.into_iter().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(invalid());
        }
        Ok(Self { keys })
    }

    /// The event in `body`, which must be the raw body of the request.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, InvalidSignature> {
        self.check(headers, body, SystemTime::now())?;
        serde_json::from_slice(body).map_err(|_| InvalidSignature("the body is no event"))
    }

    fn check(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), InvalidSignature> {
        let header = |name, missing| the_one(headers, name).ok_or(InvalidSignature(missing));
        let id = header("webhook-id", "not one webhook-id in ASCII")?;
        let time = header("webhook-timestamp", "not one webhook-timestamp in ASCII")?;
        let signatures = header("webhook-signature", "not one webhook-signature in ASCII")?;
        // `parse` would accept a sign.
        let digits = time.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = time
            .parse()
            .ok()
            .filter(|_| digits)
            .map(Duration::from_secs);
        let seconds = seconds.ok_or(InvalidSignature("webhook-timestamp is no number"))?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Whole seconds, as the sender counts them.
        if Duration::from_secs(now.as_secs()).abs_diff(seconds) > TOLERANCE {
            return Err(InvalidSignature("webhook-timestamp is too far from now"));
        }
        let signed = [id.as_bytes(), b".", time.as_bytes(), b".", body];
        let is_signed = signatures
            .split(' ')
            .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
            .any(|tag| {
                self.keys
                    .iter()
                    .any(|key| is_hmac_sha256(key, &signed, &tag))
            });
        match is_signed {
            true => Ok(()),
            false => Err(InvalidSignature("no signature matches")),
        }
    }
}

/// The value of a header whose values are all the same. Its name is in any case in HTTP.
fn the_one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.all(|other| other == value).then_some(())?;
    value.to_str().ok()
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Webhook(..)")
    }
}

impl Event {
    /// The orders that it happened to.
    pub fn orders(&self) -> Vec<Uuid> {
        let orders = self.data["orders"].as_array().into_iter().flatten();
        orders
            .filter_map(|order| order.as_str()?.parse().ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::Webhook;
    use crate::Event;

    /// The test vector of the Standard Webhooks libraries, as in `clients/vectors.json`.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_c2VjcmV0LW9mLWFub3RoZXItZW5kcG9pbnQ=";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const NOW: u64 = 1_614_265_330;

    fn headers(change: Option<(&'static str, &'static str)>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let known = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            (
                "webhook-signature",
                "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
        ];
        for (name, value) in known.into_iter().chain(change) {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_published_vector_verifies_and_what_differs_is_refused() {
        let webhook = Webhook::new([OTHER, SECRET]).unwrap();
        for seconds in [NOW - 300, NOW, NOW + 300] {
            assert_eq!(webhook.check(&headers(None), BODY, at(seconds)), Ok(()));
        }
        for change in [
            ("webhook-id", "msg_other"),
            ("webhook-timestamp", "1614265331"),
            ("webhook-timestamp", "soon"),
            ("webhook-signature", ""),
            (
                "webhook-signature",
                "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
        ] {
            let refused = webhook.check(&headers(Some(change)), BODY, at(NOW));
            assert!(refused.is_err(), "{change:?}");
        }
        let headers = headers(None);
        assert!(webhook.check(&headers, b"{}", at(NOW)).is_err());
        assert!(webhook.check(&HeaderMap::new(), BODY, at(NOW)).is_err());
        assert!(webhook.verify(&headers, BODY).is_err(), "it is too old");
        for seconds in [NOW - 301, NOW + 301] {
            assert!(webhook.check(&headers, BODY, at(seconds)).is_err());
        }
        let other = Webhook::new([OTHER]).unwrap();
        assert!(other.check(&headers, BODY, at(NOW)).is_err());
        assert_eq!(format!("{other:?}"), "Webhook(..)", "logs do not leak it");
    }

    #[test]
    fn the_names_of_headers_are_in_any_case() {
        let webhook = Webhook::new([SECRET]).unwrap();
        let upper = headers(None).into_iter().map(|(name, value)| {
            let name = name.unwrap().as_str().to_uppercase();
            (name.parse::<HeaderName>().unwrap(), value)
        });
        let mut upper: HeaderMap = upper.collect();
        assert_eq!(webhook.check(&upper, BODY, at(NOW)), Ok(()));
        // A proxy that repeats a header changes nothing; another value does.
        upper.append("Webhook-Id", upper["webhook-id"].clone());
        assert_eq!(webhook.check(&upper, BODY, at(NOW)), Ok(()));
        upper.append("Webhook-Id", HeaderValue::from_static("other"));
        assert!(webhook.check(&upper, BODY, at(NOW)).is_err());
    }

    #[test]
    fn hostile_headers_are_refused() {
        let webhook = Webhook::new([SECRET]).unwrap();
        let huge = "9".repeat(100_000);
        let many = "v1,".repeat(10_000);
        let values: [&[u8]; 10] = [
            b"",
            b" ",
            b"\xff",
            "é".as_bytes(),
            "٣".as_bytes(),
            b"-1",
            b"+1614265330",
            b"1e9",
            huge.as_bytes(),
            many.as_bytes(),
        ];
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            for value in values {
                let mut hostile = headers(None);
                hostile.insert(name, HeaderValue::from_bytes(value).unwrap());
                let checked = webhook.check(&hostile, BODY, at(NOW));
                assert!(checked.is_err(), "{name}: {value:.9?}");
            }
            let mut without = headers(None);
            without.remove(name);
            assert!(webhook.check(&without, BODY, at(NOW)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_bad_secret_is_refused_at_once() {
        for secrets in [vec![], vec![""], vec!["whsec_!"]] {
            assert!(Webhook::new(secrets).is_err());
        }
    }

    #[test]
    fn an_event_names_its_orders() {
        let event: Event = serde_json::from_str(
            r#"{"specversion":"1.0","id":"1-2","type":"stockade.order.held","subject":"vase","time":"2026-11-23T15:04:05Z",
                "data":{"orders":["00000000-0000-0000-0000-000000000001"],"more":1}}"#,
        )
        .unwrap();
        assert_eq!(event.orders(), [uuid::Uuid::from_u128(1)]);
    }
}
