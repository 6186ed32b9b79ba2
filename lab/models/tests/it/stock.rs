//! The spillover, checked in every interleaving: whatever is late, lost, repeated, crashed or run
//! twice at once, an order takes one unit.
//!
//! # What is modelled
//!
//! A ring of three segments and an order that starts at segment 0, its home. The scripts are in
//! `scripts.rs`, one function for each file of `lua/` and with the same decisions: `reserve_home`,
//! `reserve_next`, `reserve_again`, `finish_spillover`, `reopen_spillover`, `due_spillovers`,
//! `forget_declined`, `forget_spillover`. Between any two of them anything may happen:
//!
//! * A message that was sent can be delivered at any later time, again and again, or never. This
//!   holds for asks and for outcomes, and just as well for what the spillover worker sends: a
//!   repeated "forget" that arrives after the order has spilled over again is what the obvious
//!   version of the protocol forgets about.
//! * Up to four attempts of one order run concurrently, each with its own deadline, and new ones
//!   start without end. A client's request, its retry and the worker's repeat of an abandoned
//!   spillover are the same thing. An attempt can crash anywhere: that is an attempt that never
//!   moves again.
//! * An attempt whose order every segment has declined ends it, or begins another round, as it
//!   likes: what it takes for "sold out" to be true is the subject of `truth.rs`.
//! * Units come to a segment and leave it at any moment, by cancellations, orders or transfers.
//! * The ledger cancels an order that was taken, or rejects it while its segment is repaired. Then
//!   `release_count` and `release` are sent, in this order, and delivered like everything else:
//!   late, again, or never, and their sender crashes and starts again for as long as the
//!   ledger lists the return. The second order of a buyer is also a reacquisition of the first one.
//! * Clocks differ. `now` is the fastest; a script may go by a clock that is `CLOCK_ERROR` behind
//!   it.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Late and lost answers.* An attempt gets each answer at once. One that gets it late is one
//!   whose next message is late, one that never gets it is one whose next message is never
//!   delivered, and both happen.
//! * *Quantities.* A segment passes when it has fewer units than asked for. Units come and go
//!   freely, so for a quantity of one every sequence of takes and passes happens already.
//! * *Paused segments, missing segments, refused windows.* To pass is what an empty segment does;
//!   to refuse is to lose a message.
//! * *When an abandoned spillover falls due.* An attempt may start at any time, so it does not
//!   matter when the worker starts one.
//! * *Forgetting orders.* The removal of taken and released answers a day after the order is over
//!   is not modelled.
//! * *Which attempt releases.* Several workers at one return are one worker whose messages arrive
//!   again.
//! * *Changed requests.* An attempt repeats its order. A request that reuses the order id for
//!   another quantity has to be shed by home without a trace, above all without an entry of
//!   its own in `spillovers`: there is one entry for an order.
//! * *Older messages of the worker.* Of several "forget" messages only the newest is kept, because
//!   a newer one may drop all that an older one may.
//! * *How long ago something was* that has passed every deadline. Times are only compared with each
//!   other and with `now`, so the order among past times is enough. Endless time so becomes a
//!   finite number of states, and a trace shows shifted times. `short_form.rs` holds this against
//!   states with real times.
//! * *Lost data.* Redis keeps what it has answered, but for the last round that home has declined,
//!   after all others have declined it, too. What else a failover may lose is the subject of
//!   `recovery.rs` and `limit.rs`, and units that move from one segment to another that of
//!   `transfer.rs`: models of their own.
//!
//! # What is checked
//!
//! `properties.rs`: one taken per order, also after its unit has gone back; units conserved and
//! never negative; home contradicts neither a segment nor a reply to a caller; the buyer's count
//! and limit; and from *every* state, the workers alone finish and forget the spillover and the
//! return. Each rule of the protocol is then left out alone, and the checker must find an order
//! with two units, or a count that is wrong permanently: a rule that could be left out without harm
//! would be a rule that the model does not see.

#![allow(
    clippy::print_stdout,
    reason = "the sizes and the traces are what a reader of a model wants to see"
)]

