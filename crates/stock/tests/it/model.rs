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
//! * The ledger cancels an order that was taken, or rejects it while its segment is mended. Then `give_back_count` and `release` are sent, in this
//!   order, and delivered like everything else: late, again, or never, and whoever sends them crashes and begins anew for as long as the
//!   ledger lists the return. The second order of a buyer is also a retake of the first one.
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
//! * *Forgetting orders.* The removal of taken and released answers a day after the order is over is not modelled.
//! * *Which attempt gives back.* Several workers at one return are one worker whose messages arrive again.
//! * *Changed requests.* An attempt repeats its order. A request that reuses the order id for another quantity has to be
//!   turned away by home without a trace, above all without an entry of its own in `walks`: there is one entry for an order.
//! * *Older messages of the worker.* Of several "forget" messages only the newest is kept, because a newer one may drop all
//!   that an older one may.
//! * *How long ago something was* that is over for everybody. Times are only compared with each other and with `now`, so the
//!   order among past times is enough. Endless time so becomes a finite number of states, and a trace shows shifted times.
//!   `short_form.rs` holds this against states with real times.
//! * *Lost data.* Redis keeps what it has answered. What a failover may lose is the subject of `recovery.rs` and `limit.rs`, and units that move from
//!   one segment to another that of `transfer.rs`: models of their own.
//!
//! # What is checked
//!
//! `properties.rs`: one taken per order, also after its unit has gone back; units conserved and never negative; home contradicts neither a segment nor what
//! somebody was told; the buyer's count and limit; and from *every* state, the workers alone finish and forget the walk and the return.
//! Each rule of the protocol is then left out alone, and the checker must find an order with two units, or a count that is wrong for good: a rule that could be
//! left out without harm would be a rule that the model does not see.

#![allow(
    clippy::print_stdout,
    reason = "the sizes and the traces are what a reader of a model wants to see"
)]

mod check;
mod limit;
mod properties;
mod recovery;
mod rules;
mod scripts;
mod short_form;
mod state;
mod transfer;
mod walk;

use self::{
    check::{assert_sound, find_counterexample},
    properties::{COUNT, LIMIT, SETTLED, TAKEN_ONCE, TAKES_ONCE_FOR_GOOD},
    rules::Rules,
    state::Order,
    walk::Walk,
};

const ONE_ORDER: Walk = Walk {
    rules: Rules::ALL,
    ring: 3,
    orders: 1,
    attempts: 4,
    units: 2,
    limit: 1,
    returns: false,
};
/// Two orders of one buyer who may have one. They meet only at home and over stock, so a shorter ring is enough.
const TWO_ORDERS: Walk = Walk {
    ring: 2,
    orders: 2,
    attempts: 1,
    ..ONE_ORDER
};

/// Orders are cancelled at any moment, and their units go back.
const RETURNS: Walk = Walk {
    attempts: 2,
    returns: true,
    ..ONE_ORDER
};
/// The second order is also a retake: the same buyer's, under another id, while the first one's unit goes back.
const RETAKE: Walk = Walk {
    returns: true,
    ..TWO_ORDERS
};

fn assert_takes_twice(rules: Rules) {
    let last = find_counterexample(
        Walk {
            rules,
            attempts: 3,
            ..ONE_ORDER
        },
        TAKEN_ONCE,
    );
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
fn a_unit_goes_back_once_and_its_order_never_takes_again() {
    assert_sound(RETURNS, 50_000);
}

#[test]
fn a_retake_stays_within_the_buyers_limit() {
    assert_sound(RETAKE, 1_000_000);
}

#[test]
#[ignore = "half a million states"]
fn a_unit_goes_back_once_and_its_order_never_takes_again_at_a_larger_size() {
    assert_sound(
        Walk {
            attempts: 3,
            ..RETURNS
        },
        400_000,
    );
}

#[test]
fn without_sticky_passed_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        sticky_passed: false,
        ..Rules::ALL
    });
}

#[test]
fn without_the_deadline_in_asks_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        deadline_in_asks: false,
        ..Rules::ALL
    });
}

#[test]
fn without_waiting_for_the_deadlines_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        wait_for_deadlines: false,
        ..Rules::ALL
    });
}

#[test]
fn without_home_last_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        home_last: false,
        ..Rules::ALL
    });
}

#[test]
fn with_passed_records_that_expire_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        passed_never_expires: false,
        ..Rules::ALL
    });
}

#[test]
fn with_forget_passes_that_does_not_know_its_walk_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        forget_passes_knows_its_walk: false,
        ..Rules::ALL
    });
}

#[test]
fn with_forget_walk_that_does_not_know_its_walk_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        forget_walk_knows_its_walk: false,
        ..Rules::ALL
    });
}

#[test]
fn without_the_deadline_in_finish_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        deadline_in_finish: false,
        ..Rules::ALL
    });
}

#[test]
fn with_only_the_first_deadline_remembered_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        home_remembers_the_latest_deadline: false,
        ..Rules::ALL
    });
}

#[test]
fn without_a_margin_for_the_clocks_the_checker_finds_a_double_take() {
    assert_takes_twice(Rules {
        margin_covers_the_clocks: false,
        ..Rules::ALL
    });
}

#[test]
fn without_home_last_a_crash_strands_a_passed_record() {
    let rules = Rules {
        home_last: false,
        ..Rules::ALL
    };
    find_counterexample(Walk { rules, ..ONE_ORDER }, SETTLED);
}

#[test]
fn without_the_deadline_in_finish_a_buyer_gets_more_than_the_limit() {
    let rules = Rules {
        deadline_in_finish: false,
        ..Rules::ALL
    };
    let walk = Walk {
        rules,
        // The outcome of the first walk is still under way when the second attempt sets out.
        attempts: 2,
        ..TWO_ORDERS
    };
    let last = find_counterexample(walk, LIMIT);
    assert_eq!(last.orders.iter().map(Order::times_taken).sum::<usize>(), 2);
}

#[test]
fn without_sticky_released_a_repeat_takes_again() {
    let rules = Rules {
        released_is_remembered: false,
        ..Rules::ALL
    };
    find_counterexample(Walk { rules, ..RETURNS }, TAKES_ONCE_FOR_GOOD);
}

#[test]
fn with_a_count_that_comes_back_twice_the_buyers_count_is_too_low() {
    let rules = Rules {
        count_comes_back_once: false,
        ..Rules::ALL
    };
    find_counterexample(Walk { rules, ..RETAKE }, COUNT);
}

#[test]
fn with_the_unit_back_before_the_count_a_crash_leaves_a_count_that_nobody_knows_of() {
    let rules = Rules {
        count_comes_back_first: false,
        ..Rules::ALL
    };
    find_counterexample(Walk { rules, ..RETURNS }, SETTLED);
}

#[test]
fn without_the_count_of_rejected_orders_a_buyer_is_counted_for_ever() {
    let rules = Rules {
        rejected_gives_its_count_back: false,
        ..Rules::ALL
    };
    find_counterexample(Walk { rules, ..RETURNS }, SETTLED);
}
