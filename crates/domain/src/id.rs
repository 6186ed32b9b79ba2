//! Names and ids. Each is validated once, when it is created, so that later code need not check it.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// An invalid value: the field that held it and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}")]
pub struct Invalid {
    /// The field's name, as the user wrote it.
    pub field: &'static str,
    /// Description of the accepted values.
    pub expected: String,
}

impl Invalid {
    /// An error for `field`, which did not hold what was `expected`.
    pub fn new(field: &'static str, expected: impl Into<String>) -> Self {
        Self {
            field,
            expected: expected.into(),
        }
    }
}

/// What ids that are UUIDs have in common, with the word for what such an id names.
macro_rules! uuid_id {
    ($id:ident, $named:literal) => {
        impl $id {
            /// The id as a UUID, as stored in SQL.
            pub fn as_uuid(&self) -> uuid::Uuid {
                self.0
            }
        }

        impl From<uuid::Uuid> for $id {
            fn from(uuid: uuid::Uuid) -> Self {
                Self(uuid)
            }
        }

        impl std::fmt::Display for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $id {
            type Err = $crate::Invalid;

            fn from_str(text: &str) -> Result<Self, $crate::Invalid> {
                text.parse()
                    .map(Self)
                    .map_err(|_| $crate::Invalid::new($named, "a UUID"))
            }
        }
    };
}
pub(crate) use uuid_id;

/// A hash over names. Their lengths distinguish ("ab", "c") from ("a", "bc").
pub(crate) fn hash_of(names: &[&str]) -> Sha256 {
    let mut hash = Sha256::new();
    for name in names {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
    }
    hash
}

macro_rules! text_newtype {
    ($name:ident) => {
        impl $name {
            /// The name as text.
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

        /// Written from where it is. `into = "String"` would copy the name twice for each answer.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

/// Whether a name cannot be a segment of a URL's path. Clients resolve `.` and `..` before they
/// send a request, percent-encoded ones too (RFC 3986, 5.2.4), so the request has another path.
fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Gives a name the constructor for what is new. Ledgers of earlier releases have names that only
/// [`new`](ItemId::new) accepts, and these stay readable.
macro_rules! addressable {
    ($name:ident) => {
        impl $name {
            /// The name of something new: [`Self::new`], and a URL can have it in its path.
            pub fn addressable(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let name = Self::new(text)?;
                if is_dots(name.as_str()) {
                    return Err(Invalid::new(
                        Self::FIELD,
                        "another name than `.` and `..`, which no URL can have in its path",
                    ));
                }
                Ok(name)
            }
        }
    };
}

/// The name of an item: 1 to 64 of `A-Z a-z 0-9 . _ -`.
///
/// It becomes part of Redis keys (inside the hash tag), URLs and channel names. The characters with
/// a special meaning there (`{ } : /`) are therefore not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct ItemId(std::sync::Arc<str>);

impl ItemId {
    /// Maximum length of the name, in characters.
    pub const MAX_LEN: usize = 64;

    const FIELD: &str = "id";

    /// Validates length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(allowed) {
            return Err(Invalid::new(
                Self::FIELD,
                format!("1 to {} of the characters A-Z a-z 0-9 . _ -", Self::MAX_LEN),
            ));
        }
        Ok(Self(text.into()))
    }

    /// The tag that the ids of the item's orders begin with.
    pub fn tag(&self) -> ItemTag {
        let digest = Sha256::digest(self.0.as_bytes());
        ItemTag(u32::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3],
        ]))
    }
}

text_newtype!(ItemId);
addressable!(ItemId);

/// The first 32 bits of every order id of an item. Two items may share a tag; nothing relies on
/// tags being distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemTag(pub u32);

/// The buyer: the `sub` of the buyer's token, 1 to 128 bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct BuyerId(Box<str>);

impl BuyerId {
    /// Maximum length of the name, in bytes.
    pub const MAX_LEN: usize = 128;

    const FIELD: &str = "sub";

    /// Validates length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > Self::MAX_LEN || text.chars().any(char::is_control) {
            return Err(Invalid::new(
                Self::FIELD,
                format!("1 to {} bytes without control characters", Self::MAX_LEN),
            ));
        }
        Ok(Self(text.into()))
    }

    /// A hash that is the same in every process and every release. It determines the buyer's home
    /// segment, and the position of the buyer's orders in the ledger's index. It has no key: a list
    /// of names leads back from a hash.
    pub fn stable_hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.0.as_bytes())
    }

    /// The buyer's home among `segments` segments. Every order of the buyer is reserved there
    /// first, and the buyer's units are counted there.
    pub fn home(&self, segments: u16) -> u16 {
        u16::try_from(self.stable_hash() % u64::from(segments.max(1))).unwrap_or(0)
    }
}

