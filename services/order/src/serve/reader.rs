//! How a client takes what is sent to it.
//!
//! A client that takes a byte now and then would keep its connection for ever if each byte gave it
//! the whole time again. So a byte gives back only the time that it takes at the minimum rate. The
//! time passes only while the connection has something to write and cannot: a stream that waits for
//! an event uses none.

use std::sync::atomic::{AtomicU64, Ordering};

use super::arriving::time_of;

/// Value of [`Reader::blocked_since_ms`] while the client reads what is sent to it.
const FREE: u64 = u64::MAX;

/// The client of a connection, as a reader.
pub(super) struct Reader {
    /// Since when it has not taken what was sent to it, or [`FREE`]. The time that it used before
    /// counts as if it came right before.
    blocked_since_ms: AtomicU64,
    /// Milliseconds of its time that it has used, while nothing waits for it.
    used_ms: AtomicU64,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            blocked_since_ms: AtomicU64::new(FREE),
            used_ms: AtomicU64::new(0),
        }
    }
}

impl Reader {
    /// Since when a write waits for the client, or a little earlier: see the field.
    pub(super) fn blocked_since_ms(&self) -> Option<u64> {
        let since = self.blocked_since_ms.load(Ordering::Relaxed);
        (since != FREE).then_some(since)
    }

    /// Notes that a write waits for the client. Returns whether that is new.
    pub(super) fn blocked(&self, now_ms: impl FnOnce() -> u64) -> bool {
        if self.blocked_since_ms().is_some() {
            return false;
        }
        let used = self.used_ms.load(Ordering::Relaxed);
        let since = now_ms().saturating_sub(used);
        self.blocked_since_ms.store(since, Ordering::Relaxed);
        true
    }

    /// Notes that the client has made room for so many bytes. Returns whether a write waited for
    /// that.
    pub(super) fn took(&self, bytes: usize, rate: u64, now_ms: impl FnOnce() -> u64) -> bool {
        let blocked = self.blocked_since_ms();
        let used = match blocked {
            Some(since) => now_ms().saturating_sub(since),
            None => self.used_ms.load(Ordering::Relaxed),
        };
        if used > 0 || blocked.is_some() {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            let earned = time_of(bytes, rate).unwrap_or(u64::MAX);
            let used = used.saturating_sub(earned);
            self.used_ms.store(used, Ordering::Relaxed);
            self.blocked_since_ms.store(FREE, Ordering::Relaxed);
        }
        blocked.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;

    /// Blocked from one time to the other, after which so many bytes are taken.
    fn drip(reader: &Reader, from: u64, to: u64, bytes: usize, rate: u64) {
        assert!(reader.blocked(|| from));
        assert!(reader.took(bytes, rate, || to));
    }

    #[test]
    fn a_client_that_takes_little_uses_up_its_time() {
        let reader = Reader::default();
        for second in 1..=8 {
            drip(&reader, 1000 * second, 1000 * second + 1000, 1, 500);
        }
        assert!(reader.blocked(|| 20_000));
        // 8 s, of which 8 bytes gave 2 ms each back.
        assert_eq!(reader.blocked_since_ms(), Some(20_000 - 8000 + 16));
    }

    #[test]
    fn a_client_that_takes_enough_has_its_full_time_again() {
        let reader = Reader::default();
        for second in 1..=8 {
            drip(&reader, 1000 * second, 1000 * second + 1000, 500, 500);
        }
        assert!(reader.blocked(|| 20_000));
        assert_eq!(reader.blocked_since_ms(), Some(20_000));
    }

    #[test]
    fn what_a_client_took_before_buys_no_time_for_later() {
        let reader = Reader::default();
        assert!(!reader.took(1_000_000_000, 500, || 0), "nothing waited");
        drip(&reader, 1000, 3000, 1, 500);
        assert!(reader.blocked(|| 4000));
        assert_eq!(reader.blocked_since_ms(), Some(4000 - 1998));
    }

    #[test]
    fn the_time_passes_only_while_a_write_waits() {
        let reader = Reader::default();
        drip(&reader, 1000, 2000, 0, 500);
        assert!(reader.blocked(|| 3_600_000));
        assert_eq!(reader.blocked_since_ms(), Some(3_600_000 - 1000));
        assert!(!reader.blocked(|| unreachable!("it waits already")));
    }

    #[test]
    fn without_a_rate_each_byte_gives_the_whole_time() {
        let reader = Reader::default();
        drip(&reader, 1000, 9000, 1, 0);
        assert!(reader.blocked(|| 9000));
        assert_eq!(reader.blocked_since_ms(), Some(9000));
    }
}
