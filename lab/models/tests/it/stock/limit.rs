//! The buyer's limit over two shards, checked in every interleaving: whatever home forgets, the
//! ledger gives no buyer more than the limit.
//!
//! # What is modelled
//!
//! A buyer with a limit, the buyer's home, another segment on another server, and the orders of the
//! buyer. Home takes an order or lets it go on, as if it had a unit or none; it counts both. The
//! other segment takes what it is sent at any later time, or never. Home's server may lose the end
//! of what happened, at any moment; the other one loses nothing.
//!
//! The ledger also has it written down whether an order of the item ever strayed; without that,
//! what it has of the buyer is not asked for at home.
//!
//! A recorder of each segment, and a repairer of home work in transactions of two steps: what
//! is decided in the second rests on what was read in the first. Home is recorded only if its
//! outbox begins with what was recorded; but what it let go on is not in its outbox.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Units.* They come and go freely, so home may take or let go whenever it likes.
//! * *Keys that are lost by themselves.* Home's count goes with its outbox here; a key that is gone
//!   alone is noticed by its placeholder, which is gone with it.
//! * *Returns.* They lower what the ledger counts before anything else knows of them
//!   (`spillover.rs`).
//! * *How repair sets home right, step by step.* That is `recovery.rs`. Here it is one
//!   compare-and-set on what home has come to.
//! * *More segments.* Strays of one other segment meet each other in its outbox, those of two would
//!   meet in the ledger; the rule that keeps two recorders apart is needed for one already.

mod properties;
mod shards;
mod state;

use self::{
    properties::LIMIT,
    shards::{Rules, Shards},
};

const SHARDS: Shards = Shards {
    rules: Rules::ALL,
    orders: 3,
    limit: 1,
    failovers: 1,
};

sound! {
    no_buyer_gets_more_than_the_limit_whatever_home_forgets: SHARDS, 5_000 states;
    no_buyer_gets_more_than_the_limit_whatever_home_forgets_twice:
        Shards { failovers: 2, ..SHARDS }, 50_000 states;
    #[ignore = "millions of states"]
    no_buyer_gets_more_than_the_limit_at_a_larger_size:
        Shards { limit: 2, failovers: 2, ..SHARDS }, 500_000 states;
}

refuted! {
    without_a_check_of_off_home_orders_a_buyer_gets_more:
        SHARDS, without off_home_are_checked => LIMIT;
    without_a_check_at_home_released_and_forgotten_units_come_on_top:
        SHARDS, without known_buyers_are_checked => LIMIT;
    without_reading_off_home_orders_in_turn_one_in_recording_is_missed:
        SHARDS, without off_home_orders_are_read_in_turn => LIMIT;
    without_being_alone_two_recorders_pass_too_much_together:
        SHARDS, without off_home_are_alone => LIMIT;
}
