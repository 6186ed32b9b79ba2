//! The time by which holds end.
//!
//! Redis sets the end of a hold by its own clock. A reconciler whose clock runs ahead would end holds
//! while their buyers are paying. So it compares the two clocks, uses the earlier time, and ends
//! nothing while they differ by seconds.

use std::time::Duration;

use domain::SafetyCheck;
use jiff::Timestamp;

use crate::{Reconciler, ReconcilerError};

/// Servers that synchronize their clocks differ by milliseconds. Above this, one of them is wrong.
const DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// The earlier of this process's time and Redis's. An error if they differ too much.
pub(crate) async fn now(reconciler: &Reconciler) -> Result<Timestamp, ReconcilerError> {
    let own = (reconciler.settings.clock)();
    if !SafetyCheck::ClockCheck.is_enabled() {
        return Ok(own);
    }
    let store = reconciler.stock.time().await?;
    let difference = own.duration_since(store);
    metrics::gauge!("stockade_clock_difference_seconds").set(difference.as_secs_f64());
    earlier(own, store)
}

fn earlier(own: Timestamp, store: Timestamp) -> Result<Timestamp, ReconcilerError> {
    let difference = own.duration_since(store);
    if difference.unsigned_abs() > DIFFERENCE_MAX {
        return Err(ReconcilerError::Clock {
            ahead_seconds: difference.as_secs(),
        });
    }
    Ok(own.min(store))
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::earlier;
    use crate::ReconcilerError;

    #[test]
    fn the_earlier_time_counts_until_the_clocks_differ_by_seconds() {
        let store = Timestamp::from_second(1_700_000_000).unwrap();
        let at = |ms| store + SignedDuration::from_millis(ms);
        assert_eq!(earlier(at(4_000), store).unwrap(), store);
        assert_eq!(earlier(at(-4_000), store).unwrap(), at(-4_000));
        for (ms, expected) in [(900_000, 900), (-900_000, -900), (5_001, 5), (-5_001, -5)] {
            assert!(
                matches!(
                    earlier(at(ms), store),
                    Err(ReconcilerError::Clock { ahead_seconds }) if ahead_seconds == expected
                ),
                "{ms}"
            );
        }
    }
}
