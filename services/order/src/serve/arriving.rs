//! The body of a request, as far as it has come.
//!
//! Anyone can send a head and half a body. A request that waits for the rest has done nothing yet,
//! so its connection makes room for others as a silent one does, and its body has a minimum rate.
//! Once the body is whole, or is no longer wanted, the request is under work and neither applies.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// The body of the request that a connection has under way.
#[derive(Default)]
pub(super) struct Arriving {
    /// When the head of the request was complete, in milliseconds after the listener began.
    since_ms: AtomicU64,
    /// Bytes that have come.
    bytes: AtomicU64,
    /// It was not read to its end, and the request has not given it up.
    is_open: AtomicBool,
    /// The request asks for the next part.
    is_wanted: AtomicBool,
    /// A read has found none.
    is_missing: AtomicBool,
    /// It has come too slowly: the request is to be refused.
    is_late: AtomicBool,
}

impl Arriving {
    /// A request with a body begins.
    pub(super) fn begin(&self, now_ms: u64) {
        self.since_ms.store(now_ms, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.ended();
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Notes that the request asks for the next part.
    pub(super) fn wanted(&self) {
        set(&self.is_wanted);
    }

    /// Notes that the client has sent nothing more.
    pub(super) fn waited(&self) {
        // Between two requests, and after the body, nothing is missing.
        if self.is_wanted.load(Ordering::Relaxed) {
            set(&self.is_missing);
        }
    }

    /// Notes that a part of so many bytes has come.
    pub(super) fn came(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the body is whole, or that the request needs no more of it.
    pub(super) fn ended(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        self.is_wanted.store(false, Ordering::Relaxed);
        self.is_missing.store(false, Ordering::Relaxed);
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Whether the request is not under work yet, because it has still to read its body.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether the request waits for the client.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) && self.is_missing.load(Ordering::Relaxed)
    }

    /// When the head of the request was complete, in milliseconds after the listener began.
    pub(super) fn since_ms(&self) -> u64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    /// How long the body may take, with what has come of it: `grace`, and a second for each `rate`
    /// bytes. `None`: the request does not wait for it, was told that it is late, or there is no
    /// rate.
    pub(super) fn time(&self, grace: Duration, rate: u64) -> Option<Duration> {
        if !self.is_awaited() || self.is_late() {
            return None;
        }
        let ms = time_of(self.bytes.load(Ordering::Relaxed), rate)?;
        Some(grace + Duration::from_millis(ms))
    }

    /// Notes that the body has come too slowly.
    pub(super) fn late(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Whether the request is to be refused because its body has come too slowly.
    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }
}

/// Most often it is set: then the line stays shared between the processors.
fn set(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

/// The milliseconds that so many bytes take at `rate` bytes per second. `None`: there is no rate.
pub(super) fn time_of(bytes: u64, rate: u64) -> Option<u64> {
    bytes.saturating_mul(1000).checked_div(rate)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Arriving;

    const GRACE: Duration = Duration::from_secs(5);

    #[test]
    fn a_body_is_awaited_only_while_it_is_wanted_and_missing() {
        let body = Arriving::default();
        body.begin(7);
        body.waited();
        assert!(!body.is_awaited(), "the request has not asked for it");
        assert!(body.is_open());
        body.wanted();
        assert!(!body.is_awaited(), "it may lie in the buffer");
        body.waited();
        assert!(body.is_awaited() && body.since_ms() == 7);
        body.ended();
        body.waited();
        assert!(!body.is_awaited() && !body.is_open(), "it is under work");
    }

    #[test]
    fn each_part_of_a_body_gives_it_the_time_of_the_minimum_rate() {
        let body = Arriving::default();
        body.begin(0);
        body.wanted();
        body.waited();
        assert_eq!(body.time(GRACE, 500), Some(GRACE));
        body.came(1000);
        body.came(250);
        let longer = GRACE + Duration::from_millis(2500);
        assert_eq!(body.time(GRACE, 500), Some(longer));
        assert_eq!(body.time(GRACE, 0), None, "no rate is demanded");
        body.late();
        assert_eq!(body.time(GRACE, 500), None, "it is refused once");
        body.begin(9);
        assert!(!body.is_late(), "the next request begins anew");
    }
}
