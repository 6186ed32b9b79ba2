//! Logs the begin and the end of an outage once each, not every failed order.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use crate::engine::{EngineError, Placed};

/// The outage has ended if no order failed for this long. Single orders may succeed during an
/// outage.
const RECOVERY_PERIOD: Duration = Duration::from_secs(10);

/// Whether orders are failing.
#[derive(Default)]
pub(crate) struct Outage {
    /// When an order failed last, in milliseconds since 1970; 0 if there is no outage.
    last_failure: AtomicI64,
}

impl Outage {
    /// Notes the result of an order, and logs if an outage begins or ends with it.
    pub(crate) fn note(&self, placed: &Result<Placed, EngineError>) {
        let now = || jiff::Timestamp::now().as_millisecond();
        match placed {
            Err(error) if self.begins(now()) => {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "orders are failing"
                );
            }
            // Other results may not need a store.
            Ok(Placed::Order { .. }) if self.is_on() && self.ends(now()) => {
                tracing::info!("orders recovered")
            }
            _ => {}
        }
    }

    fn is_on(&self) -> bool {
        self.last_failure.load(Ordering::Relaxed) != 0
    }

    fn begins(&self, now: i64) -> bool {
        self.last_failure.swap(now, Ordering::Relaxed) == 0
    }

    fn ends(&self, now: i64) -> bool {
        let last = self.last_failure.load(Ordering::Relaxed);
        let has_recovered =
            Duration::from_millis(u64::try_from(now - last).unwrap_or_default()) >= RECOVERY_PERIOD;
        // A concurrent failure or success may have changed the value: only one caller logs the end.
        last != 0
            && has_recovered
            && self
                .last_failure
                .compare_exchange(last, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Outage;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_when_it_has_ended() {
        let outage = Outage::default();
        // Time, whether the order failed, and whether it begins or ends the outage.
        let table = [
            (1_000, false, false),
            (2_000, true, true),
            (2_001, true, false),
            (2_002, false, false),
            (9_000, true, false),
            (18_999, false, false),
            (19_000, false, true),
            (19_001, false, false),
            (19_002, true, true),
        ];
        for (now, failed, expected) in table {
            let logged = if failed {
                outage.begins(now)
            } else {
                outage.ends(now)
            };
            assert_eq!(logged, expected, "at {now}");
        }
    }
}
