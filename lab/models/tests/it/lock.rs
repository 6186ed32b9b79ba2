//! The ballot, checked in every interleaving: tokens are unique and rise whatever is late, lost,
//! repeated or expired.
//!
//! # What is modelled
//!
//! Three nodes and a few acquisitions. The scripts are in `scripts.rs`, one function for each file
//! of `lua/` and with the same decisions. Between any two of them anything may happen:
//!
//! * A message that was sent, be it an acquire, an extend or a release, can be delivered to any
//!   node at any later time, again and again, or never. Its answer can be lost.
//! * A lock can expire on any node at any moment: nothing is assumed about clocks.
//! * A client can stop for any time between any two steps, give up, or die.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Late answers.* A client that gets an answer late is one that gets it immediately and acts on
//!   it late, and it may act at any time.
//! * *Extending as a question.* Whether a holder counts on its extension is a matter of clocks,
//!   and no property rests on it. What an extension does to the nodes is in: it is delivered at any
//!   time from the first quorum on, also after the release.
//! * *Which node is which.* A state and the same state with its nodes exchanged have the same
//!   future, so only the sorted one is kept.
//!
//! # What is checked
//!
//! `properties.rs`. Each of the four wrong ways of `redlock.rs`, and a node that forgets, must make
//! the checker find a violation.

mod client;
mod memory;
mod properties;
mod scripts;
mod state;

use crate::check::{assert_sound, find_counterexample};

use self::{
    client::{Protocol, Way},
    properties::{INTACT, RISING, UNIQUE},
};

const BALLOT: Protocol = Protocol {
    way: Way::Ballot,
    clients: 2,
    proposals: 2,
    extends: true,
    expires: true,
    forgets: false,
};

sound! {
    the_ballot_is_sound: BALLOT, 200_000 states;
}

#[test]
#[ignore = "15.7 million states, two and a half minutes: for `make model`"]
fn the_ballot_is_sound_at_a_larger_size() {
    assert_sound(
        Protocol {
            proposals: 3,
            ..BALLOT
        },
        2_000_000,
    );
    assert_sound(
        Protocol {
            clients: 3,
            proposals: 1,
            ..BALLOT
        },
        1_000_000,
    );
}

refuted! {
    with_the_highest_of_the_nodes_own_counters_a_token_is_given_twice_without_any_fault:
        Protocol { way: Way::NodeCounters, clients: 3, extends: false, expires: false, ..BALLOT }
            => UNIQUE;
    with_a_token_minted_after_the_lock_one_that_lapsed_fences_its_successor_out:
        Protocol { way: Way::MintLater, extends: false, ..BALLOT } => INTACT;
    with_a_second_round_that_accepts_what_is_not_below_a_token_is_given_twice:
        Protocol { way: Way::SecondRound, extends: false, ..BALLOT } => UNIQUE;
    with_a_counter_that_is_read_later_a_holder_gets_its_successors_token:
        Protocol { way: Way::ReadLater, extends: false, ..BALLOT } => UNIQUE;
}

#[test]
fn with_a_node_that_forgets_and_still_votes_a_token_is_given_twice() {
    let protocol = Protocol {
        forgets: true,
        extends: false,
        ..BALLOT
    };
    find_counterexample(protocol, UNIQUE);
    find_counterexample(protocol, RISING);
}
