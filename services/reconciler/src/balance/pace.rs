//! The pace at which an item sells, from one snapshot to the next.

use std::time::{Duration, Instant};

use audit::Snapshot;

/// How long the units must last, at the pace between the last two snapshots, for evening out to be
/// allowed. A transfer, two scripts and their recording, takes far less. Spillovers miss units that
/// are in transit when all others are sold.
const STOCK_DURATION_MIN: Duration = Duration::from_secs(2);

/// Time and available units of the last snapshot.
#[derive(Default)]
pub(crate) struct Pace(Option<(Instant, u64)>);

impl Pace {
    /// Notes a snapshot, and returns whether the available units will last. `false` if the pace is
    /// not known yet.
    pub(crate) fn lasts(&mut self, now: Instant, snapshots: &[Snapshot]) -> bool {
        self.lasts_with(
            now,
            snapshots
                .iter()
                .filter_map(|snapshot| snapshot.inspection.as_ref())
                .map(|inspection| inspection.available)
                .sum(),
        )
    }

    fn lasts_with(&mut self, now: Instant, left: u64) -> bool {
        let Some((then, had)) = self.0.replace((now, left)) else {
            return false;
        };
        let (sold, elapsed) = (
            had.saturating_sub(left),
            now.saturating_duration_since(then),
        );
        sold as f64 * STOCK_DURATION_MIN.as_secs_f64() <= left as f64 * elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Pace;

    #[test]
    fn units_last_if_the_pace_between_two_snapshots_leaves_some_after_two_seconds() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut at = |ms, left| pace.lasts_with(begin + Duration::from_millis(ms), left);
        assert!(!at(0, 10_000), "the pace is not known yet");
        assert!(at(100, 9_600), "4,000 a second: for 2.4 s");
        assert!(!at(200, 9_000), "6,000 a second: for 1.5 s");
        assert!(at(300, 9_000), "no unit is sold");
        assert!(at(400, 20_000), "units were added");
        assert!(!at(500, 100));
        assert!(!at(500, 99), "no time has passed");
    }
}
