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
    fn new(anomaly: &Anomaly) -> Self {
        Self {
            anomaly: anomaly.clone(),
            since: Instant::now(),
            reported: false,
        }
    }
}

impl Confirmation {
    /// Notes the anomaly of a new snapshot, and returns whether it has persisted for long enough.
    pub(crate) fn is_confirmed(
        &mut self,
        segment: &SegmentKey,
        anomaly: Option<&Anomaly>,
        confirmation_period: Duration,
    ) -> bool {
        let Some(anomaly) = anomaly else {
            self.0.remove(segment);
            return false;
        };
        let observed = self
            .0
            .entry(segment.clone())
            .or_insert_with(|| Observed::new(anomaly));
        if observed.anomaly != *anomaly {
            *observed = Observed::new(anomaly);
        }
        observed.since.elapsed() >= anomaly.confirmed_after(confirmation_period)
    }

    /// Whether the anomaly is due to be reported: it has not been reported, and has persisted for
    /// long enough.
    pub(crate) fn is_due_for_report(
        &self,
        segment: &SegmentKey,
        confirmation_period: Duration,
    ) -> bool {
        self.0.get(segment).is_some_and(|observed| {
            !observed.reported
                && observed.since.elapsed() >= observed.anomaly.reported_after(confirmation_period)
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
    use std::time::Duration;

    use super::Confirmation;
    use crate::anomaly::Anomaly;

    #[test]
    fn an_anomaly_is_confirmed_only_after_it_persisted_unchanged() {
        let (mut confirmation, segment) = (Confirmation::default(), "vase:0".parse().unwrap());
        let wait = Duration::from_millis(30);
        let drift = |units| Anomaly::Drift { units };
        assert!(!confirmation.is_confirmed(&segment, Some(&drift(1)), wait));
        std::thread::sleep(wait);
        assert!(
            !confirmation.is_confirmed(&segment, Some(&drift(2)), wait),
            "the anomaly changed"
        );
        assert!(!confirmation.is_confirmed(&segment, Some(&drift(2)), wait));
        std::thread::sleep(wait);
        assert!(confirmation.is_confirmed(&segment, Some(&drift(2)), wait));
        assert!(!confirmation.is_confirmed(&segment, None, wait));
        assert!(
            !confirmation.is_confirmed(&segment, Some(&drift(2)), wait),
            "it disappeared in between"
        );
    }

    #[test]
    fn a_diverged_history_is_confirmed_immediately() {
        let (mut confirmation, segment) = (Confirmation::default(), "vase:0".parse().unwrap());
        let minute = Duration::from_secs(60);
        assert!(confirmation.is_confirmed(&segment, Some(&Anomaly::Diverged), minute));
        assert!(
            confirmation.is_due_for_report(&segment, minute)
                && confirmation.is_due_for_report(&segment, minute),
            "it has not been reported yet"
        );
        confirmation.mark_reported(&segment);
        assert!(!confirmation.is_due_for_report(&segment, minute));
    }

    #[test]
    fn drift_is_reported_immediately_and_wrong_settings_only_when_they_persist() {
        let (mut confirmation, segment) = (Confirmation::default(), "vase:0".parse().unwrap());
        let wait = Duration::from_millis(30);
        assert!(!confirmation.is_confirmed(&segment, Some(&Anomaly::Drift { units: 1 }), wait));
        assert!(confirmation.is_due_for_report(&segment, wait));
        confirmation.mark_reported(&segment);
        assert!(!confirmation.is_due_for_report(&segment, wait));
        let settings = Anomaly::Settings { epoch: 2 };
        assert!(!confirmation.is_confirmed(&segment, Some(&settings), wait));
        assert!(
            !confirmation.is_due_for_report(&segment, wait),
            "an operator may be changing the item"
        );
        std::thread::sleep(wait);
        assert!(confirmation.is_confirmed(&segment, Some(&settings), wait));
        assert!(confirmation.is_due_for_report(&segment, wait));
        confirmation.mark_reported(&segment);
        assert!(!confirmation.is_due_for_report(&segment, wait));
    }
}
