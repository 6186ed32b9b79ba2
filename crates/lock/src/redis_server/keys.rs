//! Which keys a lock has on a Redis server.

use std::sync::Arc;

use crate::{error::InvalidArgument, validate::check_name};

const FENCE: &str = ":fence";
const READERS: &str = ":readers";
const QUEUE: &str = ":queue";
const WAITERS: &str = ":waiters";
const NODE_PREFIX: &str = "lock:node:";
/// Of the channel on which it is said that the lock was given back.
const RELEASED: &str = ":released";

/// string: `RUN_ID:FLOOR`, written when a server was admitted; `RUN_ID:FLOOR:durable` if its votes
/// survive a restart from then on.
#[cfg(feature = "redlock")]
pub(crate) const GENERATION: &str = "lock:node:generation";
/// string: the highest token that a node has accepted for any name.
#[cfg(feature = "redlock")]
pub(crate) const HIGH_WATER: &str = "lock:node:high-water";

/// string: `RUN_ID:MICROSECONDS:MARK`, from when a server that may have forgotten was first seen,
/// by its own clock, until it is admitted.
#[cfg(feature = "redlock")]
pub(crate) const WATCH: &str = "lock:node:watch";

/// string: the last token that a server alone has given.
#[cfg(feature = "redis")]
pub(crate) const COUNTER: &str = "lock:node:counter";

/// A checked name with its keys.
///
/// The lock's key is the exact name, because that is the key of every other Redlock library: they
/// exclude us, and we them.
#[derive(Debug, Clone)]
pub(crate) struct Keys(Arc<Names>);

#[derive(Debug)]
struct Names {
    lock: String,
    fence: String,
    readers: String,
    queue: String,
    waiters: String,
    released: String,
}

impl Keys {
    pub(crate) fn new(lock: &str) -> Result<Self, InvalidArgument> {
        check_name(lock)?;
        if lock.starts_with(NODE_PREFIX)
            || [FENCE, READERS, QUEUE, WAITERS]
                .iter()
                .any(|suffix| lock.ends_with(suffix))
        {
            return Err(InvalidArgument::ReservedName(lock.into()));
        }
        let with = |suffix: &str| format!("{lock}{suffix}");
        let (fence, readers, queue, waiters, released) = (
            with(FENCE),
            with(READERS),
            with(QUEUE),
            with(WAITERS),
            with(RELEASED),
        );
        Ok(Self(Arc::new(Names {
            lock: lock.into(),
            fence,
            readers,
            queue,
            waiters,
            released,
        })))
    }

    /// string: the owner; `shared` if several have it.
    pub(crate) fn lock(&self) -> &str {
        &self.0.lock
    }

    /// string: the highest token accepted for the name.
    pub(crate) fn fence(&self) -> &str {
        &self.0.fence
    }

    /// sorted set: those who share the lock, by the end of their leases.
    pub(crate) fn readers(&self) -> &str {
        &self.0.readers
    }

    /// sorted set: those who wait for the lock in fair mode, by their tickets.
    pub(crate) fn queue(&self) -> &str {
        &self.0.queue
    }

    /// sorted set: the same, by when they are taken for dead.
    pub(crate) fn waiters(&self) -> &str {
        &self.0.waiters
    }

    /// channel: the lock was given back.
    pub(crate) fn released(&self) -> &str {
        &self.0.released
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidArgument, Keys};

    #[test]
    fn a_name_is_any_short_text_that_is_no_key_of_ours() {
        for name in ["a", "item:42", "with spaces and ünïcode", &"x".repeat(1024)] {
            assert_eq!(Keys::new(name).unwrap().lock(), name);
        }
        assert!(matches!(Keys::new(""), Err(InvalidArgument::EmptyName)));
        assert!(matches!(
            Keys::new(&"x".repeat(10_000)),
            Err(InvalidArgument::NameTooLong { bytes: 10_000, .. })
        ));
        for reserved in [
            "a:fence",
            "a:readers",
            "a:queue",
            "a:waiters",
            "lock:node:generation",
        ] {
            assert!(
                matches!(Keys::new(reserved), Err(InvalidArgument::ReservedName(_))),
                "{reserved}"
            );
        }
    }
}
