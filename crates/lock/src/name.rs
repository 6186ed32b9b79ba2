//! What a lock may be called, and which keys it has on a node.

use std::sync::Arc;

use crate::error::InvalidArgument;

/// The longest name. A name is a key on every node and is sent with every request.
const BYTES_MAX: usize = 1024;
const FENCE_SUFFIX: &str = ":fence";
const NODE_PREFIX: &str = "lock:node:";

/// string: `RUN_ID:FLOOR`, written when a server was admitted.
pub(crate) const GENERATION: &str = "lock:node:generation";
/// string: the highest token that a node has accepted for any name.
pub(crate) const HIGH_WATER: &str = "lock:node:high-water";

/// A checked name with its keys.
///
/// The lock's key is the exact name, because that is the key of every other Redlock library: they exclude us, and we them.
#[derive(Debug, Clone)]
pub(crate) struct Name(Arc<Keys>);

#[derive(Debug)]
struct Keys {
    lock: String,
    fence: String,
}

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, InvalidArgument> {
        if name.is_empty() {
            return Err(InvalidArgument::EmptyName);
        }
        if name.len() > BYTES_MAX {
            return Err(InvalidArgument::NameTooLong { bytes: name.len(), max: BYTES_MAX });
        }
        if name.ends_with(FENCE_SUFFIX) || name.starts_with(NODE_PREFIX) {
            return Err(InvalidArgument::ReservedName(name.into()));
        }
        Ok(Self(Arc::new(Keys { lock: name.into(), fence: format!("{name}{FENCE_SUFFIX}") })))
    }

    /// string: the owner.
    pub(crate) fn lock(&self) -> &str {
        &self.0.lock
    }

    /// string: the highest token accepted for the name.
    pub(crate) fn fence(&self) -> &str {
        &self.0.fence
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidArgument, Name};

    #[test]
    fn a_name_is_any_short_text_that_is_no_key_of_ours() {
        for name in ["a", "item:42", "with spaces and ünïcode", &"x".repeat(1024)] {
            assert_eq!(Name::new(name).unwrap().lock(), name);
        }
        assert!(matches!(Name::new(""), Err(InvalidArgument::EmptyName)));
        assert!(matches!(Name::new(&"x".repeat(10_000)), Err(InvalidArgument::NameTooLong { bytes: 10_000, .. })));
        assert!(matches!(Name::new("a:fence"), Err(InvalidArgument::ReservedName(_))));
        assert!(matches!(Name::new("lock:node:generation"), Err(InvalidArgument::ReservedName(_))));
    }
}
