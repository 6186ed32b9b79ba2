//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    rules::{CLOCK_ERROR, PATIENCE, Time},
    scripts::due_walk,
    state::{Answer, Attempt, HOME, Order, Return, ReturnStage, SEGMENTS, Stage, State},
    walk::{Step, Walk},
};

/// Never two units for one order.
pub const TAKEN_ONCE: &str = "at most one segment has taken for an order";
/// A repeat of an order whose unit has gone back does not take another one.
pub const TAKES_ONCE_FOR_GOOD: &str = "an order takes once, also after its unit has gone back";
/// Home counts what is taken or may still be.
pub const COUNT: &str = "the buyer's count is the orders that are taken or unfinished";
/// Never more orders than the buyer may have.
pub const LIMIT: &str = "a buyer never holds more than the limit";
/// Every walk ends, and leaves nothing behind.
pub const SETTLED: &str = "the worker alone finishes and forgets every walk";

/// Everything that is checked of the protocol.
pub fn all(walk: &Walk) -> Vec<Property<Walk>> {
    let mut all = of_every_walk();
    if walk.returns {
        all.extend(of_returns());
    }
    all
}

/// Without these, nothing would have been said of returns.
fn of_returns() -> [Property<Walk>; 3] {
    [
        Property::sometimes(
            "a repeat is under way while the unit goes back, and home has not heard that it was taken",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Answer::Passed
                        && order.giving_back.is_some()
                        && under_way_of(order) > 0
                })
            },
        ),
        Property::sometimes(
            "the walk of an order that was given back is taken off the list",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Answer::Released
                        && !order.in_walks
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

fn of_every_walk() -> Vec<Property<Walk>> {
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
        Property::always(COUNT, the_count_is_right),
        Property::always(LIMIT, the_limit_holds),
        Property::always(SETTLED, the_worker_settles_everything),
        Property::sometimes(
            "an order takes at the last segment",
            |walk: &Walk, state: &State| {
                state
                    .orders
                    .iter()
                    .any(|order| took_at(order, walk.ring - 1))
            },
        ),
        Property::sometimes("a walk ends sold out", |_, state: &State| {
            any(state, |order| order.home() == Answer::SoldOut)
        }),
        Property::sometimes("a sold-out walk is forgotten", |_, state: &State| {
            any(state, was_forgotten)
        }),
        Property::sometimes(
            "a forgotten order walks anew and takes at home",
            |_, state: &State| {
                any(state, |order| {
                    took_at(order, HOME) && order.forgetting_home.is_some()
                })
            },
        ),
        Property::sometimes(
            "a forgotten order walks anew and takes elsewhere",
            |_, state: &State| any(state, walked_anew_and_took_elsewhere),
        ),
        Property::sometimes(
            "a walk that ended elsewhere is taken off the list",
            |_, state: &State| {
                any(state, |order| {
                    order.home() == Answer::TakenElsewhere && !order.in_walks
                })
            },
        ),
    ]
}

fn any(state: &State, condition: fn(&Order) -> bool) -> bool {
    state.orders.iter().any(condition)
}

fn took_at(order: &Order, segment: usize) -> bool {
    order.records[segment].answer == Answer::Taken
}

fn was_forgotten(order: &Order) -> bool {
    order.home() == Answer::None && order.forgetting_home.is_some()
}

fn walked_anew_and_took_elsewhere(order: &Order) -> bool {
    // The walk is not final, so what home was told to forget was an earlier one.
    order.home() == Answer::Passed && order.forgetting_home.is_some() && order.times_taken() == 1
}

fn no_unit_is_made_or_lost(walk: &Walk, state: &State) -> bool {
    let taken: usize = state.orders.iter().map(Order::times_taken).sum();
    let available: i8 = state.available.iter().sum();
    state.available.iter().all(|available| *available >= 0)
        && state.outside + available + taken as i8 == walk.units
}

