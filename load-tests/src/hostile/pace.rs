//! The clock of a hostile client: its own at the service, and at a decoy the one that the rush is
//! given.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at};

use super::Field;

/// Bounds of a period that follows from a rate.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The clock of one client.
pub(super) struct Pace {
    field: Arc<Field>,
    /// Requests of each tick.
    at_once: u32,
    ticks: Interval,
    /// The ticks are those of the given rate.
    is_given: bool,
}

impl Pace {
    /// A clock for a client that opens a connection, or sends a request, at each tick.
    pub(super) fn new(field: &Arc<Field>, period: Duration, missed: MissedTickBehavior) -> Self {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(missed);
        Self {
            field: Arc::clone(field),
            at_once: 1,
            ticks,
            is_given: false,
        }
    }

    /// The same for a client that sends so many requests at each tick.
    pub(super) fn at_once(mut self, requests: u32) -> Self {
        self.at_once = requests;
        self
    }

    /// Waits for the next tick. Once the rush has begun, a given rate counts. Its ticks are made up
    /// for when they were missed, or the decoy would get fewer connections than the service had.
    pub(super) async fn tick(&mut self) {
        if !self.is_given
            && let Some(rate) = self.field.given_rate()
        {
            let period = period(self.field.clients, rate) * self.at_once;
            self.ticks = interval_at(Instant::now() + period, period);
            self.is_given = true;
        }
        self.ticks.tick().await;
    }
}

/// The time between two connections or requests of one client, of so many with this rate together.
fn period(clients: u32, rate: f64) -> Duration {
    let period = Duration::try_from_secs_f64(f64::from(clients) / rate);
    period.unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LONGEST, SHORTEST, period};

    #[test]
    fn clients_have_equal_shares_of_a_rate() {
        assert_eq!(period(20, 1000.0), Duration::from_millis(20));
        assert_eq!(period(1, 4.0), Duration::from_millis(250));
    }

    #[test]
    fn any_rate_has_a_period() {
        for rate in [0.0, -1.0, 1e-9, f64::NAN] {
            assert_eq!(period(20, rate), LONGEST, "{rate}");
        }
        assert_eq!(period(1, 1e12), SHORTEST);
        assert_eq!(period(1, f64::INFINITY), SHORTEST);
    }
}
