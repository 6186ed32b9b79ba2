//! What the ledger remembers of the audits that have compared the orders of an item with its rows.

use jiff::Timestamp;

use crate::Sums;

/// A good audit: its time, and the revision of the rows that it has compared with the orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoodAudit {
    /// When it began, just before it read the rows.
    pub at: Timestamp,
    /// A hash of the rows.
    pub revision: u64,
}

/// An audit that has found a fault in the orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAudit {
    /// When it had found it, just after it read the orders.
    pub at: Timestamp,
    /// Units by which the orders differed from the rows.
    pub miscounted: u64,
    /// Units promised beyond the stock.
    pub oversold: u64,
}

/// What an audit has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditResult {
    /// The orders agreed with the rows.
    Good(GoodAudit),
    /// They did not.
    Failed(FailedAudit),
}

/// The last results of the audits of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastAudits {
    /// The last good one.
    pub good: Option<GoodAudit>,
    /// The last one that has found a fault.
    pub failed: Option<FailedAudit>,
    /// When the orders were last compared with the rows, by a good audit or by what had changed
    /// since.
    pub compared: Option<GoodAudit>,
}

/// What the orders of an item added up to when they agreed with its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedSums {
    /// When, and with which rows.
    pub audit: GoodAudit,
    /// The sums.
    pub sums: Sums,
}

impl LastAudits {
    /// The fault that was found last, unless an audit that began afterwards was good. One that had
    /// begun before may have read the orders as they were before the fault, whichever of the two
    /// ended first.
    pub fn fault(&self) -> Option<FailedAudit> {
        let good = self.good.map(|good| good.at);
        self.failed.filter(|failed| Some(failed.at) >= good)
    }

    /// Whether the orders were compared with rows of this revision. Whatever has changed is
    /// compared on top of a good audit.
    pub fn has_compared(&self, revision: u64) -> bool {
        let mut audits = self.good.iter().chain(&self.compared);
        self.good.is_some() && audits.any(|audit| audit.revision == revision)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{FailedAudit, GoodAudit, LastAudits};

    #[test]
    fn a_fault_stands_until_an_audit_that_began_afterwards_is_good() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let good = |second| GoodAudit {
            at: at(second),
            revision: 1,
        };
        let failed = FailedAudit {
            at: at(5),
            miscounted: 3,
            oversold: 0,
        };
        for (last_good, stands) in [
            (None, true),
            (Some(4), true),
            (Some(5), true),
            (Some(6), false),
        ] {
            let last = LastAudits {
                good: last_good.map(good),
                failed: Some(failed),
                compared: None,
            };
            assert_eq!(last.fault().is_some(), stands, "{last_good:?}");
        }
        assert_eq!(LastAudits::default().fault(), None);
    }

    #[test]
    fn rows_are_compared_by_a_good_audit_or_by_what_has_changed_since() {
        let audit = |revision| {
            Some(GoodAudit {
                at: Timestamp::UNIX_EPOCH,
                revision,
            })
        };
        let compared = |good, compared| LastAudits {
            good,
            failed: None,
            compared,
        };
        let both = compared(audit(1), audit(2));
        assert_eq!(
            [1, 2, 3].map(|row| both.has_compared(row)),
            [true, true, false]
        );
        assert!(!compared(None, audit(2)).has_compared(2));
        assert!(!LastAudits::default().has_compared(0));
    }
}
