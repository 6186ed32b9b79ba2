//! When a failed event is sent again.

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt as _;

use crate::PublisherSettings;

/// When to send again after `failures` failed attempts in a row, the first of them at
/// `failing_since`. `None`: give up.
pub(crate) fn next_attempt(
    settings: &PublisherSettings,
    failures: u32,
    failing_since: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let failing_for = Duration::try_from(now.duration_since(failing_since)).unwrap_or_default();
    if failing_for >= settings.give_up_after {
        return None;
    }
    // Receivers that failed together are not to be asked together.
    let spread = rand::rng().random_range(0.8..=1.2);
    let pause = pause(settings, failures).mul_f64(spread);
    now.checked_add(pause).ok()
}

fn pause(settings: &PublisherSettings, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    let pause = settings.retry_pause.checked_mul(factor);
    pause
        .unwrap_or(settings.retry_pause_max)
        .min(settings.retry_pause_max)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{next_attempt, pause};
    use crate::PublisherSettings;

    #[test]
    fn pauses_double_up_to_their_bound() {
        let settings = PublisherSettings::default();
        let pauses = [1, 2, 3, 4, 10, 11, 40, u32::MAX].map(|failures| pause(&settings, failures));
        let seconds = [5, 10, 20, 40, 2560, 3600, 3600, 3600].map(Duration::from_secs);
        assert_eq!(pauses, seconds);
    }

    #[test]
    fn after_three_days_of_failures_it_gives_up() {
        let settings = PublisherSettings::default();
        let began = Timestamp::from_second(1_700_000_000).unwrap();
        let at = |hours: u64| began + Duration::from_secs(hours * 3600);
        let next = next_attempt(&settings, 90, began, at(71)).unwrap();
        assert!(next > at(71) && next < at(73));
        assert_eq!(next_attempt(&settings, 90, began, at(72)), None);
        // A clock that was set back.
        assert!(next_attempt(&settings, 1, at(5), began).is_some());
    }
}