mod audit;
mod cart;
mod direct;
mod forgotten;
mod late_cart;
mod limit;
mod properties;
mod recovery;
mod reshard;
mod rules;
mod scripts;
mod short_form;
mod spillover;
mod state;
mod transfer;
mod truth;

use crate::check::find_counterexample;

use self::{
    properties::{COUNT, LIMIT, REFUSED, SETTLED, TAKEN_ONCE, TAKES_ONCE_FOR_GOOD},
    rules::Rules,
    spillover::Spillover,
    state::Order,
};

const ONE_ORDER: Spillover = Spillover {
    rules: Rules::ALL,
    ring: 3,
    orders: 1,
    attempts: 4,
    units: 2,
    limit: 1,
    returns: false,
    rounds: 0,
    gives_up: false,
    loses: false,
};
/// Two orders of one buyer who may have one. They meet only at home and over stock, so a shorter
/// ring is enough.
const TWO_ORDERS: Spillover = Spillover {
    ring: 2,
    orders: 2,
    attempts: 1,
    ..ONE_ORDER
};

/// Orders are cancelled at any moment, and their units go back.
const RETURNS: Spillover = Spillover {
    attempts: 2,
    returns: true,
    ..ONE_ORDER
};
/// The second order is also a reacquisition: the same buyer's, under another id, while the first
/// one's unit goes back.
const RETAKE: Spillover = Spillover {
    returns: true,
    ..TWO_ORDERS
};

/// Orders that are declined by all segments, and begin another round.
const ROUNDS: Spillover = Spillover {
    attempts: 2,
    rounds: 1,
    ..ONE_ORDER
};
const MANY_ROUNDS: Spillover = Spillover {
    ring: 2,
    rounds: 2,
    ..ROUNDS
};
const ROUNDS_AND_RETURNS: Spillover = Spillover {
    ring: 2,
    returns: true,
    ..ROUNDS
};

/// A failover loses the last round that home has declined.
const LOST_ROUNDS: Spillover = Spillover {
    loses: true,
    ..MANY_ROUNDS
};

/// Orders are given up, and placed again.
const GIVEN_UP: Spillover = Spillover {
    gives_up: true,
    ..MANY_ROUNDS
};

/// What the rules of rounds are left out of.
const TWO_ROUNDS: Spillover = Spillover {
    rounds: 2,
    ..ROUNDS
};
/// What the other rules are left out of.
const THREE_ATTEMPTS: Spillover = Spillover {
    attempts: 3,
    ..ONE_ORDER
};

fn find_double_take(model: Spillover, property: &'static str) {
    let last = find_counterexample(model, property);
    assert!(last.orders.iter().any(|order| order.times_taken() == 2));
}

sound! {
    the_spillover_never_takes_twice: ONE_ORDER, 500_000 states;
    two_orders_at_once_stay_within_the_buyers_limit: TWO_ORDERS, 100_000 states;
    a_unit_goes_back_once_and_its_order_never_takes_again: RETURNS, 50_000 states;
    a_reacquisition_stays_within_the_buyers_limit: RETAKE, 1_000_000 states;
    #[ignore = "half a million states"]
    a_unit_goes_back_once_and_its_order_never_takes_again_at_a_larger_size:
        Spillover { attempts: 3, ..RETURNS }, 400_000 states;
    an_order_takes_once_in_all_its_rounds: ROUNDS, 200_000 states;
    an_order_takes_once_in_many_rounds_of_a_short_ring: MANY_ROUNDS, 60_000 states;
    a_unit_goes_back_once_whatever_the_round: ROUNDS_AND_RETURNS, 70_000 states;
    #[ignore = "millions of states"]
    an_order_takes_once_in_all_its_rounds_at_a_larger_size:
        Spillover { attempts: 3, ..ROUNDS }, 1_000_000 states;
    a_spillover_whose_round_home_has_lost_still_ends: LOST_ROUNDS, 50_000 states;
}

