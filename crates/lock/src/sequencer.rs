//! What a holder presents to a store.

use std::fmt;

use crate::{request::Mode, token::FencingToken};

/// What a holder presents to a store that checks its callers (Chubby's term).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    /// Name of the lock.
    pub name: String,
    /// Mode in which it is held.
    pub mode: Mode,
    /// Token of the holder.
    pub token: FencingToken,
}

impl fmt::Display for Sequencer {
    /// `TOKEN:NAME`, because a name may contain any character.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.token, self.name)
    }
}
