//! What a step measures: each request's latency from the moment at which it was due, and how late the driver itself was.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::{answer::Answer, tally::micros};

/// Longer than any request is waited for.
const LATENCY_MOST: Duration = Duration::from_secs(120);

/// The moments of a request.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// When it should have begun.
    pub due: Instant,
    /// When the driver began it.
    pub started: Instant,
    /// When its answer was there.
    pub answered: Instant,
}

/// The measurements of a step. All histograms are in microseconds.
#[derive(Debug)]
pub struct Meter {
    /// From when it was due to the answer, for every request, also one that failed.
    pub latency: Histogram<u64>,
    /// From when it was due until the driver began it.
    pub lateness: Histogram<u64>,
    /// Orders that were placed.
    pub accepted: u64,
    /// Orders that were refused, as sold out or limited.
    pub refused: u64,
    /// Answers that were neither: unknown outcomes, broken connections, wrong answers.
    pub errors: u64,
    first_due: Option<Instant>,
    last_answer: Option<Instant>,
}

impl Meter {
    /// Nothing measured yet.
    pub fn new() -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, micros(LATENCY_MOST), 3);
        Ok(Self {
            latency: histogram()?,
            lateness: histogram()?,
            accepted: 0,
            refused: 0,
            errors: 0,
            first_due: None,
            last_answer: None,
        })
    }

    /// Takes in a request.
    pub fn enter(&mut self, moments: Moments, answer: &Answer) {
        let Moments {
            due,
            started,
            answered,
        } = moments;
        self.latency
            .saturating_record(micros(answered.saturating_duration_since(due)));
        self.lateness
            .saturating_record(micros(started.saturating_duration_since(due)));
        self.first_due = Some(self.first_due.map_or(due, |first| first.min(due)));
        self.last_answer = Some(self.last_answer.map_or(answered, |last| last.max(answered)));
        match answer {
            Answer::Held { .. } => self.accepted += 1,
            Answer::SoldOut | Answer::Limited => self.refused += 1,
            _ => self.errors += 1,
        }
    }

    /// From when the first request was due to the last answer.
    pub fn seconds(&self) -> f64 {
        match (self.first_due, self.last_answer) {
            (Some(first), Some(last)) => last.saturating_duration_since(first).as_secs_f64(),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use uuid::Uuid;

    use super::{Meter, Moments};
    use crate::answer::Answer;

    #[test]
    fn latency_counts_from_when_the_request_was_due() {
        let mut meter = Meter::new().unwrap();
        let due = Instant::now();
        let after = |ms| due + Duration::from_millis(ms);
        let held = Answer::Held {
            id: Uuid::nil(),
            replayed: false,
        };
        meter.enter(
            Moments {
                due,
                started: after(30),
                answered: after(40),
            },
            &held,
        );
        assert_eq!(
            (meter.latency.max() / 1_000, meter.lateness.max() / 1_000),
            (40, 30)
        );
        meter.enter(
            Moments {
                due: after(100),
                started: after(100),
                answered: after(2_000),
            },
            &Answer::SoldOut,
        );
        meter.enter(
            Moments {
                due: after(200),
                started: after(200),
                answered: after(201),
            },
            &Answer::Unknown("503".into()),
        );
        assert_eq!(
            (meter.accepted, meter.refused, meter.errors),
            (1, 1, 1),
            "a refusal is no order, and an error neither"
        );
        assert_eq!(meter.latency.len(), 3);
        assert!((meter.seconds() - 2.0).abs() < 1e-9);
    }
}
