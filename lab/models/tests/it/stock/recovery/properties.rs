//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    ledger::{Ledger, Order, Transfer},
    repair::{Repairing, Step},
    segment::{Effect, ORDERS},
    state::{LAST, Repairer, Stage, State},
};

/// The second invariant of ARCHITECTURE.md, and the same for answers, counts and transfers. In a
/// state of rest it says that both are equal.
pub const EXPLAINED: &str = "what the ledger and the outbox do not explain is never there";
/// No oversell.
pub const COVERED: &str = "the ledger covers what it holds";
/// Never more orders than the buyer may have.
pub const LIMIT: &str = "a buyer never holds more than the limit";
/// Whatever happened, repair ends.
pub const REPAIRED: &str =
    "an undisturbed repairer brings every state to a rest in which both agree";

/// Everything that is checked of the protocol.
pub fn all(repairing: &Repairing) -> Vec<Property<Repairing>> {
    let mut all = vec![
        Property::always(EXPLAINED, what_the_ledger_does_not_explain_is_not_there),
        Property::always(COVERED, the_ledger_covers_what_it_holds),
        Property::always(LIMIT, |repairing: &Repairing, state: &State| {
            state
                .ledger
                .orders
                .iter()
                .filter(|order| **order == Order::Held)
                .count()
                <= usize::from(repairing.limit)
        }),
        Property::always(REPAIRED, an_undisturbed_repairer_ends_it),
        Property::sometimes("a release is recorded", |_, state: &State| {
            state.ledger.orders.contains(&Order::Returned)
        }),
        Property::sometimes("repairing ends after a failover", |_, state: &State| {
            state.failovers > 0 && any_repairer(state, Stage::Done)
        }),
        Property::sometimes(
            "a segment is adjusted and the ledger never records it",
            the_anchor_is_unknown,
        ),
        Property::sometimes(
            "the recorder goes on over an adjusted entry",
            |_, state: &State| {
                state.ledger.fence > 0
                    && !any_repairer(state, Stage::Done)
                    && state
                        .outbox()
                        .any(|op| is_adjusted_at(state, op.effect, op.id))
            },
        ),
    ];
    if repairing.orders > 1 {
        all.push(Property::sometimes(
            "an order is rejected",
            |_, state: &State| state.ledger.orders.contains(&Order::Rejected),
        ));
    }
    if repairing.transfer != Transfer::None {
        all.push(Property::sometimes(
            "the transfer is recorded",
            |_, state: &State| state.ledger.transfer.moved().is_some(),
        ));
    }
    all
}

fn any_repairer(state: &State, stage: Stage) -> bool {
    state
        .repairers
        .iter()
        .any(|repairer| repairer.stage == stage)
}

fn is_adjusted_at(state: &State, effect: Effect, id: u8) -> bool {
    matches!(effect, Effect::Adjusted(_)) && id == state.ledger.checkpoint
}

/// Adjusted in Redis, and the decision will never be committed.
fn the_anchor_is_unknown(_: &Repairing, state: &State) -> bool {
    state
        .repairers
        .iter()
        .any(|repairer| matches!(repairer.stage, Stage::Adjusted(decision) if !decision.is_current))
}

fn what_the_ledger_does_not_explain_is_not_there(repairing: &Repairing, state: &State) -> bool {
    let Some(segment) = state
        .segment()
        .filter(|segment| segment.repairing.is_none())
    else {
        return true;
    };
    let behind = repairing.behind_checkpoint(state);
    // Without its anchor, or behind an `adjusted` that says something else, the recorder stops, and
    // a repair follows.
    let explained = behind.and_then(|entries| state.ledger.recorded(repairing.rules, &entries));
    explained.is_none_or(|ledger| segment.agrees_with(&ledger))
}

fn the_ledger_covers_what_it_holds(repairing: &Repairing, state: &State) -> bool {
    let Ledger {
        available,
        transfer,
        ..
    } = state.ledger;
    let allocated = repairing.units + transfer.moved().unwrap_or(0);
    available >= 0 && available + state.ledger.counted() as i8 == allocated
}

/// Like `settled` of the spillover: from every state a new repairer, the recorder and the worker
/// for the returns are left alone.
fn an_undisturbed_repairer_ends_it(repairing: &Repairing, state: &State) -> bool {
    let mut state = state.clone();
    repair(repairing, &mut state);
    finish_the_transfer(repairing, &mut state);
    for order in 0..ORDERS {
        if state.ledger.orders[order] == Order::Returning {
            repairing.take(&mut state, Step::Release { order });
        }
    }
    record(repairing, &mut state);
    is_at_rest(repairing, &state)
}

/// A repairer whose token is higher than all before.
fn repair(repairing: &Repairing, state: &mut State) {
    let repairer = LAST;
    state.repairers[repairer] = Repairer::default();
    let steps = [
        Step::Claim { repairer },
        Step::Halt { repairer },
        Step::Decide { repairer },
        Step::Restore { repairer },
    ];
    steps
        .into_iter()
        .chain([Step::Adjust { repairer }, Step::Commit { repairer }])
        .for_each(|step| repairing.take(state, step));
}

fn finish_the_transfer(repairing: &Repairing, state: &mut State) {
    if repairing.transfer != Transfer::None {
        repairing.take(state, Step::Transfer { repairer: LAST });
    }
}

fn record(repairing: &Repairing, state: &mut State) {
    let entries = repairing
        .behind_checkpoint(state)
        .map_or(0, |behind| behind.len());
    repairing.take(state, Step::RecorderReads { entries });
    repairing.take(state, Step::RecorderWrites);
}

fn is_at_rest(repairing: &Repairing, state: &State) -> bool {
    let is_recorded = repairing
        .behind_checkpoint(state)
        .is_some_and(|behind| behind.is_empty());
    let is_transferred =
        repairing.transfer == Transfer::None || state.ledger.transfer.moved().is_some();
    let is_returned = !state.ledger.orders.contains(&Order::Returning);
    let agrees = state
        .segment()
        .is_some_and(|segment| segment.repairing.is_none() && segment.agrees_with(&state.ledger));
    is_recorded && is_transferred && is_returned && agrees
}
