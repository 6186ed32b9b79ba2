//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::reports::{ATTEMPTS_MAX, Cart, LINES, LateCart, REPORTS, State, Step, Unit, Word};

/// The promise to the buyer.
pub const ALL_OR_NONE: &str = "a late payment pays all lines of a cart or none";
/// What `confirmed` means.
pub const SOLD: &str = "a sold cart has the units of every line";
/// What was answered stays true.
pub const KEPT: &str = "the payment that paid the cart is the one that was acknowledged";
/// The promise to a buyer who pays late.
pub const DUE: &str = "money is due only if a rival had a unit, or no attempt is left";
/// Whatever crashed, units come back.
pub const FREED: &str = "every unit of a cart that is not sold is free in the end";

/// Everything that is checked.
pub fn all() -> Vec<Property<LateCart>> {
    vec![
        Property::always(ALL_OR_NONE, |_, state: &State| agrees(state)),
        Property::always(SOLD, |_, state: &State| {
            state.cart != Cart::Confirmed || (0..LINES).all(|line| has_its_unit(state, line))
        }),
        Property::always(KEPT, |_, state: &State| {
            let mut answers = state.acknowledged.iter().flatten();
            answers.all(|payment| state.payment == Some(*payment))
        }),
        Property::always(DUE, |_, state: &State| {
            state.cart != Cart::RefundDue || state.was_refused
        }),
        Property::always(FREED, every_unit_is_free_in_the_end),
        Property::sometimes("a cart that is paid late is sold", |_, state: &State| {
            state.cart == Cart::Confirmed
        }),
        Property::sometimes(
            "a cart is sold by its last attempts",
            |late: &LateCart, state: &State| {
                let mut lines = state.orders.iter();
                state.cart == Cart::Confirmed && lines.all(|line| line.attempt == late.attempts)
            },
        ),
        Property::sometimes(
            "its lines have other attempts",
            |late: &LateCart, state: &State| {
                let [one, other] = state.orders.map(|line| line.attempt);
                state.cart == Cart::Confirmed && (one != other || late.attempts == 1)
            },
        ),
        Property::sometimes("money is due", |_, state: &State| {
            state.cart == Cart::RefundDue
        }),
        Property::sometimes(
            "a line that took units goes back with its cart",
            |_, state: &State| state.cart == Cart::RefundDue && state.orders[0].attempt > 0,
        ),
        Property::sometimes("a line is recorded after its cart", |_, state: &State| {
            let late = (0..LINES).any(|line| state.next_to_record(line).is_some());
            state.cart == Cart::RefundDue && late
        }),
        Property::sometimes("an abandoned line expires alone", |_, state: &State| {
            let word = Word::Expired;
            state.cart == Cart::Expired
                && state
                    .orders
                    .iter()
                    .any(|order| order.word == word && order.attempt > 0)
        }),
        Property::sometimes(
            "two reports of one payment are acknowledged",
            |late: &LateCart, state: &State| {
                let is_one = late.payments[0] == late.payments[1];
                let acknowledged = state.acknowledged.iter().flatten().count();
                acknowledged == if is_one { REPORTS } else { 1 }
            },
        ),
    ]
}

/// Whether the lines are in the state of their cart. While it is expired, a line may be held: it
/// has taken its units again.
fn agrees(state: &State) -> bool {
    let are = |word: Word| state.orders.iter().all(|order| order.word == word);
    match state.cart {
        Cart::Expired => state
            .orders
            .iter()
            .all(|order| matches!(order.word, Word::Expired | Word::Held)),
        Cart::Confirmed => are(Word::Confirmed),
        Cart::RefundDue => are(Word::RefundDue),
    }
}

fn has_its_unit(state: &State, line: usize) -> bool {
    state.units[line] == Unit::Own(state.orders[line].attempt)
}

/// From every state: no report goes on, all holds end, and recorder, expirer and returns work.
fn every_unit_is_free_in_the_end(late: &LateCart, state: &State) -> bool {
    let mut state = *state;
    for line in 0..LINES {
        for _ in 0..=ATTEMPTS_MAX {
            late.step(&mut state, Step::Record { line });
            late.step(&mut state, Step::Look { line });
            late.step(&mut state, Step::Expire);
            late.step(&mut state, Step::Return { line });
        }
        late.step(&mut state, Step::Return { line });
    }
    let is_sold = state.cart == Cart::Confirmed;
    is_sold || !state.units.iter().any(|unit| matches!(unit, Unit::Own(_)))
}
