//! Which nodes may vote after a restart or a loss, checked in every interleaving.
//!
//! # The problem
//!
//! A node that has lost a vote must not vote again before every lease that the vote may have
//! counted for has ended. Waiting for the longest lease is always safe, and always slow. Two rules
//! avoid the wait for nodes that the operator declares durable (`durable=true`):
//!
//! * *Kept.* A node that restarted and still has its generation votes at once. It remembers every
//!   vote that it has answered, because each answer waits until the vote is on disk.
//! * *Fresh start.* A client marks every configured node, each blank at that moment, with one mark
//!   of its own. If all N nodes answer, the client admits all of them at once.
//!
//! A node without its generation waits in every other case, whatever the operator declared.
//!
//! # What is modelled
//!
//! Three nodes, two acquisitions, two clients that look at the nodes. Between any two steps:
//!
//! * An acquire or an admission that was sent can be delivered to any node at any later time, again
//!   and again, or never. A mark is delivered once or never: a look sends it once, and no later
//!   look uses it.
//! * A node can crash. It comes back with what was on disk. A vote reaches the disk at any time,
//!   but not later than its answer.
//! * A node can lose everything, its marks included. That breaks the operator's promise; the rules
//!   shall still hold while one node has kept its memory.
//!
//! Leases are modelled without clocks. A node that waits may be admitted when every acquisition
//! that had begun when the node was marked has ended. A key expires on a node when its owner's
//! lease has ended, and not earlier. A look takes less than the longest lease, and begins only if
//! it sees no mark. So when a node is admitted after waiting, every look that saw the node without
//! its mark has ended: no mark of a look is delivered any more.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Proposing again.* An acquisition that proposes a higher token is one more acquisition. The
//!   ballot's own model has both.
//! * *Extending.* An extension needs a quorum as an acquisition does, and sets only what the same
//!   token set before.
//! * *Late messages without crashes.* If a client has ended, its acquire leaves a key that can
//!   expire immediately, and a higher fence. Where nodes crash, such messages are in.
//! * *Questions to peers.* A node that waited takes its floor from its peers in one step. A floor
//!   that is read earlier misses only tokens that this node never had.
//!
//! # What is checked
//!
//! Two clients never hold the lock at the same time, whatever minority of nodes or all nodes but
//! one lose their memory. Tokens are unique and rise while a minority loses its memory. Each rule
//! with one of its conditions left out makes the checker find two holders.

mod protocol;
mod state;

use self::protocol::{EXCLUSIVE, Protocol, RISING, Variant};
use super::{assert_sound, find_counterexample};

/// No node loses its memory; two crashes happen to nodes that vote.
const CRASHES: Protocol = Protocol {
    variant: Variant::Sound,
    vote_at_first: true,
    looks: 0,
    crashes: 2,
    losses: 0,
};

/// New nodes start, and one of them loses its memory.
const MINORITY_LOST: Protocol = Protocol {
    vote_at_first: false,
    looks: 2,
    crashes: 0,
    losses: 1,
    ..CRASHES
};

/// New nodes start, and two of them lose their memory.
const ALL_BUT_ONE_LOST: Protocol = Protocol {
    losses: 2,
    ..MINORITY_LOST
};

sound! {
    durable_nodes_that_restart_vote_at_once_and_the_lock_stays_exclusive: CRASHES, 40_000 states;
    new_nodes_vote_at_once_and_a_node_that_lost_its_memory_waits: MINORITY_LOST, 200_000 states;
}

#[test]
#[ignore = "for `make model`"]
fn the_rules_for_restarted_and_new_nodes_are_sound_at_a_larger_size() {
    assert_sound(ALL_BUT_ONE_LOST, 10_000);
    assert_sound(
        Protocol {
            crashes: 1,
            ..MINORITY_LOST
        },
        10_000,
    );
}

#[test]
fn a_durable_node_restored_from_a_backup_gives_the_lock_to_two() {
    let protocol = Protocol {
        variant: Variant::RestoredBackup,
        ..CRASHES
    };
    find_counterexample(protocol, EXCLUSIVE);
    find_counterexample(protocol, RISING);
}

#[test]
fn a_node_that_answers_before_its_vote_is_on_disk_gives_the_lock_to_two() {
    let protocol = Protocol {
        variant: Variant::AnswerBeforeDisk,
        ..CRASHES
    };
    find_counterexample(protocol, EXCLUSIVE);
    find_counterexample(protocol, RISING);
}

refuted! {
    a_node_without_its_memory_that_votes_on_its_own_word_gives_the_lock_to_two:
        Protocol { variant: Variant::BlankVotesAlone, ..MINORITY_LOST } => EXCLUSIVE;
    a_fresh_start_on_the_answers_of_a_quorum_gives_the_lock_to_two:
        Protocol { variant: Variant::QuorumIsFresh, ..ALL_BUT_ONE_LOST } => EXCLUSIVE;
    a_fresh_start_that_counts_marks_of_other_clients_gives_the_lock_to_two:
        Protocol { variant: Variant::MarksOfOthersCount, ..MINORITY_LOST } => EXCLUSIVE;
    a_fresh_start_that_takes_longer_than_a_lease_gives_the_lock_to_two:
        Protocol { variant: Variant::LookOutlivesLease, ..MINORITY_LOST } => EXCLUSIVE;
    a_fresh_start_that_sends_a_mark_twice_gives_the_lock_to_two:
        Protocol { variant: Variant::MarkIsRepeated, looks: 1, ..MINORITY_LOST } => EXCLUSIVE;
    a_late_admission_that_does_not_check_the_mark_gives_the_lock_to_two:
        Protocol { variant: Variant::AdmissionIgnoresMark, ..MINORITY_LOST } => EXCLUSIVE;
    /// Nodes that have all lost their memory look like new ones. So the rule needs the operator's
    /// promise: without `durable=true` there is no way to tell the two cases apart.
    a_fresh_start_of_nodes_that_all_lost_their_memory_gives_the_lock_to_two:
        Protocol { losses: 3, ..MINORITY_LOST } => EXCLUSIVE;
}
