//! What is remembered of an item between rounds: a difference is repaired only when it stands, unchanged.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::SegmentKey;

use crate::needs::Wrong;

/// What is wrong with each segment.
#[derive(Default)]
pub(crate) struct Evidence(HashMap<SegmentKey, Seen>);

struct Seen {
    wrong: Wrong,
    /// It has looked wrong in this way since then.
    since: Instant,
    is_told: bool,
}

impl Seen {
    fn new(wrong: &Wrong) -> Self {
        Self {
            wrong: wrong.clone(),
            since: Instant::now(),
            is_told: false,
        }
    }
}

impl Evidence {
    /// Takes in a look, and says whether what is wrong has stood for so long.
    pub(crate) fn stands(
        &mut self,
        segment: &SegmentKey,
        wrong: Option<&Wrong>,
        confirm_for: Duration,
    ) -> bool {
        let Some(wrong) = wrong else {
            self.0.remove(segment);
            return false;
        };
        let seen = self
            .0
            .entry(segment.clone())
            .or_insert_with(|| Seen::new(wrong));
        if seen.wrong != *wrong {
            *seen = Seen::new(wrong);
        }
        seen.since.elapsed() >= wrong.patience(confirm_for)
    }

    /// Whether what was taken in is to be told: it has not been, and is sure enough to be.
    pub(crate) fn is_news(&self, segment: &SegmentKey, confirm_for: Duration) -> bool {
        self.0.get(segment).is_some_and(|seen| {
            !seen.is_told && seen.since.elapsed() >= seen.wrong.told_after(confirm_for)
        })
    }

    /// It has been told. Not before that has gone well: what the journal could not be told is told again.
    pub(crate) fn is_told(&mut self, segment: &SegmentKey) {
        if let Some(seen) = self.0.get_mut(segment) {
            seen.is_told = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Evidence;
    use crate::needs::Wrong;

    #[test]
    fn a_difference_must_stand_unchanged() {
        let (mut evidence, segment) = (Evidence::default(), "vase:0".parse().unwrap());
        let wait = Duration::from_millis(30);
        let drift = |units| Wrong::Drift { units };
        assert!(!evidence.stands(&segment, Some(&drift(1)), wait));
        std::thread::sleep(wait);
        assert!(
            !evidence.stands(&segment, Some(&drift(2)), wait),
            "it is another one"
        );
        assert!(!evidence.stands(&segment, Some(&drift(2)), wait));
        std::thread::sleep(wait);
        assert!(evidence.stands(&segment, Some(&drift(2)), wait));
        assert!(!evidence.stands(&segment, None, wait));
        assert!(
            !evidence.stands(&segment, Some(&drift(2)), wait),
            "it went away in between"
        );
    }

    #[test]
    fn another_history_is_not_waited_for() {
        let (mut evidence, segment) = (Evidence::default(), "vase:0".parse().unwrap());
        let minute = Duration::from_secs(60);
        assert!(evidence.stands(&segment, Some(&Wrong::Diverged), minute));
        assert!(
            evidence.is_news(&segment, minute) && evidence.is_news(&segment, minute),
            "it has not been told yet"
        );
        evidence.is_told(&segment);
        assert!(!evidence.is_news(&segment, minute));
    }

    #[test]
    fn a_difference_is_told_at_once_and_settings_only_when_they_stand() {
        let (mut evidence, segment) = (Evidence::default(), "vase:0".parse().unwrap());
        let wait = Duration::from_millis(30);
        assert!(!evidence.stands(&segment, Some(&Wrong::Drift { units: 1 }), wait));
        assert!(evidence.is_news(&segment, wait));
        evidence.is_told(&segment);
        assert!(!evidence.is_news(&segment, wait));
        let settings = Wrong::Settings { epoch: 2 };
        assert!(!evidence.stands(&segment, Some(&settings), wait));
        assert!(
            !evidence.is_news(&segment, wait),
            "somebody may be changing the item just now"
        );
        std::thread::sleep(wait);
        assert!(evidence.stands(&segment, Some(&settings), wait));
        assert!(evidence.is_news(&segment, wait));
        evidence.is_told(&segment);
        assert!(!evidence.is_news(&segment, wait));
    }
}
