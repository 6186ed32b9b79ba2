//! The rules that repair rests on, one switch each, so that each can be left out alone.

/// The rules. [`Rules::ALL`] is the protocol; a weakened variant leaves one out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The recorder records nothing when the entry at its checkpoint is gone.
    pub recorder_checks_the_anchor: bool,
    /// What the recorder has in memory is recorded only behind the checkpoint that it continues.
    pub direct_record_continues_the_checkpoint: bool,
    /// The recorder stops at an `adjusted` entry whose units are not those of its row.
    pub recorder_checks_the_adjusted_units: bool,
    /// A repairer decides on what ends with the entry that its own halt wrote: so no two rounds
    /// share a last entry.
    pub decides_on_its_own_halt: bool,
    /// `adjust` is refused if its segment has another last entry than the one that was read.
    pub adjust_knows_the_last_entry: bool,
    /// `restore_orders` is refused likewise: it may be a late repeat of an earlier round under the
    /// same token.
    pub restore_knows_the_last_entry: bool,
    /// `restore_orders` and `adjust` are refused unless the segment was halted last with their
    /// token.
    pub scripts_know_the_token: bool,
    /// `adjust` is refused unless `restore_orders` has run since the halt: a failover may undo that
    /// alone.
    pub adjust_knows_of_the_restore: bool,
    /// The segment gets back what it must answer to the orders of the ledger.
    pub decisions_restored: bool,
    /// It gets the counts of all buyers of these orders, also of those who hold nothing any more.
    pub counts_restored: bool,
    /// It gets back which transfers have gone in and out, and forgets those that the ledger did not
    /// accept.
    pub transfers_restored: bool,
    /// The ledger commits only what was decided on the row as it is.
    pub commit_knows_the_version: bool,
    /// What is read while repair is rejected if its buyer has enough already: the count was lost
    /// with the other order.
    pub limit_checked_when_repairing: bool,
}

impl Rules {
    /// The protocol.
    pub const ALL: Self = Self {
        recorder_checks_the_anchor: true,
        direct_record_continues_the_checkpoint: true,
        recorder_checks_the_adjusted_units: true,
        decides_on_its_own_halt: true,
        adjust_knows_the_last_entry: true,
        restore_knows_the_last_entry: true,
        scripts_know_the_token: true,
        adjust_knows_of_the_restore: true,
        decisions_restored: true,
        counts_restored: true,
        transfers_restored: true,
        commit_knows_the_version: true,
        limit_checked_when_repairing: true,
    };
}
