//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    ledger::{Ledger, Order, Transfer},
    mending::{Mending, Step},
    segment::{Effect, ORDERS},
    state::{LAST, Mender, Stage, State},
};

/// The second invariant of ARCHITECTURE.md, and the same for answers, counts and transfers. In a state of rest it says that both are equal.
pub const EXPLAINED: &str = "what the ledger and the outbox do not explain is never there";
/// No oversell.
pub const COVERED: &str = "the ledger covers what it holds";
/// Never more orders than the buyer may have.
pub const LIMIT: &str = "a buyer never holds more than the limit";
/// Whatever happened, mending ends.
pub const MENDED: &str =
    "whoever mends undisturbed brings every state to a rest in which both agree";

/// Everything that is checked of the protocol.
pub fn all(mending: &Mending) -> Vec<Property<Mending>> {
    let mut all = vec![
        Property::always(EXPLAINED, what_the_ledger_does_not_explain_is_not_there),
        Property::always(COVERED, the_ledger_covers_what_it_holds),
        Property::always(LIMIT, |mending: &Mending, state: &State| {
            state
                .ledger
                .orders
                .iter()
                .filter(|order| **order == Order::Held)
                .count()
                <= usize::from(mending.limit)
        }),
        Property::always(MENDED, whoever_mends_undisturbed_ends_it),
        Property::sometimes("a release is recorded", |_, state: &State| {
            state.ledger.orders.contains(&Order::Returned)
        }),
        Property::sometimes("mending ends after a failover", |_, state: &State| {
            state.failovers > 0 && any_mender(state, Stage::Done)
        }),
        Property::sometimes(
            "a segment is adjusted and the ledger never hears of it",
            the_anchor_is_unknown,
        ),
        Property::sometimes(
            "the recorder goes on over an adjusted entry",
            |_, state: &State| {
                state.ledger.fence > 0
                    && !any_mender(state, Stage::Done)
                    && state
                        .outbox()
                        .any(|op| is_adjusted_at(state, op.effect, op.id))
            },
        ),
    ];
    if mending.orders > 1 {
        all.push(Property::sometimes(
            "an order is rejected",
            |_, state: &State| state.ledger.orders.contains(&Order::Rejected),
        ));
    }
    if mending.transfer != Transfer::None {
        all.push(Property::sometimes(
            "the transfer is recorded",
            |_, state: &State| state.ledger.transfer.moved().is_some(),
        ));
    }
    all
}

fn any_mender(state: &State, stage: Stage) -> bool {
    state.menders.iter().any(|mender| mender.stage == stage)
}

fn is_adjusted_at(state: &State, effect: Effect, id: u8) -> bool {
    matches!(effect, Effect::Adjusted(_)) && id == state.ledger.checkpoint
}

/// Adjusted in Redis, and the decision will never be committed.
fn the_anchor_is_unknown(_: &Mending, state: &State) -> bool {
    state
        .menders
        .iter()
        .any(|mender| matches!(mender.stage, Stage::Adjusted(decision) if !decision.is_current))
}

fn what_the_ledger_does_not_explain_is_not_there(mending: &Mending, state: &State) -> bool {
    let Some(segment) = state.segment().filter(|segment| segment.mending.is_none()) else {
        return true;
    };
    let behind = mending.behind_checkpoint(state);
    // Without its anchor, or behind an `adjusted` that says something else, the recorder stops, and somebody will mend.
    let explained = behind.and_then(|entries| state.ledger.recorded(mending.rules, &entries));
    explained.is_none_or(|ledger| segment.agrees_with(&ledger))
}

fn the_ledger_covers_what_it_holds(mending: &Mending, state: &State) -> bool {
    let Ledger {
        available,
        transfer,
        ..
    } = state.ledger;
    let allocated = mending.units + transfer.moved().unwrap_or(0);
    available >= 0 && available + state.ledger.counted() as i8 == allocated
}

/// Like `settled` of the walk: from every state a new mender, the recorder and whoever works off the returns are left alone.
fn whoever_mends_undisturbed_ends_it(mending: &Mending, state: &State) -> bool {
    let mut state = state.clone();
    mend(mending, &mut state);
    finish_the_transfer(mending, &mut state);
    for order in 0..ORDERS {
        if state.ledger.orders[order] == Order::Returning {
            mending.take(&mut state, Step::Release { order });
        }
    }
    record(mending, &mut state);
    is_at_rest(mending, &state)
}

/// Somebody whose token is higher than all before.
fn mend(mending: &Mending, state: &mut State) {
    let mender = LAST;
    state.menders[mender] = Mender::default();
    let steps = [
        Step::Claim { mender },
        Step::Halt { mender },
        Step::Decide { mender },
        Step::Restore { mender },
    ];
    steps
        .into_iter()
        .chain([Step::Adjust { mender }, Step::Commit { mender }])
        .for_each(|step| mending.take(state, step));
}

fn finish_the_transfer(mending: &Mending, state: &mut State) {
    if mending.transfer != Transfer::None {
        mending.take(state, Step::Transfer { mender: LAST });
    }
}

fn record(mending: &Mending, state: &mut State) {
    let entries = mending
        .behind_checkpoint(state)
        .map_or(0, |behind| behind.len());
    mending.take(state, Step::RecorderReads { entries });
    mending.take(state, Step::RecorderWrites);
}

fn is_at_rest(mending: &Mending, state: &State) -> bool {
    let is_recorded = mending
        .behind_checkpoint(state)
        .is_some_and(|behind| behind.is_empty());
    let is_transferred =
        mending.transfer == Transfer::None || state.ledger.transfer.moved().is_some();
    let is_returned = !state.ledger.orders.contains(&Order::Returning);
    let agrees = state
        .segment()
        .is_some_and(|segment| segment.mending.is_none() && segment.agrees_with(&state.ledger));
    is_recorded && is_transferred && is_returned && agrees
}