text_newtype!(BuyerId);
addressable!(BuyerId);

/// Identifies repeats of one order of a buyer: the `Idempotency-Key` header, 1 to 255 visible ASCII
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// Maximum length of the key, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Validates length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty()
            || text.len() > Self::MAX_LEN
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Invalid::new(
                "Idempotency-Key",
                format!("1 to {} visible ASCII characters", Self::MAX_LEN),
            ));
        }
        Ok(Self(text.into()))
    }
}

text_newtype!(IdempotencyKey);

/// The id of an order: a function of item, buyer and idempotency key, so that every instance
/// derives the same id without coordination.
///
/// It is a UUID of version 8 (RFC 9562): 32 bits of [`ItemTag`], 28 bits of the buyer's hash, 62
/// bits of SHA-256 over the three names. The tag keeps an item's orders together in the ledger's
/// index, and lets any instance find the item of an order that is not in the ledger yet. Within the
/// tag, the buyer's bits keep the orders of a buyer together, so that one short range of the
/// primary key contains all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderId(Uuid);

impl OrderId {
    /// The id of the order that `buyer` identifies by `key`.
    pub fn derive(item: &ItemId, tag: ItemTag, buyer: &BuyerId, key: &IdempotencyKey) -> Self {
        let hash = hash_of(&[item.as_str(), buyer.as_str(), key.as_str()]);
        Self::with_digest(tag, buyer, &hash.finalize())
    }

    /// The id with the prefix of the buyer's orders and the first 62 bits of a hash.
    pub(crate) fn with_digest(tag: ItemTag, buyer: &BuyerId, digest: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&Self::prefix(tag, buyer));
        bytes[8..].copy_from_slice(&digest[..8]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The common prefix of all orders of a buyer: the tag, and the highest 28 bits of the buyer's
    /// hash on both sides of the version.
    fn prefix(tag: ItemTag, buyer: &BuyerId) -> [u8; 8] {
        let bits = buyer.stable_hash() >> 36;
        let version = u64::from(Self::FIRST_VERSION) << 12;
        (u64::from(tag.0) << 32 | (bits & 0x0fff_f000) << 4 | version | bits & 0x0fff).to_be_bytes()
    }

    /// The lowest and the highest id that an order of this buyer can have. Orders of other buyers
    /// may lie between them.
    pub fn range_of(tag: ItemTag, buyer: &BuyerId) -> [Self; 2] {
        [0x00, 0xff].map(|filling| {
            let mut bytes = [filling; 16];
            bytes[..8].copy_from_slice(&Self::prefix(tag, buyer));
            Self::from_bytes(bytes)
        })
    }

    /// [`OrderId::range_of`] the buyer of this order.
    pub fn buyers_range(self) -> [Self; 2] {
        let prefix = self.first();
        [0x00, 0xff].map(|filling| {
            let mut bytes = [filling; 16];
            bytes[..8].copy_from_slice(&prefix.as_bytes()[..8]);
            Self::from_bytes(bytes)
        })
    }

    /// The version of the UUID encodes the attempt to take units: 8 is the order itself, 9 to 15
    /// are its reacquisitions. No order's id can equal the id of another order's reacquisition, and
    /// each id can be computed from the other.
    const FIRST_VERSION: u8 = 8;

    /// How many times an order's units can be reacquired after they were released.
    pub const MAX_REACQUISITIONS: u8 = 15 - Self::FIRST_VERSION;

    /// The id of the `attempt`th reacquisition of the order's units after they were released; 0 is
    /// the order's own id.
    ///
    /// A segment's decision for an id never changes, a release included. Reacquiring units
    /// therefore needs another id.
    #[must_use]
    pub fn reacquire(self, attempt: u8) -> Self {
        let mut bytes = *self.0.as_bytes();
        let version = Self::FIRST_VERSION + attempt.min(Self::MAX_REACQUISITIONS);
        bytes[6] = (bytes[6] & 0x0f) | (version << 4);
        Self::from_bytes(bytes)
    }

    /// The attempt that this id encodes: 0 for the order's own id.
    pub fn attempt(self) -> u8 {
        (self.0.as_bytes()[6] >> 4).saturating_sub(Self::FIRST_VERSION)
    }

    /// The order's own id.
    #[must_use]
    pub fn first(self) -> Self {
        if self.attempt() == 0 {
            self
        } else {
            self.reacquire(0)
        }
    }

    /// The item's tag.
    pub fn tag(self) -> ItemTag {
        let bytes = self.0.as_bytes();
        ItemTag(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The sixteen bytes, as stored in Redis.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

uuid_id!(OrderId, "order");

impl fmt::Debug for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The payment provider's id of a payment: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct PaymentId(Box<str>);

impl PaymentId {
    /// Maximum length of the id, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Validates length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        provider_id("payment", text.as_ref()).map(Self)
    }
}

text_newtype!(PaymentId);

/// The payment provider's id of a checkout session, in which a buyer can pay: 1 to 255 visible
/// ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct SessionId(Box<str>);

impl SessionId {
    /// Validates length and characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        provider_id("session", text.as_ref()).map(Self)
    }
}

text_newtype!(SessionId);

/// An id that a payment provider has made.
fn provider_id(field: &'static str, text: &str) -> Result<Box<str>, Invalid> {
    const MAX_LEN: usize = PaymentId::MAX_LEN;
    if text.is_empty() || text.len() > MAX_LEN || !text.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(Invalid::new(
            field,
            format!("1 to {MAX_LEN} visible ASCII characters"),
        ));
    }
    Ok(text.into())
}

/// The id of a transfer: a move of units into, out of, or between segments. It identifies repeats
/// of each step of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(Uuid);

impl TransferId {
    /// A new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The id of the part at `segment` of the request with this `key`. A repeat of the request
    /// derives the same ids.
    pub fn derive(item: &ItemId, key: &IdempotencyKey, segment: u16) -> Self {
        let mut hash = hash_of(&[item.as_str(), key.as_str()]);
        hash.update(segment.to_be_bytes());
        Self::of_hash(hash)
    }