fn home_agrees(order: &Order) -> bool {
    let elsewhere = (HOME + 1..SEGMENTS).any(|segment| {
        matches!(
            order.records[segment].answer,
            Answer::Taken | Answer::Released
        )
    });
    match order.home() {
        Answer::None | Answer::SoldOut => !elsewhere && !order.promised,
        Answer::Passed => order.promised == elsewhere,
        Answer::Taken => order.promised,
        Answer::TakenElsewhere => order.promised && elsewhere,
        Answer::Released => order.promised && order.giving_back.is_some(),
    }
}

fn the_count_is_right(_: &Walk, state: &State) -> bool {
    let counted = state
        .orders
        .iter()
        .filter(|order| order.is_counted())
        .count();
    usize::from(state.counted) == counted
}

fn the_limit_holds(walk: &Walk, state: &State) -> bool {
    state.orders.iter().filter(|order| order.is_held()).count() <= usize::from(walk.limit)
}

/// Whatever the crashes left, a worker that nobody disturbs comes to an end, and nothing of a finished walk stays.
///
/// It is run from every state. A search for states without a way out would find less: a worker that does one thing for ever
/// always has a way out. Units do not come and go meanwhile, but the state before every such move is checked as well.
fn the_worker_settles_everything(walk: &Walk, state: &State) -> bool {
    (0..walk.orders).all(|order| {
        let mut state = *state;
        give_back(walk, &mut state, order);
        work_off(walk, &mut state, order);
        let Order {
            records, in_walks, ..
        } = &state.orders[order];
        let nothing_is_left = !in_walks
            && records
                .iter()
                .all(|record| !matches!(record.answer, Answer::Passed | Answer::SoldOut));
        nothing_is_left && state.orders[order].is_counted() == state.orders[order].is_held()
    })
}

/// Whoever works off the returns begins anew with each that the ledger lists.
fn give_back(walk: &Walk, state: &mut State, order: usize) {
    let Some(Return { segment, stage }) = state.orders[order].giving_back else {
        return;
    };
    if stage < ReturnStage::Recorded {
        if usize::from(segment) != HOME {
            walk.take(state, Step::GiveBackCount { order });
        }
        walk.take(state, Step::Release { order });
        walk.take(state, Step::RecordReturn { order });
    }
}

fn work_off(walk: &Walk, state: &mut State, order: usize) {
    outwait_every_deadline(walk, state, order);
    if state.orders[order].in_walks && state.orders[order].home() == Answer::Passed {
        repeat(walk, state, order, state.now);
        outwait_every_deadline(walk, state, order);
    }
    if due_walk(walk.rules, state, order).is_some() {
        walk.take(state, Step::FindDue { order });
        if walk.rules.home_last {
            forget_elsewhere(walk, state, order);
            walk.take(state, Step::ForgetWalk { order });
        } else {
            walk.take(state, Step::ForgetWalk { order });
            forget_elsewhere(walk, state, order);
        }
    }
}

fn forget_elsewhere(walk: &Walk, state: &mut State, order: usize) {
    for segment in HOME + 1..walk.ring {
        walk.take(state, Step::ForgetPasses { order, segment });
    }
}

fn outwait_every_deadline(walk: &Walk, state: &mut State, order: usize) {
    for _ in 0..=PATIENCE + 2 * CLOCK_ERROR {
        walk.take(state, Step::Tick);
    }
    state.orders[order].attempts = Default::default();
}

fn repeat(walk: &Walk, state: &mut State, order: usize, deadline: Time) {
    walk.take(state, Step::Start { order, deadline });
    for segment in 0..walk.ring {
        if let Some(attempt) =
            under_way(state, order).filter(|attempt| attempt.stage == Stage::Asking(segment as u8))
        {
            walk.take(
                state,
                Step::Ask {
                    order,
                    attempt,
                    segment,
                },
            );
        }
    }
    if let Some(attempt) = under_way(state, order).filter(|attempt| attempt.stage.finishes()) {
        walk.take(state, Step::Finish { order, attempt });
    }
}

fn under_way(state: &State, order: usize) -> Option<Attempt> {
    state.orders[order].attempts.into_iter().flatten().next()
}
