//! What is remembered of an item between rounds: a difference is repaired only when it stands, unchanged.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::SegmentKey;

use crate::needs::Wrong;

/// Since when each segment has looked wrong in the way that it does.
#[derive(Default)]
pub(crate) struct Evidence(HashMap<SegmentKey, (Wrong, Instant)>);

impl Evidence {
    /// Takes in a look, and says whether what is wrong has stood for so long.
    pub(crate) fn stands(&mut self, segment: &SegmentKey, wrong: Option<&Wrong>, confirm_for: Duration) -> bool {
        let Some(wrong) = wrong else {
            self.0.remove(segment);
            return false;
        };
        let now = Instant::now();
        let (seen, since) = self.0.entry(segment.clone()).or_insert_with(|| (wrong.clone(), now));
        if seen != wrong {
            (*seen, *since) = (wrong.clone(), now);
        }
        now - *since >= wrong.patience(confirm_for)
    }

    /// Whether it is news: it was not wrong in this way at the look before.
    pub(crate) fn is_news(&self, segment: &SegmentKey, wrong: &Wrong) -> bool {
        self.0.get(segment).is_none_or(|(seen, _)| seen != wrong)
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
        assert!(!evidence.stands(&segment, Some(&drift(2)), wait), "it is another one");
        assert!(!evidence.stands(&segment, Some(&drift(2)), wait));
        std::thread::sleep(wait);
        assert!(evidence.stands(&segment, Some(&drift(2)), wait));
        assert!(!evidence.stands(&segment, None, wait));
        assert!(!evidence.stands(&segment, Some(&drift(2)), wait), "it went away in between");
    }

    #[test]
    fn another_history_is_not_waited_for() {
        let (mut evidence, segment) = (Evidence::default(), "vase:0".parse().unwrap());
        assert!(evidence.is_news(&segment, &Wrong::Diverged));
        assert!(evidence.stands(&segment, Some(&Wrong::Diverged), Duration::from_secs(60)));
        assert!(!evidence.is_news(&segment, &Wrong::Diverged));
    }
}
