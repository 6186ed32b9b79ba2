//! Notices when a server's wall clock jumps.
//!
//! Redis ends leases by its wall clock, so a clock that jumps forward frees locks that are still
//! held. Every reply carries the server's time; here it is held against our monotonic clock. What a
//! reader could get wrong: we do not know when between request and reply the server looked at its
//! clock. Its distance from ours is therefore an interval, and a jump is one that cannot meet the
//! one before.

use std::time::Instant;

use crate::lease::drift;

/// Follows one server's wall clock.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    origin: Instant,
    last: Option<Sample>,
}

/// Server time minus our time, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    low: i64,
    high: i64,
    at: Instant,
}

impl ClockWatch {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            last: None,
        }
    }

    /// Takes a reply into account, and says by how many milliseconds the clock has jumped if it
    /// has.
    pub(crate) fn observe(
        &mut self,
        sent: Instant,
        received: Instant,
        server_us: i64,
    ) -> Option<i64> {
        let sample = Sample {
            low: server_us - self.us(received),
            high: server_us - self.us(sent),
            at: received,
        };
        let last = self.last.replace(sample)?;
        let allowed = drift(received.saturating_duration_since(last.at)).as_micros() as i64;
        let (low, high) = (last.low - allowed, last.high + allowed);
        if sample.low > high {
            return Some((sample.low - last.high) / 1000);
        }
        if sample.high < low {
            return Some((sample.high - last.low) / 1000);
        }
        // A reply that took long says little; what was known stays known.
        self.last = Some(Sample {
            low: sample.low.max(low),
            high: sample.high.min(high),
            at: received,
        });
        None
    }

    fn us(&self, at: Instant) -> i64 {
        at.saturating_duration_since(self.origin).as_micros() as i64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ClockWatch;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_jump_is_noticed_and_a_slow_reply_is_not_one() {
        let mut watch = ClockWatch::new();
        let start = watch.origin;
        let server = |at_ms: i64| 1_700_000_000_000_000 + at_ms * 1000;
        assert_eq!(
            watch.observe(start, start + ms(1), server(0)),
            None,
            "the first reply is all we know"
        );
        assert_eq!(
            watch.observe(start + ms(100), start + ms(900), server(880)),
            None,
            "read late"
        );
        assert_eq!(
            watch.observe(start + ms(1000), start + ms(1001), server(1000)),
            None,
            "a slow reply has not blurred it"
        );
        let jump = watch
            .observe(start + ms(1100), start + ms(1101), server(61_100))
            .unwrap();
        assert!((59_900..=60_100).contains(&jump), "{jump}");
        assert_eq!(
            watch.observe(start + ms(1200), start + ms(1201), server(61_200)),
            None,
            "from there on it ticks properly"
        );
        let jump = watch
            .observe(start + ms(1300), start + ms(1301), server(1300))
            .unwrap();
        assert!((-60_100..=-59_900).contains(&jump), "{jump}");
    }

    #[test]
    fn a_clock_may_be_adjusted_slowly() {
        let mut watch = ClockWatch::new();
        for second in 0..100 {
            let at = watch.origin + ms(second * 1000);
            // Half a percent fast.
            assert_eq!(
                watch.observe(at, at + ms(1), second as i64 * 1_005_000),
                None
            );
        }
    }
}
