//! The rules that repair rests on, one switch each, so that each can be left out alone.

rules! {
    /// The recorder records nothing when the entry at its checkpoint is gone.
    recorder_checks_the_anchor,
    /// What the recorder has in memory is recorded only behind the checkpoint that it continues.
    direct_record_continues_the_checkpoint,
    /// The recorder stops at an `adjusted` entry whose units are not those of its row.
    recorder_checks_the_adjusted_units,
    /// A repairer decides on what ends with the entry that its own halt wrote: so no two rounds
    /// share a last entry.
    decides_on_its_own_halt,
    /// `adjust` is refused if its segment has another last entry than the one that was read.
    adjust_knows_the_last_entry,
    /// `restore_orders` is refused likewise: it may be a late repeat of an earlier round under the
    /// same token.
    restore_knows_the_last_entry,
    /// `restore_orders` and `adjust` are refused unless the segment was halted last with their
    /// token.
    scripts_know_the_token,
    /// `adjust` is refused unless `restore_orders` has run since the halt: a failover may undo that
    /// alone.
    adjust_knows_of_the_restore,
    /// The segment gets back what it must answer to the orders of the ledger.
    decisions_restored,
    /// It gets the counts of all buyers of these orders, also of those who hold nothing any more.
    counts_restored,
    /// It gets back which transfers have gone in and out, and forgets those that the ledger did not
    /// accept.
    transfers_restored,
    /// The ledger commits only what was decided on the row as it is.
    commit_knows_the_version,
    /// What is read while repair is rejected if its buyer has enough already: the count was lost
    /// with the other order.
    limit_checked_when_repairing,
}
