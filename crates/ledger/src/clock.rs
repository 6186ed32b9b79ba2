//! The time by which acts go that cannot be undone.
//!
//! A process whose clock runs ahead would archive, delete or give up too early. So it takes the
//! earlier of its own time and that of a store, and does nothing while the two differ by seconds.

use std::time::Duration;

use jiff::Timestamp;

/// Servers that synchronize their clocks differ by milliseconds. Above this, one of them is wrong.
const DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// This process's clock and a store's differ so much that one of them is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process's clock is {ahead_seconds} seconds ahead of the store's (negative: behind), so nothing ends by \
     it: synchronize the clocks (NTP)"
)]
pub struct ClocksDiffer {
    /// Seconds by which this process's clock is ahead.
    pub ahead_seconds: i64,
}

/// The earlier of this process's time and a store's. An error if they differ by more than five
/// seconds.
pub fn earlier_time(own: Timestamp, store: Timestamp) -> Result<Timestamp, ClocksDiffer> {
    let difference = own.duration_since(store);
    if difference.unsigned_abs() > DIFFERENCE_MAX {
        let ahead_seconds = difference.as_secs();
        return Err(ClocksDiffer { ahead_seconds });
    }
    Ok(own.min(store))
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{ClocksDiffer, earlier_time};

    #[test]
    fn the_earlier_time_counts_until_the_clocks_differ_by_seconds() {
        let store = Timestamp::from_second(1_700_000_000).unwrap();
        let at = |ms| store + SignedDuration::from_millis(ms);
        assert_eq!(earlier_time(at(4_000), store), Ok(store));
        assert_eq!(earlier_time(at(-4_000), store), Ok(at(-4_000)));
        for (ms, ahead_seconds) in [(900_000, 900), (-900_000, -900), (5_001, 5), (-5_001, -5)] {
            let differ = Err(ClocksDiffer { ahead_seconds });
            assert_eq!(earlier_time(at(ms), store), differ, "{ms}");
        }
    }
}
