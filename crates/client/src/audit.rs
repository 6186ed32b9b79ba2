//! Audits: proof that every unit of an item is accounted for.

use crate::Audit;

impl Audit {
    /// Whether two audits of an item at rest say the same, besides when its orders were checked.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let without = |audit: &Self| Self {
            orders_checked: None,
            ..audit.clone()
        };
        without(self) == without(other)
    }

    /// Units that buyers have, according to the ledger.
    pub fn promised(&self) -> u64 {
        self.held + self.confirmed
    }

    /// Whether no unit is on its way: to the ledger, back to the stock, or between segments.
    pub fn is_at_rest(&self) -> bool {
        self.in_flight == 0 && self.returning == 0 && self.in_transit == 0
    }
}
