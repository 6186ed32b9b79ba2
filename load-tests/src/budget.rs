//! How many requests may still be made, so that their number is exact however many make them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number of requests, shared by everybody who makes them.
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

    /// Takes as many as are left of those that are wanted.
    pub fn take(&self, wanted: u64) -> u64 {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            });
        before.unwrap_or_else(|left| left).min(wanted)
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Allows nothing more.
    pub fn close(&self) {
        self.left.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Budget;

    #[test]
    fn the_number_of_requests_is_exact_whoever_makes_them() {
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
