//! The result of judging a round.

use std::time::Duration;

/// The result of judging a round.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Number of acknowledgements: orders and carts placed, paid, cancelled, refunded.
    pub acknowledged: usize,
    /// Number of acknowledged carts.
    pub carts: usize,
    /// Number of payments of which a report was answered, so that they could be judged.
    pub payments: usize,
    /// Number of payments whose money was returned.
    pub payments_returned: usize,
    /// Number of carts whose lines did not agree with them, at the end or temporarily.
    pub half_sold: usize,
    /// Number of acknowledgements that the ledger contradicts.
    pub lost: usize,
    /// Number of orders that Redis lost before the ledger had them. Their durability allows it.
    pub lost_by_level: usize,
    /// Number of events that subscribers were to get.
    pub events: usize,
    /// Number of deliveries of events, repeats included.
    pub deliveries: usize,
    /// Number of events that subscribers were to get, counted for each subscriber.
    pub events_sent: usize,
    /// Number of deliveries of an event that the subscriber had got before. Allowed.
    pub events_doubled: usize,
    /// Number of events that a subscriber has not got, or that the events lack.
    pub events_lost: usize,
    /// Number of events that a subscriber has got before an earlier one of the same item.
    pub events_reordered: usize,
    /// Number of deliveries that differ from the event, are not signed, or are of no event.
    pub events_altered: usize,
    /// Units sold beyond the stock, or beyond a buyer's limit.
    pub oversold: u64,
    /// Units that are unsold and cannot be bought.
    pub stranded: u64,
    /// Orders that were refused as sold out while units were free.
    pub wrongly_sold_out: u64,
    /// Number of refusals as sold out that were compared with the free units.
    pub sold_out_judged: usize,
    /// Number of orders whose units came back, and counted as free from then on.
    pub returns_seen: usize,
    /// Number of items of which a reconciler has compared what had changed since their last full
    /// audit, and found it good.
    pub compared_changes: usize,
    /// Time from the end of the fault to full recovery; `None`: not recovered.
    pub healed_after: Option<Duration>,
    /// Descriptions of everything that is wrong.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Adds a finding for each promise of which too little was seen to judge it. A round without
    /// refusals would otherwise pass as one in which all of them were right.
    pub fn judge_what_was_seen(&mut self) {
        let seen = [
            (self.acknowledged, "no order was acknowledged"),
            (
                self.sold_out_judged,
                "no refusal as sold out could be judged",
            ),
            (self.returns_seen, "no unit came back"),
            (self.payments, "no report of a payment was answered"),
        ];
        let missing = seen.into_iter().filter(|(count, _)| *count == 0);
        let findings = missing.map(|(_, what)| format!("too little seen: {what}"));
        self.findings.extend(findings);
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        let wrong = self.oversold + self.stranded + self.wrongly_sold_out;
        let events = self.events_lost + self.events_reordered + self.events_altered;
        self.findings.is_empty() && self.lost + self.half_sold + events == 0 && wrong == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn a_round_that_saw_too_little_is_not_good() {
        let full = || Verdict {
            acknowledged: 40,
            payments: 1,
            sold_out_judged: 3,
            returns_seen: 5,
            ..Verdict::default()
        };
        let judged = |mut verdict: Verdict| {
            verdict.judge_what_was_seen();
            verdict
        };
        assert!(judged(full()).is_good());
        let blind = [
            Verdict {
                acknowledged: 0,
                ..full()
            },
            Verdict {
                payments: 0,
                ..full()
            },
            Verdict {
                sold_out_judged: 0,
                ..full()
            },
            Verdict {
                returns_seen: 0,
                ..full()
            },
        ];
        for verdict in blind {
            let verdict = judged(verdict);
            assert!(!verdict.is_good(), "{verdict:?}");
            assert!(verdict.findings[0].starts_with("too little seen: "));
        }
    }
}
