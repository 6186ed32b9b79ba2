//! The known refunds of a payment, and what is due because some have failed.

use jiff::{SignedDuration, Timestamp};

use super::RefundReport;
use crate::words::words;

words! {
    /// The state of a refund at the provider. Its words are those of Stripe.
    pub enum RefundState {
        /// The money is on its way.
        Pending => "pending",
        /// The buyer has to do something first.
        RequiresAction => "requires_action",
        /// The money has left. It may still come back.
        Succeeded => "succeeded",
        /// The buyer does not get it.
        Failed => "failed",
        /// The refund was taken back before the money left.
        Canceled => "canceled",
    }
}

impl RefundState {
    /// A refund never goes back to a state of a lower rank, so a report of one is an old one.
    const fn rank(self) -> u8 {
        match self {
            Self::Pending | Self::RequiresAction => 0,
            Self::Succeeded => 1,
            Self::Failed | Self::Canceled => 2,
        }
    }

    pub(super) const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Canceled)
    }
}

/// A refund as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRefund {
    pub id: String,
    pub state: RefundState,
    pub amount: u64,
    pub created_at: Timestamp,
    pub failed_at: Option<Timestamp>,
    pub is_done: bool,
}

/// The refund as it is after the report. `None`: the report tells nothing new.
///
/// A report without times gets those of its arrival. A refund that was not known when another one
/// failed then counts as a later one.
pub(super) fn advanced(
    known: &[KnownRefund],
    report: &RefundReport,
    now: Timestamp,
) -> Option<KnownRefund> {
    let failed_at = |at: Timestamp| report.state.is_failure().then_some(at);
    let at = report.at.unwrap_or(now);
    if let Some(refund) = known.iter().find(|refund| refund.id == report.id) {
        return (report.state.rank() > refund.state.rank()).then(|| KnownRefund {
            state: report.state,
            failed_at: failed_at(at),
            ..refund.clone()
        });
    }
    let failed_at = failed_at(at);
    let last_failure = known.iter().filter_map(|refund| refund.failed_at).max();
    let after = last_failure.map(|failed| failed + SignedDuration::from_millis(1));
    Some(KnownRefund {
        id: report.id.clone(),
        state: report.state,
        amount: report.amount,
        created_at: created_at(report, after, failed_at, now),
        failed_at,
        is_done: false,
    })
}

/// When a refund that is new was made. One that has failed was made before it failed, whatever
/// clock tells: it is no later attempt to return its own money.
fn created_at(
    report: &RefundReport,
    after: Option<Timestamp>,
    failed_at: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let created_at = report
        .created_at
        .unwrap_or_else(|| after.map_or(now, |after| after.max(now)));
    failed_at.map_or(created_at, |failed_at| created_at.min(failed_at))
}

/// The failed refunds that count: their money was not returned since, as far as the provider's full
/// returns and the admins' notes tell.
fn open(
    refunds: &[KnownRefund],
    returned_at: Option<Timestamp>,
) -> impl Iterator<Item = (&KnownRefund, Timestamp)> {
    refunds.iter().filter_map(move |refund| {
        let failed_at = refund.failed_at.filter(|_| !refund.is_done)?;
        let counts = returned_at.is_none_or(|returned_at| failed_at >= returned_at);
        counts.then_some((refund, failed_at))
    })
}

/// The one of these that failed last.
pub(super) fn latest_open(
    refunds: &[KnownRefund],
    returned_at: Option<Timestamp>,
) -> Option<&KnownRefund> {
    let latest = open(refunds, returned_at);
    let latest = latest.max_by(|(a, at), (b, bt)| (at, &a.id).cmp(&(bt, &b.id)));
    latest.map(|(refund, _)| refund)
}

/// The money that is due because refunds of the payment have failed.
///
/// A refund that was made after the first of these failures is another attempt to return the same
/// money. It counts once it has succeeded, and adds nothing if it fails.
pub(super) fn owed(refunds: &[KnownRefund], returned_at: Option<Timestamp>) -> u64 {
    let Some(first) = open(refunds, returned_at).map(|(_, at)| at).min() else {
        return 0;
    };
    let is_attempt = |refund: &KnownRefund| refund.created_at > first;
    let lost = sum(open(refunds, returned_at)
        .filter(|(refund, _)| !is_attempt(refund))
        .map(|(refund, _)| refund.amount));
    let returned = sum(refunds
        .iter()
        .filter(|refund| refund.state == RefundState::Succeeded && is_attempt(refund))
        .map(|refund| refund.amount));
    lost.saturating_sub(returned)
}

