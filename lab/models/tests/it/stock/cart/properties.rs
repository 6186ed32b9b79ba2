//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::saga::{Actor, Cart, End, LINES, Order, Saga, Segment, State, Step, Time};

/// The promise to the buyer.
pub const ALL_OR_NONE: &str = "no cart is half sold, ever";
/// What `held` means.
pub const HELD: &str = "a held cart has the units of every line";
/// What the end of a hold means: no line's is over before its cart's.
pub const HALF_EXPIRED: &str = "no cart is half expired, ever";
/// A cart does not fail because a reconciler was fast.
pub const IN_TIME: &str = "a cart fails because a line was refused, or after its deadline";
/// Whatever crashed, units come back, and not only at the end of their hold.
pub const FREED: &str = "the reconciler frees every unit of a cart that is not sold";

/// Everything that is checked.
pub fn all() -> Vec<Property<Saga>> {
    vec![
        Property::always(ALL_OR_NONE, |_, state: &State| is_all_or_none(state)),
        Property::always(HELD, |_, state: &State| {
            !is(state, Cart::Held) || all_are(state, Order::Held)
        }),
        Property::always(HALF_EXPIRED, |_, state: &State| !is_half_expired(state)),
        Property::always(IN_TIME, |_, state: &State| {
            !is(state, Cart::Failed) || state.refused || state.time >= Time::Deadline
        }),
        Property::always(FREED, the_reconciler_frees_every_unit),
        Property::sometimes("a cart is sold", |_, state: &State| {
            is(state, Cart::Confirmed)
        }),
        Property::sometimes("a cart expires", |_, state: &State| {
            is(state, Cart::Expired)
        }),
        Property::sometimes("an extended cart outlives its first end", |_, state| {
            is(state, Cart::Held) && is_extended(state) && state.has_passed(End::First)
        }),
        Property::sometimes("an extended cart is sold", |_, state| {
            is(state, Cart::Confirmed) && is_extended(state)
        }),
        Property::sometimes("an extended cart expires", |_, state| {
            is(state, Cart::Expired) && is_extended(state)
        }),
        Property::sometimes("a cart is cancelled", |_, state: &State| {
            is(state, Cart::Cancelled)
        }),
        Property::sometimes("a cart fails with a line that took its unit", |_, state| {
            is(state, Cart::Failed) && state.segments.contains(&Segment::Taken)
        }),
        Property::sometimes(
            "a line is recorded after its cart has failed",
            |_, state| is(state, Cart::Failed) && state.orders.contains(&Order::Held),
        ),
        Property::sometimes("a repeat places the cart", |_, state: &State| {
            is(state, Cart::Held) && state.row.is_some_and(|row| row.version > 2)
        }),
    ]
}

fn is(state: &State, cart: Cart) -> bool {
    state.row.is_some_and(|row| row.state == cart)
}

fn is_extended(state: &State) -> bool {
    state.row.is_some_and(|row| row.end == End::Extended)
}

/// The cart is held and its time is not over, but that of a line is.
fn is_half_expired(state: &State) -> bool {
    let is_held = |end| is(state, Cart::Held) && !state.has_passed(end);
    let is_over = state.ends.iter().any(|end| state.has_passed(*end));
    state.row.is_some_and(|row| is_held(row.end)) && is_over
}

fn all_are(state: &State, order: Order) -> bool {
    state.orders.iter().all(|line| *line == order)
}

fn is_all_or_none(state: &State) -> bool {
    let is_sold = is(state, Cart::Confirmed);
    let no_line_is = state.orders.iter().all(|line| *line != Order::Confirmed);
    if is_sold {
        all_are(state, Order::Confirmed)
    } else {
        no_line_is
    }
}

/// From every state: no request goes on, all holds of the cart end, none of a line by itself, and
/// the recorder and the reconciler work. A cart that was never written has no lines that a
/// reconciler could know of.
fn the_reconciler_frees_every_unit(saga: &Saga, state: &State) -> bool {
    if state.row.is_none() || is(state, Cart::Confirmed) {
        return true;
    }
    let (mut state, actor) = (*state, Actor::Reconciler);
    for _ in 0..2 {
        saga.step(&mut state, Step::Tick);
        saga.step(&mut state, Step::EndPasses);
    }
    for _ in 0..3 {
        for line in 0..LINES {
            if (state.segments[line], state.orders[line]) == (Segment::Taken, Order::Unknown) {
                saga.step(&mut state, Step::Record { line });
            }
        }
        let is_looked_at = state.row.is_some_and(|row| !row.settled);
        if is_looked_at {
            let is_late = false;
            saga.step(&mut state, Step::Act { actor, is_late });
        }
        for line in 0..LINES {
            if state.orders[line] == Order::Ended && state.segments[line] == Segment::Taken {
                saga.step(&mut state, Step::Return { line });
            }
        }
    }
    !state.segments.contains(&Segment::Taken)
}
