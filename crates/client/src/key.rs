//! Idempotency keys.

use std::fmt;

use reqwest::header::HeaderValue;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::Error;

const LENGTH_MAX: usize = 255;

/// What makes two requests the same order, or the same change of stock: 1 to 255 visible ASCII
/// characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(HeaderValue);

impl IdempotencyKey {
    /// A key of your own, such as the number of the shopping cart.
    pub fn new(key: impl AsRef<str>) -> Result<Self, Error> {
        let key = key.as_ref();
        let valid = (1..=LENGTH_MAX).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(key).ok().filter(|_| valid);
        header.map(Self).ok_or(Error::InvalidInput {
            field: "idempotency key",
            expected: "1 to 255 visible ASCII characters",
        })
    }

    /// A random key.
    pub fn random() -> Self {
        // A simple UUID has 32 hexadecimal digits, which every header can contain.
        let text = Uuid::new_v4().simple().to_string();
        Self(HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0")))
    }

    /// The key, to be stored before the request is sent.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// The number in decimal digits.
impl From<u64> for IdempotencyKey {
    fn from(number: u64) -> Self {
        Self(HeaderValue::from(number))
    }
}

/// The key as text.
impl Serialize for IdempotencyKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::IdempotencyKey;

    #[test]
    fn a_key_is_1_to_255_visible_ascii_characters() {
        for good in ["1", "cart-7~!", &"x".repeat(255)] {
            assert_eq!(IdempotencyKey::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "é", "a\n", &"x".repeat(256)] {
            assert!(IdempotencyKey::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            IdempotencyKey::from(u64::MAX).as_str(),
            "18446744073709551615"
        );
        assert_eq!(IdempotencyKey::random().as_str().len(), 32);
    }
}
