//! When a connection was last proven to lead to the wrong server.
//!
//! An address may name another server now: after a failover, a standby that has become the primary.
//! The connections of before stay where they are, and a busy one is never idle long enough to be
//! asked. So one answer that only a wrong server gives drops all connections that are older than
//! it.
//!
//! The doubt counts for the whole process and not for one pool. Every pool of a process leads to
//! the same database, and every error passes `LedgerError::from`, so no method can forget to tell.
//! A doubt too many costs each connection one reconnection.

use std::{
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

/// The age was measured a moment before this question, and a connection that is as old as the doubt
/// must not seem younger.
const MARGIN: Duration = Duration::from_millis(10);

static SINCE: RwLock<Option<Instant>> = RwLock::new(None);

/// From now on, no connection that exists is used again.
pub(crate) fn raise() {
    *SINCE.write().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Whether a connection of this age existed when the doubt arose.
pub(super) fn applies_to(age: Duration) -> bool {
    let since = *SINCE.read().unwrap_or_else(PoisonError::into_inner);
    since.is_some_and(|since| age + MARGIN >= since.elapsed())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MARGIN, applies_to, raise};

    #[test]
    fn a_doubt_is_about_the_connections_that_exist() {
        let connected = Instant::now();
        raise();
        std::thread::sleep(MARGIN * 2);
        assert!(applies_to(connected.elapsed()) && applies_to(Duration::from_secs(3600)));
        assert!(
            !applies_to(Duration::ZERO),
            "it was made after the doubt arose"
        );
    }
}
