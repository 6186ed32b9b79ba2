//! The number of requests that may still be sent, exact for any number of concurrent senders.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of requests, shared by all sessions.
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// Allows this many requests.
    pub fn new(requests: u64) -> Self {
        Self {
            left: AtomicU64::new(requests),
        }
    }

    /// Takes up to `wanted` requests; returns how many were left.
    pub fn take(&self, wanted: u64) -> u64 {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            });
        before.unwrap_or_else(|left| left).min(wanted)
    }

    /// Whether no request is left.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Allows no further request.
    pub fn close(&self) {
        self.left.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Budget;

    #[test]
    fn the_number_of_requests_is_exact_for_concurrent_senders() {
        let budget = Budget::new(10_001);
        let made: u64 = thread::scope(|scope| {
            let makers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut made = 0;
                        while !budget.is_spent() {
                            made += budget.take(2);
                        }
                        made
                    })
                })
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).sum()
        });
        assert_eq!(made, 10_001);
        assert_eq!(budget.take(1), 0);
    }
}
