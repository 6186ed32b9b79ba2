//! The number that orders the holders of a lock.

use std::fmt;

/// The number of an acquisition. It is higher than the number of every earlier acquisition of the
/// same name.
///
/// It fits a signed 64-bit column and is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The first token of a name.
    pub const FIRST: Self = Self(1);
    /// The last token of a name. After it the lock can never be acquired again.
    pub const LAST: Self = Self(i64::MAX);

    /// Reads a token that was stored somewhere. Tokens start at one.
    pub const fn new(number: i64) -> Option<Self> {
        if number >= 1 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number, for a column or a message.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The token so many after it, or the next one if that is none, or the last one of all.
    #[cfg(feature = "redlock")]
    pub(crate) fn after(self, distance: i64) -> Option<Self> {
        let leapt = self.0.checked_add(distance).map(Self);
        leapt
            .filter(|token| *token < Self::LAST)
            .or_else(|| self.0.checked_add(1).map(Self))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