fn sum(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use domain::PaymentId;
    use jiff::Timestamp;

    use super::{KnownRefund, RefundReport, RefundState, advanced, owed};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn refund(id: &str, amount: u64, created: i64, failed: Option<i64>) -> KnownRefund {
        KnownRefund {
            id: id.into(),
            state: match failed {
                Some(_) => RefundState::Failed,
                None => RefundState::Succeeded,
            },
            amount,
            created_at: at(created),
            failed_at: failed.map(at),
            is_done: false,
        }
    }

    #[test]
    fn a_failed_refund_is_owed_until_a_later_one_has_succeeded() {
        let failed = refund("re_1", 100, 10, Some(20));
        assert_eq!(owed(&[], None), 0);
        assert_eq!(owed(&[refund("re_0", 0, 10, Some(20))], None), 0);
        assert_eq!(owed(std::slice::from_ref(&failed), None), 100);
        let later = refund("re_2", 100, 30, None);
        assert_eq!(owed(&[later.clone(), failed.clone()], None), 0);
        let part = refund("re_2", 30, 30, None);
        assert_eq!(owed(&[failed.clone(), part], None), 70);
        let pending = KnownRefund {
            state: RefundState::Pending,
            ..later
        };
        assert_eq!(owed(&[failed, pending], None), 100);
    }

    #[test]
    fn an_attempt_that_fails_too_adds_nothing() {
        let both = [
            refund("re_1", 100, 10, Some(20)),
            refund("re_2", 100, 30, Some(40)),
        ];
        assert_eq!(owed(&both, None), 100);
        // The second had succeeded first, and the payment was returned.
        assert_eq!(owed(&both, Some(at(30))), 100);
    }

    #[test]
    fn the_other_part_of_the_same_return_replaces_nothing() {
        let parts = [
            refund("re_1", 50, 10, Some(20)),
            refund("re_2", 50, 12, None),
        ];
        assert_eq!(owed(&parts, None), 50);
        let parts = [
            refund("re_1", 50, 10, Some(20)),
            refund("re_2", 50, 12, Some(25)),
        ];
        assert_eq!(owed(&parts, None), 100);
    }

    #[test]
    fn a_full_return_counts_against_the_failures_before_it_alone() {
        let failed = [refund("re_1", 100, 10, Some(20))];
        for (returned, due) in [(10, 100), (20, 100), (21, 0)] {
            assert_eq!(owed(&failed, Some(at(returned))), due, "{returned}");
        }
        let [failed] = failed;
        let done = KnownRefund {
            is_done: true,
            ..failed
        };
        assert_eq!(owed(&[done], None), 0);
    }

    #[test]
    fn a_refund_moves_in_one_direction_and_without_times_the_new_one_is_the_later_one() {
        let report = |id: &str, state| RefundReport {
            id: id.into(),
            payment: PaymentId::new("pi_1").unwrap(),
            payer: None,
            state,
            amount: 100,
            currency: None,
            created_at: None,
            at: None,
        };
        let now = at(20);
        let failed = advanced(&[], &report("re_1", RefundState::Failed), now).unwrap();
        assert_eq!((failed.created_at, failed.failed_at), (now, Some(now)));
        let known = [failed];
        for old in [
            RefundState::Pending,
            RefundState::Succeeded,
            RefundState::Failed,
            RefundState::Canceled,
        ] {
            assert_eq!(advanced(&known, &report("re_1", old), now), None, "{old:?}");
        }
        let later = advanced(&known, &report("re_2", RefundState::Succeeded), now).unwrap();
        assert!(later.created_at > now);
        let [failed] = known;
        assert_eq!(owed(&[failed, later], None), 0);
    }

    #[test]
    fn a_refund_that_has_failed_was_made_before_that() {
        for created_at in [None, Some(at(15))] {
            let report = RefundReport {
                id: "re_1".into(),
                payment: PaymentId::new("pi_1").unwrap(),
                payer: None,
                state: RefundState::Failed,
                amount: 100,
                currency: None,
                created_at,
                at: Some(at(11)),
            };
            let failed = advanced(&[], &report, at(20)).unwrap();
            assert_eq!(failed.created_at, at(11));
            assert_eq!(owed(&[failed], None), 100);
        }
    }
}
