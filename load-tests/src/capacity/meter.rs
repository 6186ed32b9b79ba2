//! Measures a step: the latency of each request from its scheduled time, and the lateness of the
//! driver itself.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::{history::micros, outcome::Outcome};

/// Longer than the timeout of any request.
const LATENCY_MAX: Duration = Duration::from_secs(120);

/// The moments of a request.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// When the request was scheduled.
    pub due: Instant,
    /// When the driver started it.
    pub started: Instant,
    /// When it had completed.
    pub completed: Instant,
}

/// The measurements of a step. All histograms are in microseconds.
#[derive(Debug)]
pub struct Meter {
    /// Time from schedule to completion of every request, including failed ones.
    pub latency: Histogram<u64>,
    /// Time from schedule to start of every request.
    pub lateness: Histogram<u64>,
    /// Orders that were placed.
    pub accepted: u64,
    /// Orders that were refused, as sold out or limited.
    pub refused: u64,
    /// All other outcomes: unknown ones, broken connections, and violations of the API.
    pub errors: u64,
    first_due: Option<Instant>,
    last_completed: Option<Instant>,
}

impl Meter {
    /// A meter without measurements.
    pub fn new() -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, micros(LATENCY_MAX), 3);
        Ok(Self {
            latency: histogram()?,
            lateness: histogram()?,
            accepted: 0,
            refused: 0,
            errors: 0,
            first_due: None,
            last_completed: None,
        })
    }

    /// Records a request.
    pub fn record(&mut self, moments: Moments, outcome: &Outcome) {
        let Moments {
            due,
            started,
            completed,
        } = moments;
        self.latency
            .saturating_record(micros(completed.saturating_duration_since(due)));
        self.lateness
            .saturating_record(micros(started.saturating_duration_since(due)));
        self.first_due = Some(self.first_due.map_or(due, |first| first.min(due)));
        self.last_completed = Some(
            self.last_completed
                .map_or(completed, |last| last.max(completed)),
        );
        match outcome {
            Outcome::Held { .. } => self.accepted += 1,
            Outcome::SoldOut | Outcome::Limited => self.refused += 1,
            _ => self.errors += 1,
        }
    }

    /// Seconds from the schedule of the first request to the last completion.
    pub fn seconds(&self) -> f64 {
        match (self.first_due, self.last_completed) {
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
    use crate::outcome::Outcome;

    #[test]
    fn latency_counts_from_the_scheduled_time() {
        let mut meter = Meter::new().unwrap();
        let due = Instant::now();
        let after = |ms| due + Duration::from_millis(ms);
        let held = Outcome::Held {
            id: Uuid::nil(),
            replayed: false,
        };
        meter.record(
            Moments {
                due,
                started: after(30),
                completed: after(40),
            },
            &held,
        );
        assert_eq!(
            (meter.latency.max() / 1_000, meter.lateness.max() / 1_000),
            (40, 30)
        );
        meter.record(
            Moments {
                due: after(100),
                started: after(100),
                completed: after(2_000),
            },
            &Outcome::SoldOut,
        );
        meter.record(
            Moments {
                due: after(200),
                started: after(200),
                completed: after(201),
            },
            &Outcome::Unknown("503".into()),
        );
        assert_eq!(
            (meter.accepted, meter.refused, meter.errors),
            (1, 1, 1),
            "neither a refusal nor an error is an order"
        );
        assert_eq!(meter.latency.len(), 3);
        assert!((meter.seconds() - 2.0).abs() < 1e-9);
    }
}
