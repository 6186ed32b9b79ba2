//! The walk, checked in every interleaving: whatever is late, lost, repeated, crashed or run twice at once, an order takes one unit.
//!
//! # What is modelled
//!
//! A ring of three segments and an order that starts at segment 0, its home. The scripts are in `scripts.rs`, one function for
//! each file of `lua/` and with the same decisions: `ask_home`, `ask_next`, `finish_walk`, `due_walks`, `forget_passes`,
//! `forget_walk`. Between any two of them anything may happen:
//!
//! * A message that was sent can be delivered at any later time, again and again, or never. This holds for asks and for
//!   outcomes, and just as well for what the walk worker sends: a repeated "forget" that arrives after the order has walked
//!   anew is what the obvious version of the protocol forgets about.
//! * Up to four attempts of one order run at once, each with a deadline of its own, and new ones start without end. A client's
//!   request, its retry and the worker's repeat of an abandoned walk are the same thing. An attempt can crash anywhere: that
//!   is an attempt that never moves again.
//! * Units come to a segment and leave it at any moment, whoever cancels, buys or transfers.
//! * Clocks differ. `now` is the fastest; a script may go by a clock that is `CLOCK_ERROR` behind it.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Late and lost answers.* An attempt gets each answer at once. One that gets it late is one whose next message is late,
//!   one that never gets it is one whose next message is never delivered, and both happen.
//! * *Quantities.* A segment passes when it has fewer units than asked for. Units come and go freely, so for a quantity of one
//!   every sequence of takes and passes happens already.
//! * *Paused segments, missing segments, refused windows.* To pass is what an empty segment does; to refuse is to lose a message.
//! * *When an abandoned walk falls due.* An attempt may start at any time, so it does not matter when the worker starts one.
//! * *`released`.* A released answer is terminal and repeated like a taken one, and its unit comes back as an arrival. The
//!   removal of taken answers a day after the order is over is not modelled.
//! * *Changed requests.* An attempt repeats its order. A request that reuses the order id for another quantity has to be
//!   turned away by home without a trace, above all without an entry of its own in `walks`: there is one entry for an order.
//! * *Older messages of the worker.* Of several "forget" messages only the newest is kept, because a newer one may drop all
//!   that an older one may.
//! * *How long ago something was* that is over for everybody. Times are only compared with each other and with `now`, so the
//!   order among past times is enough. Endless time so becomes a finite number of states, and a trace shows shifted times.
//!   `short_form.rs` holds this against states with real times.
//! * *Lost data.* Redis keeps what it has answered. What a failover may lose is the subject of the epochs, not of the walk.
//!
//! # What is checked
//!
//! `properties.rs`: one taken per order; units conserved and never negative; home contradicts neither a segment nor what
//! somebody was told; the buyer's count and limit; and from *every* state, the worker alone finishes and forgets the walk.
//! Each rule of the protocol is then left out alone, and the checker must find an order with two units: a rule that could be
//! left out without harm would be a rule that the model does not see.

#![allow(clippy::print_stdout, reason = "the sizes and the traces are what a reader of a model wants to see")]

mod properties;
mod rules;
mod scripts;
mod short_form;
mod state;
mod walk;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};

use self::{
    properties::{LIMIT, SETTLED, TAKEN_ONCE},
    rules::Rules,
    state::{Order, State},
    walk::Walk,
};

const ONE_ORDER: Walk = Walk { rules: Rules::ALL, ring: 3, orders: 1, attempts: 4, units: 2, limit: 1 };
/// Two orders of one buyer who may have one. They meet only at home and over stock, so a shorter ring is enough.
const TWO_ORDERS: Walk = Walk { ring: 2, orders: 2, attempts: 1, ..ONE_ORDER };

fn assert_sound(walk: Walk, at_least: usize) {
    let checker = walk.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{states} states, {} transitions, {} steps deep", checker.state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(states >= at_least, "the model has shrunk to {states} states: what can no longer happen?");
}

/// One thread, so that a variant is refuted by the same short trace every time.
fn find_counterexample(walk: Walk, property: &'static str) -> State {
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = walk.checker().threads(1).finish_when(wanted).spawn_bfs().join();
    let path = checker.assert_any_discovery(property);
    let last = *path.last_state();
    let steps = path.into_actions();
    println!("{} states, found in {} steps:", checker.unique_state_count(), steps.len());
    for step in steps {
        println!("  {step:?}");
    }
    last
}

fn assert_takes_twice(rules: Rules) {
    let last = find_counterexample(Walk { rules, attempts: 3, ..ONE_ORDER }, TAKEN_ONCE);
    assert!(last.orders.iter().any(|order| order.times_taken() == 2));
}

#[test]
fn the_walk_never_takes_twice() {
    assert_sound(ONE_ORDER, 500_000);
}

#[test]
fn two_orders_at_once_stay_within_the_buyers_limit() {
    assert_sound(TWO_ORDERS, 100_000);
}

#[test]
fn without_sticky_passed_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { sticky_passed: false, ..Rules::ALL });
}

#[test]
fn without_the_deadline_in_asks_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { deadline_in_asks: false, ..Rules::ALL });
}

#[test]
fn without_waiting_for_the_deadlines_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { wait_for_deadlines: false, ..Rules::ALL });
}

#[test]
fn without_home_last_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { home_last: false, ..Rules::ALL });
}

#[test]
fn with_passed_records_that_expire_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { passed_never_expires: false, ..Rules::ALL });
}

#[test]
fn with_forget_passes_that_does_not_know_its_walk_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { forget_passes_knows_its_walk: false, ..Rules::ALL });
}

#[test]
fn with_forget_walk_that_does_not_know_its_walk_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { forget_walk_knows_its_walk: false, ..Rules::ALL });
}

#[test]
fn without_the_deadline_in_finish_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { deadline_in_finish: false, ..Rules::ALL });
}

#[test]
fn with_only_the_first_deadline_remembered_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { home_remembers_the_latest_deadline: false, ..Rules::ALL });
}

#[test]
fn without_a_margin_for_the_clocks_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules { margin_covers_the_clocks: false, ..Rules::ALL });
}

#[test]
fn without_home_last_a_crash_strands_a_passed_record() {
    let rules = Rules { home_last: false, ..Rules::ALL };
    find_counterexample(Walk { rules, ..ONE_ORDER }, SETTLED);
}

#[test]
fn without_the_deadline_in_finish_a_buyer_gets_more_than_the_limit() {
    let rules = Rules { deadline_in_finish: false, ..Rules::ALL };
    let walk = Walk {
        rules,
        // The outcome of the first walk is still under way when the second attempt sets out.
        attempts: 2,
        ..TWO_ORDERS
    };
    let last = find_counterexample(walk, LIMIT);
    assert_eq!(last.orders.iter().map(Order::times_taken).sum::<usize>(), 2);
}
