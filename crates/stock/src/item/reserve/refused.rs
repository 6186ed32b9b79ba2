//! Reservations that Redis refuses, so that nothing was taken.
//!
//! An attempt whose reply was lost may have taken units, so it is repeated until the time limit,
//! and ends as "outcome unknown". An attempt that was refused before it ran has taken nothing. If
//! that holds for every attempt of a request, its buyer hears so, and soon: a server without memory
//! will still have none in five seconds, and every waiting order occupies a connection.

use std::time::Duration;

use tokio::time::Instant;

use crate::StockError;

/// Time for which a request that a server refuses is repeated. A replica that was just promoted, or
/// a connection that leads to the wrong server, is right again within it.
const REFUSED_MAX: Duration = Duration::from_secs(1);

/// At most one part of so many of a request's time is left unused, because another attempt to connect
/// would not end in it.
const LEFT_UNUSED_PART: u32 = 8;

/// What the failed attempts of a request have in common.
#[derive(Debug)]
pub(super) enum Refused {
    /// None of them ran. The first began at `since`, the last failed at `failed`, so long after the
    /// one before it.
    All {
        since: Instant,
        failed: Instant,
        took: Duration,
    },
    /// One may have run.
    NotAll,
}

impl Default for Refused {
    fn default() -> Self {
        let since = Instant::now();
        Self::All {
            since,
            failed: since,
            took: Duration::ZERO,
        }
    }
}

impl Refused {
    /// Notes that an attempt has failed now. Once home has replied, the spillover that it recorded
    /// may end with units for the order, whatever came of this attempt.
    pub(super) fn note(&mut self, error: &StockError, home_replied: bool, now: Instant) {
        match self {
            Self::All { failed, took, .. } if !home_replied && error.proves_unchanged() => {
                *took = now.duration_since(*failed);
                *failed = now;
            }
            _ => *self = Self::NotAll,
        }
    }

    /// The error of a request whose last attempt failed for good. That this attempt changed nothing
    /// says nothing of those before it. A missing segment stays what it is: the caller reads the
    /// ledger.
    pub(super) fn end(&self, error: StockError, tried_for: Duration) -> StockError {
        match self {
            Self::NotAll if error.proves_unchanged() => StockError::OutcomeUnknown(tried_for),
            _ => error,
        }
    }

    /// Whether no further attempt is worth its time, and the request can end with `error`, which
    /// says that nothing ran. `last` is the time for the last attempt.
    pub(super) fn is_final(&self, error: &StockError, now: Instant, last: Instant) -> bool {
        let Self::All { since, .. } = self else {
            return false;
        };
        now >= last || error.is_refusal() && now.duration_since(*since) >= REFUSED_MAX
    }