    /// The id of the part at `segment` of the item's wave at this time. It differs from the ids of
    /// all requests, because a key is never empty.
    pub fn of_wave(item: &ItemId, at: jiff::Timestamp, segment: u16) -> Self {
        let mut hash = hash_of(&[item.as_str(), ""]);
        hash.update(at.as_millisecond().to_be_bytes());
        hash.update(segment.to_be_bytes());
        Self::of_hash(hash)
    }

    /// The id of the part at `segment` of the change that gives the item's `version` another stock.
    /// It differs from the ids of all requests, because no key has a space.
    pub fn of_version(item: &ItemId, version: u64, segment: u16) -> Self {
        let mut hash = hash_of(&[item.as_str(), "the stock of a version"]);
        hash.update(version.to_be_bytes());
        hash.update(segment.to_be_bytes());
        Self::of_hash(hash)
    }

    fn of_hash(hash: Sha256) -> Self {
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        // Version 4, so that it never equals an order's id: both are fields of the same Redis hash
        // of decisions.
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// The sixteen bytes, as stored in Redis.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

uuid_id!(TransferId, "transfer");

/// One of an item's segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentKey {
    /// The item.
    pub item: ItemId,
    /// Number of the segment, from 0.
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
        let parts = text
            .rsplit_once(':')
            .and_then(|(item, segment)| Some((item, segment.parse().ok()?)));
        let (item, segment) = parts.ok_or_else(|| Invalid::new("segment", "ITEM:NUMBER"))?;
        Ok(Self {
            item: ItemId::new(item)?,
            segment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BuyerId, IdempotencyKey, ItemId, OrderId, SegmentKey, TransferId};

    fn order(item: &str, buyer: &str, key: &str) -> OrderId {
        let item = ItemId::new(item).unwrap();
        OrderId::derive(
            &item,
            item.tag(),
            &BuyerId::new(buyer).unwrap(),
            &IdempotencyKey::new(key).unwrap(),
        )
    }

    #[test]
    fn an_order_id_is_a_function_of_item_buyer_and_key() {
        assert_eq!(order("maotai", "ann", "k1"), order("maotai", "ann", "k1"));
        let others = [
            order("maotai", "ann", "k2"),
            order("maotai", "bob", "k1"),
            order("vase", "ann", "k1"),
        ];
        assert!(
            others
                .iter()
                .all(|other| *other != order("maotai", "ann", "k1"))
        );
        assert_ne!(
            order("a", "bc", "d"),
            order("a", "b", "cd"),
            "the parts must not be confused with each other"
        );
    }

    #[test]
    fn an_order_id_is_the_same_in_every_release() {
        let id = order("maotai", "ann", "k1");
        assert_eq!(id.to_string(), "9ee2ddee-482c-8894-93dc-36904a2b6181");
        assert_eq!(id.tag(), ItemId::new("maotai").unwrap().tag());
        assert_eq!(id.as_uuid().get_version_num(), 8);
    }

    #[test]
    fn the_order_ids_of_one_buyer_are_in_one_range() {
        let (item, ann) = (ItemId::new("maotai").unwrap(), BuyerId::new("ann").unwrap());
        let [first, last] = OrderId::range_of(item.tag(), &ann);
        for key in 0..1000 {
            let id = order("maotai", "ann", &format!("k{key}"));
            assert!(first < id && id < last, "{id}");
        }
        let others = (0..1000).map(|n| order("maotai", &format!("bob-{n}"), "k"));
        assert_eq!(others.filter(|id| (first..=last).contains(id)).count(), 0);
    }

    #[test]
    fn a_home_is_one_of_the_segments() {
        let homes = |segments| {
            (0..100).map(move |n| BuyerId::new(format!("ann-{n}")).unwrap().home(segments))
        };
        assert!(homes(1).all(|home| home == 0) && homes(0).all(|home| home == 0));
        assert_eq!(
            homes(4).collect::<std::collections::BTreeSet<_>>(),
            (0..4).collect()
        );
    }

    #[test]
    fn a_reacquisition_id_leads_back_to_its_order() {
        let id = order("maotai", "ann", "k1");
        assert_eq!((id.attempt(), id.reacquire(0)), (0, id));
        let mut seen = std::collections::HashSet::from([id]);
        for attempt in 1..=OrderId::MAX_REACQUISITIONS {
            let reacquire = id.reacquire(attempt);
            assert!(seen.insert(reacquire));
            assert_eq!(
                (reacquire.attempt(), reacquire.first(), reacquire.tag()),
                (attempt, id, id.tag())
            );
            assert_eq!(reacquire.reacquire(attempt), reacquire);
        }
        assert_eq!(id.first(), id);
    }

    #[test]
    fn a_transfer_is_never_an_order_and_the_same_for_the_same_request() {
        let (item, key) = (
            ItemId::new("maotai").unwrap(),
            IdempotencyKey::new("k").unwrap(),
        );
        let transfer = TransferId::derive(&item, &key, 3);
        assert_eq!(transfer, TransferId::derive(&item, &key, 3));
        assert_ne!(transfer, TransferId::derive(&item, &key, 4));
        assert_eq!(transfer.as_uuid().get_version_num(), 4);
        assert_eq!(TransferId::random().as_uuid().get_version_num(), 4);
    }

    #[test]
    fn the_change_of_a_version_is_no_request_that_any_key_names() {
        let item = ItemId::new("maotai").unwrap();
        let change = TransferId::of_version(&item, 2, 3);
        assert_eq!(change, TransferId::of_version(&item, 2, 3));
        assert_ne!(change, TransferId::of_version(&item, 3, 3));
        assert_ne!(change, TransferId::of_version(&item, 2, 4));
        assert!(IdempotencyKey::new("the stock of a version").is_err());
        let old = IdempotencyKey::new("stock-of-version-2").unwrap();
        assert_ne!(change, TransferId::derive(&item, &old, 3));
    }

    #[test]
    fn a_buyers_home_is_the_same_in_every_release() {
        assert_eq!(
            BuyerId::new("ann").unwrap().stable_hash(),
            5_200_682_613_324_210_888
        );
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
    fn new_names_can_be_a_segment_of_a_path_and_old_ones_stay_readable() {
        for dots in [".", ".."] {
            assert_eq!(ItemId::addressable(dots).unwrap_err().field, "id");
            assert_eq!(BuyerId::addressable(dots).unwrap_err().field, "sub");
            assert!(ItemId::new(dots).is_ok() && BuyerId::new(dots).is_ok());
            assert!(dots.parse::<ItemId>().is_ok(), "as the ledger reads it");
        }
        for good in ["...", ".a", "a.", "..a", "-", "_"] {
            assert_eq!(ItemId::addressable(good).unwrap().as_str(), good);
            assert_eq!(BuyerId::addressable(good).unwrap().as_str(), good);
        }
        assert!(ItemId::addressable("a/b").is_err() && BuyerId::addressable("").is_err());
    }

    #[test]
    fn a_segment_key_parses_from_its_text() {
        let segment = SegmentKey {
            item: ItemId::new("a.b-c").unwrap(),
            segment: 7,
        };
        assert_eq!(segment.to_string(), "a.b-c:7");
        assert_eq!("a.b-c:7".parse::<SegmentKey>().unwrap(), segment);
        assert!("a.b-c".parse::<SegmentKey>().is_err());
    }
}
