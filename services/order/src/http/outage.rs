//! Tells an outage once, however many orders fail in it.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use crate::engine::{EngineError, Placed};

/// How long no order may have failed before it is over. Between failures, some orders may well succeed.
const QUIET: Duration = Duration::from_secs(10);

/// Whether orders are failing.
#[derive(Default)]
pub(crate) struct Outage {
    /// When an order failed last, in milliseconds since 1970; 0 while all is well.
    last_failure: AtomicI64,
}

impl Outage {
    /// Takes note of an order, and logs when this changes whether orders are failing.
    pub(crate) fn note(&self, placed: &Result<Placed, EngineError>) {
        let now = || jiff::Timestamp::now().as_millisecond();
        match placed {
            Err(error) if self.begins(now()) => {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "orders are failing: their outcome is unknown"
                );
            }
            // Other answers may come without asking a store.
            Ok(Placed::Order { .. }) if self.is_on() && self.ends(now()) => {
                tracing::info!("orders succeed again")
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
        let quiet = Duration::from_millis(u64::try_from(now - last).unwrap_or_default()) >= QUIET;
        // A failure or another success may have come in between: only one of them tells.
        last != 0
            && quiet
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
    fn an_outage_is_told_when_it_begins_and_when_it_has_been_quiet() {
        let outage = Outage::default();
        // When, whether the order failed, and whether that is news.
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
        for (now, failed, news) in table {
            let told = if failed {
                outage.begins(now)
            } else {
                outage.ends(now)
            };
            assert_eq!(told, news, "at {now}");
        }
    }
}
