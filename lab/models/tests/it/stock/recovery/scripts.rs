//! The scripts of `lua/` that change a segment, as functions of the state: whether they changed
//! something.

use super::{
    rules::Rules,
    segment::{Decision, Effect, Segment, Token},
    state::{RepairPlan, State},
};

/// The segment, unless it is being repaired.
fn at_work(state: &State) -> Option<Segment> {
    state
        .segment()
        .filter(|segment| segment.repairing.is_none())
}

/// `reserve_home`: takes, if the order is new, its buyer may have one more, and there is a unit.
pub fn reservation(limit: u8, state: &State, order: usize) -> Option<Effect> {
    let segment = at_work(state)?;
    let takes = segment.decisions[order] == Decision::None
        && segment.counted < limit
        && segment.available > 0;
    takes.then_some(Effect::Taken(order))
}

/// `release`: gives the unit back, if it is the order's.
pub fn release(state: &State, order: usize) -> Option<Effect> {
    let segment = at_work(state)?;
    (segment.decisions[order] == Decision::Taken).then_some(Effect::Released(order))
}

/// `transfer_in` or `transfer_out` of one unit.
pub fn transfer(state: &State, comes: bool, token: Token) -> Option<Effect> {
    let segment = at_work(state)?;
    let moves = segment.transferred.is_none() && segment.fence <= token;
    moves.then_some(Effect::Transferred(if comes {
        1
    } else {
        -segment.available.min(1)
    }))
}

/// `halt_segment`: a segment that is gone is made again.
pub fn halt(rules: Rules, state: &State, token: Token, drops: bool) -> Option<Effect> {
    let fence = state.segment().map_or(0, |segment| segment.fence);
    (fence <= token || !rules.scripts_know_the_token).then_some(Effect::Halted { token, drops })
}

/// `restore_orders`
pub fn restore(rules: Rules, state: &State, token: Token, decision: &RepairPlan) -> Option<Effect> {
    let segment = halted(rules, state, token)?;
    let as_read = segment.last == decision.last || !rules.restore_knows_the_last_entry;
    as_read.then(|| Effect::Restored(decision.ledger.memory(rules)))
}

/// `adjust`
pub fn adjust(rules: Rules, state: &State, token: Token, decision: &RepairPlan) -> Option<Effect> {
    let segment = halted(rules, state, token)?;
    let as_read = segment.last == decision.last || !rules.adjust_knows_the_last_entry;
    let restored = segment.restored || !rules.adjust_knows_of_the_restore;
    (as_read && restored).then_some(Effect::Adjusted(decision.ledger.available))
}

fn halted(rules: Rules, state: &State, token: Token) -> Option<Segment> {
    state
        .segment()
        .filter(|segment| segment.repairing == Some(token) || !rules.scripts_know_the_token)
}