refuted! {
    with_an_end_of_its_own_round_only_the_checker_finds_a_spillover_without_end:
        LOST_ROUNDS, without later_round_ends_it => SETTLED;
}

sound! {
    an_order_that_was_given_up_is_reopened_and_takes_once: GIVEN_UP, 100_000 states;
}

refuted! {
    with_an_order_that_is_reopened_in_its_round_the_checker_finds_a_double_take:
        GIVEN_UP, without reopened_in_the_next_round => TAKEN_ONCE;
    with_an_order_that_is_reopened_without_its_count_the_count_is_wrong:
        GIVEN_UP, without reopened_is_counted => COUNT;
    with_a_round_that_begins_early_the_checker_finds_a_double_take:
        TWO_ROUNDS, without round_follows_declines_of_all => TAKEN_ONCE;
    with_a_round_that_is_decided_twice_the_checker_finds_a_double_take:
        TWO_ROUNDS, without round_is_decided_once => TAKEN_ONCE;
    with_a_round_that_home_does_not_open_the_checker_finds_a_refused_order_with_a_unit:
        TWO_ROUNDS, without home_opens_the_round => REFUSED;
    with_sold_out_of_any_round_the_checker_finds_a_refused_order_with_a_unit:
        TWO_ROUNDS, without sold_out_names_its_round => REFUSED;
    with_sold_out_that_is_reopened_the_checker_finds_a_refused_order_with_a_unit:
        TWO_ROUNDS, without sold_out_is_final => REFUSED;
    with_sold_out_that_home_does_not_confirm_the_checker_finds_a_refused_order_with_a_unit:
        TWO_ROUNDS, without told_by_home => REFUSED;
}

refuted! {
    by find_double_take;
    without_recorded_decisions_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without declined_is_recorded => TAKEN_ONCE;
    without_the_deadline_in_reservations_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without deadline_in_reservations => TAKEN_ONCE;
    without_waiting_for_the_deadlines_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without wait_for_deadlines => TAKEN_ONCE;
    without_home_last_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without home_last => TAKEN_ONCE;
    with_declined_records_that_expire_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without declined_never_expires => TAKEN_ONCE;
    with_forget_declined_that_ignores_the_deadline_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without forget_declined_knows_its_spillover => TAKEN_ONCE;
    with_forget_spillover_that_ignores_the_due_time_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without forget_spillover_knows_its_spillover => TAKEN_ONCE;
    without_the_deadline_in_finish_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without deadline_in_finish => TAKEN_ONCE;
    with_only_the_first_deadline_remembered_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without home_remembers_the_latest_deadline => TAKEN_ONCE;
    without_a_margin_for_the_clocks_the_checker_finds_a_double_take:
        THREE_ATTEMPTS, without margin_covers_the_clocks => TAKEN_ONCE;
}

refuted! {
    without_home_last_a_crash_strands_a_declined_record: ONE_ORDER, without home_last => SETTLED;
}

#[test]
fn without_the_deadline_in_finish_a_buyer_gets_more_than_the_limit() {
    let rules = Rules {
        deadline_in_finish: false,
        ..Rules::ALL
    };
    let spillover = Spillover {
        rules,
        // The outcome of the first spillover is still under way when the second attempt sets out.
        attempts: 2,
        ..TWO_ORDERS
    };
    let last = find_counterexample(spillover, LIMIT);
    assert_eq!(last.orders.iter().map(Order::times_taken).sum::<usize>(), 2);
}

refuted! {
    without_sticky_released_a_repeat_takes_again:
        RETURNS, without released_is_remembered => TAKES_ONCE_FOR_GOOD;
    with_a_count_that_comes_back_twice_the_buyers_count_is_too_low:
        RETAKE, without count_comes_back_once => COUNT;
    with_the_unit_back_before_the_count_a_crash_leaves_a_count_without_an_owner:
        RETURNS, without count_comes_back_first => SETTLED;
    without_the_count_of_rejected_orders_a_buyer_is_counted_for_ever:
        RETURNS, without rejected_gives_its_count_back => SETTLED;
}
