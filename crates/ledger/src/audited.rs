//! What the ledger remembers of the audits that have walked all orders of an item.

use jiff::Timestamp;

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
}

impl LastAudits {
    /// The fault that was found last, unless an audit that began afterwards was good. One that had
    /// begun before may have read the orders as they were before the fault, whichever of the two
    /// ended first.
    pub fn fault(&self) -> Option<FailedAudit> {
        let good = self.good.map(|good| good.at);
        self.failed.filter(|failed| Some(failed.at) >= good)
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
            };
            assert_eq!(last.fault().is_some(), stands, "{last_good:?}");
        }
        assert_eq!(LastAudits::default().fault(), None);
    }
}
