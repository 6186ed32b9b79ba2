//! Cursors: where the next page of a list starts.
//!
//! A cursor is base64url of the key of a page's last row, behind 16 bytes of an HMAC-SHA256 over
//! the list and that key. Only a cursor that this service has issued for the same list is accepted,
//! so a caller cannot use one as a probe for keys. Its key is derived from the admin token, which
//! all instances share.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{CartId, ItemId, OrderId};
use ring::hmac;
use subtle::ConstantTimeEq;

use crate::engine::RefundKey;

const TAG_BYTES: usize = 16;
const PURPOSE: &[u8] = b"stockade list cursors";

/// Issues and verifies cursors.
pub(crate) struct Cursors(hmac::Key);

impl Cursors {
    pub(crate) fn new(secret: &[u8]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), PURPOSE);
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// The cursor behind `key` in `list`.
    pub(super) fn issue(&self, list: &str, key: &impl Key) -> String {
        let key = key.to_bytes();
        URL_SAFE_NO_PAD.encode([&self.tag(list, &key)[..], &key].concat())
    }

    /// The key of a cursor that was issued for `list`.
    pub(super) fn verify<K: Key>(&self, list: &str, cursor: &str) -> Option<K> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (tag, key) = bytes.split_at_checked(TAG_BYTES)?;
        let is_ours: bool = self.tag(list, key).ct_eq(tag).into();
        is_ours.then(|| K::from_bytes(key)).flatten()
    }

    fn tag(&self, list: &str, key: &[u8]) -> [u8; TAG_BYTES] {
        // A list's name has no zero byte, so name and key cannot be confused.
        let tag = hmac::sign(&self.0, &[list.as_bytes(), &[0], key].concat());
        let mut short = [0; TAG_BYTES];
        short.copy_from_slice(&tag.as_ref()[..TAG_BYTES]);
        short
    }
}

/// The key of a row.
pub(super) trait Key: Sized {
    fn to_bytes(&self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Key for ItemId {
    fn to_bytes(&self) -> Vec<u8> {
        self.as_str().into()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::new(std::str::from_utf8(bytes).ok()?).ok()
    }
}

impl Key for OrderId {
    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(OrderId::from_bytes)
    }
}

/// An entry of a journal.
impl Key for u64 {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_be_bytes().into()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl Key for CartId {
    fn to_bytes(&self) -> Vec<u8> {
        self.as_uuid().into_bytes().into()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        <OrderId as Key>::from_bytes(bytes).map(|id| id.as_uuid().into())
    }
}

impl Key for RefundKey {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Order(id) => id.to_bytes(),
            Self::Payment(entry) => entry.to_bytes(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let entry = || <u64 as Key>::from_bytes(bytes);
        <OrderId as Key>::from_bytes(bytes)
            .map(Self::Order)
            .or_else(|| entry().map(Self::Payment))
    }
}

#[cfg(test)]
mod tests {
    use domain::{ItemId, OrderId};

    use super::{Cursors, Key};
    use crate::engine::RefundKey;

    fn returns<K: Key + PartialEq + std::fmt::Debug>(key: &K) {
        let cursors = Cursors::new(b"secret");
        let cursor = cursors.issue("list", key);
        assert_eq!(cursors.verify::<K>("list", &cursor).as_ref(), Some(key));
        assert_eq!(cursors.verify::<K>("another list", &cursor), None);
        assert_eq!(Cursors::new(b"other").verify::<K>("list", &cursor), None);
        for at in 0..cursor.len() {
            let mut forged = cursor.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(cursors.verify::<K>("list", &forged), None, "{forged}");
            assert_eq!(cursors.verify::<K>("list", &cursor[..at]), None);
        }
    }

    #[test]
    fn only_an_issued_cursor_of_the_same_list_is_accepted() {
        returns(&ItemId::new("vase").unwrap());
        returns(&OrderId::from_bytes([7; 16]));
        returns(&RefundKey::Order(OrderId::from_bytes([7; 16])));
        returns(&RefundKey::Payment(7));
    }
}
