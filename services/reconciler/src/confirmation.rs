//! Anomalies of an item between rounds: an anomaly is repaired only after it has persisted
//! unchanged.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::SegmentKey;

use crate::anomaly::Anomaly;

/// The current anomaly of each segment.
#[derive(Default)]
pub(crate) struct Confirmation(HashMap<SegmentKey, Observed>);

struct Observed {
    anomaly: Anomaly,
    /// When this anomaly was first seen.
    since: Instant,
    reported: bool,
}

impl Observed {
    fn new(anomaly: &Anomaly, now: Instant) -> Self {
        Self {
            anomaly: anomaly.clone(),
            since: now,
            reported: false,
        }
    }
}

impl Confirmation {
    /// Notes the anomaly of a snapshot of `now`, and returns whether it has persisted for long
    /// enough.
    pub(crate) fn is_confirmed(
        &mut self,
        segment: &SegmentKey,
        anomaly: Option<&Anomaly>,
        confirmation_period: Duration,
        now: Instant,
    ) -> bool {
        let Some(anomaly) = anomaly else {
            self.0.remove(segment);
            return false;
        };
        let observed = self
            .0
            .entry(segment.clone())
            .or_insert_with(|| Observed::new(anomaly, now));
        if observed.anomaly != *anomaly {
            *observed = Observed::new(anomaly, now);
        }
        let persisted = now.saturating_duration_since(observed.since);
        persisted >= anomaly.confirmed_after(confirmation_period)
    }

    /// Whether the anomaly is due to be reported: it has not been reported, and has persisted for
    /// long enough.
    pub(crate) fn is_due_for_report(
        &self,
        segment: &SegmentKey,
        confirmation_period: Duration,
        now: Instant,
    ) -> bool {
        self.0.get(segment).is_some_and(|observed| {
            let persisted = now.saturating_duration_since(observed.since);
            !observed.reported && persisted >= observed.anomaly.reported_after(confirmation_period)
        })
    }

    /// Whether no segment has an anomaly.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the anomaly as reported. Call it only after the journal entry was written, so that a
    /// failed report is repeated.
    pub(crate) fn mark_reported(&mut self, segment: &SegmentKey) {
        if let Some(observed) = self.0.get_mut(segment) {
            observed.reported = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use domain::SegmentKey;

    use super::Confirmation;
    use crate::anomaly::Anomaly;

    const PERIOD: Duration = Duration::from_secs(60);

    /// Judges snapshots of one segment, at seconds that the test chooses.
    struct Judge {
        confirmation: Confirmation,
        segment: SegmentKey,
        begin: Instant,
    }

    impl Judge {
        fn new() -> Self {
            Self {
                confirmation: Confirmation::default(),
                segment: "vase:0".parse().unwrap(),
                begin: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        fn is_confirmed(&mut self, anomaly: Option<&Anomaly>, seconds: u64) -> bool {
            let now = self.at(seconds);
            self.confirmation
                .is_confirmed(&self.segment, anomaly, PERIOD, now)
        }

        fn is_due_for_report(&self, seconds: u64) -> bool {
            let now = self.at(seconds);
            self.confirmation
                .is_due_for_report(&self.segment, PERIOD, now)
        }

        fn mark_reported(&mut self) {
            self.confirmation.mark_reported(&self.segment);
        }
    }

    #[test]
    fn an_anomaly_is_confirmed_only_after_it_persisted_unchanged() {
        let mut judge = Judge::new();
        let drift = |units| Anomaly::Drift { units };
        assert!(!judge.is_confirmed(Some(&drift(1)), 0));
        assert!(
            !judge.is_confirmed(Some(&drift(2)), 60),
            "the anomaly changed"
        );
        assert!(!judge.is_confirmed(Some(&drift(2)), 119));
        assert!(judge.is_confirmed(Some(&drift(2)), 120));
        assert!(!judge.is_confirmed(None, 121));
        assert!(
            !judge.is_confirmed(Some(&drift(2)), 122),
            "it disappeared in between"
        );
    }

    #[test]
    fn a_diverged_history_is_confirmed_immediately() {
        let mut judge = Judge::new();
        assert!(judge.is_confirmed(Some(&Anomaly::Diverged), 0));
        assert!(
            judge.is_due_for_report(0) && judge.is_due_for_report(0),
            "it has not been reported yet"
        );
        judge.mark_reported();
        assert!(!judge.is_due_for_report(0));
    }

    #[test]
    fn drift_is_reported_immediately_and_wrong_settings_only_when_they_persist() {
        let mut judge = Judge::new();
        assert!(!judge.is_confirmed(Some(&Anomaly::Drift { units: 1 }), 0));
        assert!(judge.is_due_for_report(0));
        judge.mark_reported();
        assert!(!judge.is_due_for_report(0));
        let settings = Anomaly::Settings { epoch: 2 };
        assert!(!judge.is_confirmed(Some(&settings), 1));
        assert!(
            !judge.is_due_for_report(60),
            "an operator may be changing the item"
        );
        assert!(judge.is_confirmed(Some(&settings), 61));
        assert!(judge.is_due_for_report(61));
        judge.mark_reported();
        assert!(!judge.is_due_for_report(61));
    }
}