    /// How long before the end of a request of `within` the attempt after `error` begins at the
    /// latest. One that the time limit surprises may still be sent, so the request would end as
    /// "outcome unknown", although each attempt before it has proved that nothing ran. An attempt
    /// to connect takes several pauses, and may take twice as long as the one before it.
    pub(super) fn time_for_another(
        &self,
        error: &StockError,
        pause: Duration,
        within: Duration,
    ) -> Duration {
        match self {
            Self::All { took, .. } if error.found_no_connection() => {
                pause.max((*took * 2).min(within / LEFT_UNUSED_PART))
            }
            _ => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use domain::SegmentKey;
    use redis::{RedisError, Value};
    use tokio::time::Instant;

    use super::{REFUSED_MAX, Refused};
    use crate::StockError;

    fn oom() -> StockError {
        let reply = redis::parse_redis_value(b"-OOM command not allowed\r\n");
        let reply: Result<Value, RedisError> = reply.unwrap().extract_error();
        reply.unwrap_err().into()
    }

    fn lost() -> StockError {
        StockError::OutcomeUnknown(Duration::ZERO)
    }

    fn since(refused: &Refused) -> Instant {
        match refused {
            Refused::All { since, .. } => *since,
            Refused::NotAll => panic!("an attempt may have run"),
        }
    }

    #[test]
    fn a_request_that_was_always_refused_ends_soon() {
        let mut refused = Refused::default();
        let begun = since(&refused);
        let last = begun + REFUSED_MAX * 5;
        refused.note(&oom(), false, begun);
        assert!(!refused.is_final(&oom(), begun, last), "once more");
        assert!(refused.is_final(&oom(), begun + REFUSED_MAX, last));
    }

    #[test]
    fn a_server_that_is_away_is_waited_for_until_the_last_attempt() {
        let mut refused = Refused::default();
        let begun = since(&refused);
        let last = begun + REFUSED_MAX * 5;
        let away = || StockError::Pool("no connection".into());
        refused.note(&away(), false, begun);
        assert!(!refused.is_final(&away(), begun + REFUSED_MAX * 4, last));
        assert!(refused.is_final(&away(), last, last));
    }

    #[test]
    fn no_attempt_begins_that_would_not_find_a_connection_in_time() {
        let refused_connection = io::Error::from(io::ErrorKind::ConnectionRefused);
        let refused_connection = StockError::Redis(refused_connection.into());
        let (pause, within) = (Duration::from_millis(100), Duration::from_secs(3));
        let mut refused = Refused::default();
        let begun = since(&refused);
        let took = Duration::from_millis(140);
        refused.note(&oom(), false, begun + Duration::from_secs(1));
        refused.note(
            &refused_connection,
            false,
            begun + Duration::from_secs(1) + took,
        );
        let time_after =
            |error: &StockError, pause, within| refused.time_for_another(error, pause, within);
        assert_eq!(time_after(&refused_connection, pause, within), took * 2);
        assert_eq!(
            time_after(&refused_connection, took * 3, within),
            took * 3,
            "the pause comes before it"
        );
        let short = Duration::from_millis(160);
        let pause = Duration::from_millis(4);
        assert_eq!(
            time_after(&refused_connection, pause, short),
            short / 8,
            "a short request may try again too"
        );
        assert_eq!(
            time_after(&oom(), pause, within),
            pause,
            "a server that replies does so soon"
        );
    }

    #[test]
    fn one_attempt_that_may_have_run_leaves_the_outcome_open() {
        let late = Instant::now() + REFUSED_MAX * 9;
        let mut lost_once = Refused::default();
        let now = Instant::now();
        lost_once.note(&oom(), false, now);
        lost_once.note(&lost(), false, now);
        lost_once.note(&oom(), false, now);
        assert!(!lost_once.is_final(&oom(), late, late));
        let mut spilled_over = Refused::default();
        spilled_over.note(&oom(), true, now);
        assert!(
            !spilled_over.is_final(&oom(), late, late),
            "home has recorded it"
        );
    }

    #[test]
    fn an_attempt_that_failed_for_good_says_nothing_of_those_before_it() {
        let segment = SegmentKey {
            item: domain::ItemId::new("tea").unwrap(),
            segment: 0,
        };
        let fenced = || StockError::Fenced {
            segment: segment.clone(),
            fence: 3,
        };
        let missing = || StockError::Missing(segment.clone());
        let tried = Duration::from_millis(7);
        let mut first = Refused::default();
        let now = Instant::now();
        first.note(&fenced(), false, now);
        let error = first.end(fenced(), tried);
        assert!(matches!(error, StockError::Fenced { .. }), "{error}");
        let mut earlier = Refused::default();
        earlier.note(&lost(), false, now);
        earlier.note(&fenced(), false, now);
        let error = earlier.end(fenced(), tried);
        assert!(matches!(error, StockError::OutcomeUnknown(_)), "{error}");
        let error = earlier.end(missing(), tried);
        assert!(matches!(error, StockError::Missing(_)), "{error}");
        assert!(!error.proves_unchanged(), "it may have held the order");
    }

    #[test]
    fn a_segment_under_repair_is_no_refusal_by_a_server() {
        let segment = SegmentKey {
            item: domain::ItemId::new("tea").unwrap(),
            segment: 0,
        };
        assert!(!StockError::Repairing(segment).is_refusal());
        assert!(oom().is_refusal() && !lost().is_refusal());
    }
}
