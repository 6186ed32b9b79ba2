//! The result of judging a round.

use std::time::Duration;

/// The result of judging a round.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Number of acknowledgements: orders and carts placed, paid, cancelled, refunded.
    pub acknowledged: usize,
    /// Number of acknowledged carts.
    pub carts: usize,
    /// Number of carts whose lines did not agree with them, at the end or temporarily.
    pub half_sold: usize,
    /// Number of acknowledgements that the ledger contradicts.
    pub lost: usize,
    /// Number of orders that Redis lost before the ledger had them. Their durability allows it.
    pub lost_by_level: usize,
    /// Units sold beyond the stock, or beyond a buyer's limit.
    pub oversold: u64,
    /// Units that are unsold and cannot be bought.
    pub stranded: u64,
    /// Orders that were refused as sold out while units were free.
    pub wrongly_sold_out: u64,
    /// Time from the end of the fault to full recovery; `None`: not recovered.
    pub healed_after: Option<Duration>,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        let wrong = self.oversold + self.stranded + self.wrongly_sold_out;
        self.findings.is_empty() && self.lost + self.half_sold == 0 && wrong == 0
    }
}
