//! The names of things. Each is checked once, when it is made, so that no later code has to wonder.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A value that was refused, with the field that held it and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}")]
pub struct Invalid {
    /// The field's name, as the user wrote it.
    pub field: &'static str,
    /// What would have been accepted.
    pub expected: String,
}

impl Invalid {
    /// Says that `field` did not hold what was `expected`.
    pub fn new(field: &'static str, expected: impl Into<String>) -> Self {
        Self { field, expected: expected.into() }
    }
}

macro_rules! text_newtype {
    ($name:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().into()
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }
    };
}

/// The name of an item: 1 to 64 of `A-Z a-z 0-9 . _ -`.
///
/// It becomes part of Redis keys (inside the hash tag), of URLs and of channel names, so the characters that
/// mean something there (`{ } : /`) are not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ItemId(std::sync::Arc<str>);

impl ItemId {
    /// The longest name.
    pub const MAX_LEN: usize = 64;

    /// Checks length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(allowed) {
            return Err(Invalid::new("id", format!("1 to {} of the characters A-Z a-z 0-9 . _ -", Self::MAX_LEN)));
        }
        Ok(Self(text.into()))
    }

    /// The item's part of its orders' ids.
    pub fn tag(&self) -> ItemTag {
        let digest = Sha256::digest(self.0.as_bytes());
        ItemTag(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

text_newtype!(ItemId);

/// The first 32 bits of every order id of an item. Two items may share a tag; nothing relies on that they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemTag(pub u32);

/// Who buys: the `sub` of the buyer's token, 1 to 128 bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BuyerId(Box<str>);

impl BuyerId {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > Self::MAX_LEN || text.chars().any(char::is_control) {
            return Err(Invalid::new("sub", format!("1 to {} bytes without control characters", Self::MAX_LEN)));
        }
        Ok(Self(text.into()))
    }

    /// A hash that is the same in every process and every release: it decides the buyer's home segment.
    pub fn stable_hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.0.as_bytes())
    }
}

text_newtype!(BuyerId);

/// What makes two requests of a buyer the same order: the `Idempotency-Key` header, 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// The longest key.
    pub const MAX_LEN: usize = 255;

    /// Checks length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Invalid::new("Idempotency-Key", format!("1 to {} visible ASCII characters", Self::MAX_LEN)));
        }
        Ok(Self(text.into()))
    }
}

text_newtype!(IdempotencyKey);

/// The name of an order: a function of item, buyer and idempotency key, so that every instance derives the same
/// one without asking anybody.
///
/// It is a UUID of version 8 (RFC 9562): 32 bits of [`ItemTag`], then 90 bits of SHA-256 over the three names. The tag keeps an
/// item's orders together in the ledger's index and lets any instance find the item of an order that is not in the ledger yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderId(Uuid);

impl OrderId {
    /// The id of the order that `buyer` means by `key`.
    pub fn derive(item: &ItemId, tag: ItemTag, buyer: &BuyerId, key: &IdempotencyKey) -> Self {
        let mut hash = Sha256::new();
        for name in [item.as_str(), buyer.as_str(), key.as_str()] {
            // The length in front keeps ("ab", "c") and ("a", "bc") apart.
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(name.as_bytes());
        }
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&tag.0.to_be_bytes());
        bytes[4..].copy_from_slice(&digest[..12]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The item's tag.
    pub fn tag(self) -> ItemTag {
        let bytes = self.0.as_bytes();
        ItemTag(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The sixteen bytes, as they stand in Redis.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The id as a UUID, as it stands in SQL.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for OrderId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for OrderId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self).map_err(|_| Invalid::new("order", "a UUID"))
    }
}

/// One of the stock counters of an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentKey {
    /// The item.
    pub item: ItemId,
    /// Which of its segments, from 0.
    pub segment: u16,
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.item, self.segment)
    }
}

impl std::str::FromStr for SegmentKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts = text.rsplit_once(':').and_then(|(item, segment)| Some((item, segment.parse().ok()?)));
        let (item, segment) = parts.ok_or_else(|| Invalid::new("segment", "ITEM:NUMBER"))?;
        Ok(Self { item: ItemId::new(item)?, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::{BuyerId, IdempotencyKey, ItemId, OrderId, SegmentKey};

    fn order(item: &str, buyer: &str, key: &str) -> OrderId {
        let item = ItemId::new(item).unwrap();
        OrderId::derive(&item, item.tag(), &BuyerId::new(buyer).unwrap(), &IdempotencyKey::new(key).unwrap())
    }

    #[test]
    fn an_order_id_is_a_function_of_item_buyer_and_key() {
        assert_eq!(order("maotai", "ann", "k1"), order("maotai", "ann", "k1"));
        let others = [order("maotai", "ann", "k2"), order("maotai", "bob", "k1"), order("vase", "ann", "k1")];
        assert!(others.iter().all(|other| *other != order("maotai", "ann", "k1")));
        assert_ne!(order("a", "bc", "d"), order("a", "b", "cd"), "the parts must not run into each other");
    }

    #[test]
    fn an_order_id_is_the_same_in_every_release() {
        let id = order("maotai", "ann", "k1");
        assert_eq!(id.to_string(), "9ee2ddee-53dc-8690-8a2b-6181b5fbc615");
        assert_eq!(id.tag(), ItemId::new("maotai").unwrap().tag());
        assert_eq!(id.as_uuid().get_version_num(), 8);
    }

    #[test]
    fn a_home_never_moves_between_releases() {
        assert_eq!(BuyerId::new("ann").unwrap().stable_hash(), 5_200_682_613_324_210_888);
    }

    #[test]
    fn names_that_would_break_keys_or_headers_are_refused() {
        for bad in ["", "a:b", "a{b}", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(ItemId::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a\nb", &"x".repeat(129)] {
            assert!(BuyerId::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a b", "é", &"x".repeat(256)] {
            assert!(IdempotencyKey::new(bad).is_err(), "{bad:?}");
        }
        assert!(BuyerId::new("安娜").is_ok());
    }

    #[test]
    fn a_segment_reads_back_what_it_prints() {
        let segment = SegmentKey { item: ItemId::new("a.b-c").unwrap(), segment: 7 };
        assert_eq!(segment.to_string(), "a.b-c:7");
        assert_eq!("a.b-c:7".parse::<SegmentKey>().unwrap(), segment);
        assert!("a.b-c".parse::<SegmentKey>().is_err());
    }
}
