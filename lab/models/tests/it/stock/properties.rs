//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    rules::{CLOCK_ERROR, PATIENCE, Time},
    scripts::due_spillover,
    spillover::{Spillover, Step},
    state::{Attempt, Decision, End, HOME, Order, Return, ReturnStage, SEGMENTS, Stage, State},
};

/// Never two units for one order.
pub const TAKEN_ONCE: &str = "at most one segment has taken for an order";
/// A repeat of an order whose unit has gone back does not take another one.
pub const TAKES_ONCE_FOR_GOOD: &str = "an order takes once, also after its unit has gone back";
/// "Sold out" is said of an order that has no unit, and gets none.
pub const REFUSED: &str = "an order that was told sold out has no unit";
/// Home counts what is taken or may still be.
pub const COUNT: &str = "the buyer's count is the orders that are taken or unfinished";
/// Never more orders than the buyer may have.
pub const LIMIT: &str = "a buyer never holds more than the limit";
/// Every spillover ends, and leaves nothing behind.
pub const SETTLED: &str = "the worker alone finishes and forgets every spillover";

/// Everything that is checked of the protocol.
pub fn all(spillover: &Spillover) -> Vec<Property<Spillover>> {
    let mut all = of_every_spillover();
    if spillover.returns {
        all.extend(of_returns());
    }
    if spillover.rounds > 0 {
        all.extend(of_rounds());
    }
    if spillover.gives_up {
        all.extend(of_orders_given_up());
    }
    if spillover.loses {
        all.push(Property::sometimes(
            "home has lost a round that another segment has declined",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Decision::Declined
                        && order.records[HOME].round < order.records[HOME + 1].round
                })
            },
        ));
    }
    all
}

/// Without these, nothing would have been said of later rounds.
fn of_rounds() -> [Property<Spillover>; 3] {
    [
        Property::sometimes("home takes in a later round", |_, state: &State| {
            any(state, |order| took_later_at(order, HOME))
        }),
        Property::sometimes(
            "another segment takes in a later round",
            |_, state: &State| any(state, |order| took_later_at(order, HOME + 1)),
        ),
        Property::sometimes("a later round ends sold out", |_, state: &State| {
            any(state, |order| {
                order.home() == Decision::SoldOut && order.records[HOME].round > 0
            })
        }),
    ]
}

/// Without these, nothing would have been said of orders that are given up.
fn of_orders_given_up() -> [Property<Spillover>; 3] {
    [
        Property::sometimes(
            "an order that was given up is reopened",
            |_, state: &State| any(state, was_reopened),
        ),
        Property::sometimes("an order that was reopened takes", |_, state: &State| {
            any(state, |order| {
                was_reopened(order) && order.times_taken() > 0
            })
        }),
        Property::sometimes(
            "an order is reopened while the others forget it",
            |_, state: &State| {
                any(state, |order| {
                    was_reopened(order)
                        && order.forgetting.is_some_and(|forgetting| {
                            Some(forgetting.until) < order.records[HOME].deadline
                        })
                })
            },
        ),
    ]
}

fn was_reopened(order: &Order) -> bool {
    let mut attempts = order.attempts.iter().flatten();
    attempts.any(|attempt| attempt.since_round > 0)
}

fn took_later_at(order: &Order, segment: usize) -> bool {
    let mut attempts = order.attempts.iter().flatten();
    took_at(order, segment) && attempts.any(|attempt| attempt.round > 0)
}

/// Without these, nothing would have been said of returns.
fn of_returns() -> [Property<Spillover>; 3] {
    [
        Property::sometimes(
            "a repeat is under way while the unit goes back, and home has not heard that it was taken",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Decision::Declined
                        && order.giving_back.is_some()
                        && under_way_of(order) > 0
                })
            },
        ),
        Property::sometimes(
            "the spillover of a released order is taken off the list",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Decision::Released
                        && !order.in_spillovers
                        && order.forgetting_home.is_some()
                })
            },
        ),
        Property::sometimes("a return is over", |_, state: &State| {
            any(state, |order| {
                order
                    .giving_back
                    .is_some_and(|giving_back| giving_back.stage == ReturnStage::Recorded)
            })
        }),
    ]
}

