//! How fast an item sells, from one look to the next.

use std::time::{Duration, Instant};

use audit::Look;

/// How long the units must last, at the pace of the last looks, for evening out to be worth it. A transfer is two scripts and their recording, well
/// below this; what is on its way when all else is sold is missed by walks.
const LASTS: Duration = Duration::from_secs(2);

/// What the last look saw.
#[derive(Default)]
pub(crate) struct Pace(Option<(Instant, u64)>);

impl Pace {
    /// Takes in a look, and says whether what is left will last. Unknown is no.
    pub(crate) fn lasts(&mut self, now: Instant, looks: &[Look]) -> bool {
        self.lasts_with(
            now,
            looks
                .iter()
                .filter_map(|look| look.inspection.as_ref())
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
        sold as f64 * LASTS.as_secs_f64() <= left as f64 * elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Pace;

    #[test]
    fn what_is_left_lasts_if_it_does_so_at_the_pace_of_the_last_looks() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut at = |ms, left| pace.lasts_with(begin + Duration::from_millis(ms), left);
        assert!(!at(0, 10_000), "nothing is known yet");
        assert!(at(100, 9_600), "4,000 a second: for 2.4 s");
        assert!(!at(200, 9_000), "6,000 a second: for 1.5 s");
        assert!(at(300, 9_000), "nobody buys");
        assert!(at(400, 20_000), "units were added");
        assert!(!at(500, 100));
        assert!(!at(500, 99), "no time has passed");
    }
}