fn under_way_of(order: &Order) -> usize {
    order.attempts.iter().flatten().count()
}

fn of_every_spillover() -> Vec<Property<Spillover>> {
    vec![
        Property::always(TAKEN_ONCE, |_, state: &State| {
            state.orders.iter().all(|order| order.times_taken() <= 1)
        }),
        Property::always(TAKES_ONCE_FOR_GOOD, |_, state: &State| {
            state.orders.iter().all(|order| order.takes <= 1)
        }),
        Property::always("no unit is made or lost", no_unit_is_made_or_lost),
        Property::always(
            "home never contradicts a segment or itself",
            |_, state: &State| state.orders.iter().all(home_agrees),
        ),
        Property::always(REFUSED, |_, state: &State| {
            state
                .orders
                .iter()
                .all(|order| !order.refused || order.times_taken() == 0)
        }),
        Property::always(COUNT, the_count_is_right),
        Property::always(LIMIT, the_limit_holds),
        Property::always(SETTLED, the_worker_settles_everything),
        Property::sometimes(
            "an order takes at the last segment",
            |spillover: &Spillover, state: &State| {
                state
                    .orders
                    .iter()
                    .any(|order| took_at(order, spillover.ring - 1))
            },
        ),
        Property::sometimes("a spillover ends sold out", |_, state: &State| {
            any(state, |order| order.home() == Decision::SoldOut)
        }),
        Property::sometimes("a sold-out spillover is forgotten", |_, state: &State| {
            any(state, was_forgotten)
        }),
        Property::sometimes(
            "a forgotten order is reserved again and takes at home",
            |_, state: &State| {
                any(state, |order| {
                    took_at(order, HOME) && order.forgetting_home.is_some()
                })
            },
        ),
        Property::sometimes(
            "a forgotten order is reserved again and takes elsewhere",
            |_, state: &State| any(state, reserved_again_and_took_elsewhere),
        ),
        Property::sometimes(
            "a spillover that ended elsewhere is taken off the list",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Decision::TakenElsewhere && !order.in_spillovers
                })
            },
        ),
    ]
}

fn any(state: &State, condition: fn(&Order) -> bool) -> bool {
    state.orders.iter().any(condition)
}

fn took_at(order: &Order, segment: usize) -> bool {
    order.records[segment].decision == Decision::Taken
}

fn was_forgotten(order: &Order) -> bool {
    order.home() == Decision::None && order.forgetting_home.is_some()
}

fn reserved_again_and_took_elsewhere(order: &Order) -> bool {
    // The spillover is not final, so the request to forget was about an earlier one.
    order.home() == Decision::Declined
        && order.forgetting_home.is_some()
        && order.times_taken() == 1
}

fn no_unit_is_made_or_lost(spillover: &Spillover, state: &State) -> bool {
    let taken: usize = state.orders.iter().map(Order::times_taken).sum();
    let available: i8 = state.available.iter().sum();
    state.available.iter().all(|available| *available >= 0)
        && state.outside + available + taken as i8 == spillover.units
}

fn home_agrees(order: &Order) -> bool {
    let elsewhere = (HOME + 1..SEGMENTS).any(|segment| {
        matches!(
            order.records[segment].decision,
            Decision::Taken | Decision::Released
        )
    });
    match order.home() {
        Decision::None | Decision::SoldOut | Decision::GivenUp => !elsewhere && !order.promised,
        Decision::Declined => order.promised == elsewhere,
        Decision::Taken => order.promised,
        Decision::TakenElsewhere => order.promised && elsewhere,
        Decision::Released => order.promised && order.giving_back.is_some(),
    }
}

fn the_count_is_right(_: &Spillover, state: &State) -> bool {
    let counted = state
        .orders
        .iter()
        .filter(|order| order.is_counted())
        .count();
    usize::from(state.counted) == counted
}

fn the_limit_holds(spillover: &Spillover, state: &State) -> bool {
    state.orders.iter().filter(|order| order.is_held()).count() <= usize::from(spillover.limit)
}

/// Whatever the crashes left, an undisturbed worker comes to an end, and nothing of a
/// finished spillover stays.
///
/// It is run from every state. A search for states without a way out would find less: a worker that
/// does one thing for ever always has a way out. Units do not come and go meanwhile, but the state
/// before every such move is checked as well.
fn the_worker_settles_everything(spillover: &Spillover, state: &State) -> bool {
    (0..spillover.orders).all(|order| {
        let mut state = *state;
        release(spillover, &mut state, order);
        work_off(spillover, &mut state, order);
        let Order {
            records,
            in_spillovers,
            ..
        } = &state.orders[order];
        let nothing_is_left =
            !in_spillovers && records.iter().all(|record| !is_unfinished(record.decision));
        nothing_is_left && state.orders[order].is_counted() == state.orders[order].is_held()
    })
}

fn is_unfinished(decision: Decision) -> bool {
    matches!(
        decision,
        Decision::Declined | Decision::SoldOut | Decision::GivenUp
    )
}

/// The worker for returns starts again with each one that the ledger lists.
fn release(spillover: &Spillover, state: &mut State, order: usize) {
    let Some(Return { segment, stage }) = state.orders[order].giving_back else {
        return;
    };
    if stage < ReturnStage::Recorded {
        if usize::from(segment) != HOME {
            spillover.take(state, Step::ReleaseCount { order });
        }
        spillover.take(state, Step::Release { order });
        spillover.take(state, Step::RecordReturn { order });
    }
}

fn work_off(spillover: &Spillover, state: &mut State, order: usize) {
    outwait_every_deadline(spillover, state, order);
    if state.orders[order].in_spillovers && state.orders[order].home() == Decision::Declined {
        repeat(spillover, state, order, state.now);
        outwait_every_deadline(spillover, state, order);
    }
    if due_spillover(spillover.rules, state, order).is_some() {
        spillover.take(state, Step::FindDue { order });
        if spillover.rules.home_last {
            forget_elsewhere(spillover, state, order);
            spillover.take(state, Step::ForgetSpillover { order });
        } else {
            spillover.take(state, Step::ForgetSpillover { order });
            forget_elsewhere(spillover, state, order);
        }
    }
}

fn forget_elsewhere(spillover: &Spillover, state: &mut State, order: usize) {
    for segment in HOME + 1..spillover.ring {
        spillover.take(state, Step::ForgetDeclined { order, segment });
    }
}

fn outwait_every_deadline(spillover: &Spillover, state: &mut State, order: usize) {
    for _ in 0..=PATIENCE + 2 * CLOCK_ERROR {
        spillover.take(state, Step::Tick);
    }
    state.orders[order].attempts = Default::default();
}

fn repeat(spillover: &Spillover, state: &mut State, order: usize, deadline: Time) {
    spillover.take(state, Step::Start { order, deadline });
    for segment in 0..spillover.ring {
        if let Some(attempt) =
            under_way(state, order).filter(|attempt| attempt.stage == Stage::Asking(segment as u8))
        {
            spillover.take(
                state,
                Step::Reservation {
                    order,
                    attempt,
                    segment,
                },
            );
        }
    }
    if let Some(attempt) = under_way(state, order).filter(|attempt| attempt.stage.finishes()) {
        let (round, end) = (attempt.round, end_of(attempt.stage));
        spillover.take(
            state,
            Step::Finish {
                order,
                attempt,
                end,
                round,
            },
        );
    }
}

fn end_of(stage: Stage) -> End {
    match stage {
        Stage::AllDeclined => End::SoldOut,
        Stage::Asking(_) | Stage::TookAt(_) => End::Elsewhere,
    }
}

fn under_way(state: &State, order: usize) -> Option<Attempt> {
    state.orders[order].attempts.into_iter().flatten().next()
}
