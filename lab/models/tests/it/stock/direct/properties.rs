//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    recorders::Recorders,
    state::{Effect, Order, State},
};

/// The promise to the other buyers.
pub const LIMIT: &str = "the ledger gives no buyer more than the limit";
/// The second invariant of ARCHITECTURE.md.
pub const EXPLAINED: &str = "the ledger and the outbox explain what the segment has given";
/// Whatever happened, it ends well.
pub const SETTLED: &str = "a recorder and a repair that nothing disturbs bring both to agree";

/// A repair is for what was lost.
pub const NEEDLESS: &str = "without a failover the anchor is there";

/// Everything that is checked.
pub fn all(recorders: &Recorders) -> Vec<Property<Recorders>> {
    let mut all = vec![
        Property::always(LIMIT, |recorders: &Recorders, state: &State| {
            state.ledger.held() <= recorders.limit
        }),
        Property::always(EXPLAINED, |_, state: &State| is_explained(state)),
        Property::always(SETTLED, |recorders: &Recorders, state: &State| {
            let mut state = state.clone();
            recorders.settle(&mut state);
            state.has(state.ledger.checkpoint)
                && state.behind_checkpoint().is_empty()
                && is_explained(&state)
        }),
        Property::always(NEEDLESS, |_, state: &State| {
            state.failovers > 0 || state.has(state.ledger.checkpoint)
        }),
        Property::always("no unit is sold twice", |_, state: &State| {
            state.ledger.available >= 0
        }),
        Property::sometimes("entries are recorded directly", |_, state: &State| {
            state.recorded_directly
        }),
        Property::sometimes(
            "entries that a crash left are found by a claim",
            |_, state: &State| {
                !state.recorded_directly
                    && state.recorders.iter().all(|memory| memory.fresh.is_empty())
                    && state.ledger.held() > 0
            },
        ),
    ];
    if recorders.failovers > 0 {
        all.push(Property::sometimes(
            "an entry is recorded after a failover has lost it, and a repair ends that",
            |_, state: &State| state.recorded_a_lost_one && state.repairs > 0,
        ));
    }
    if recorders.spillover {
        all.push(Property::sometimes(
            "an order at home is rejected because of one that was off home",
            |_, state: &State| {
                state.ledger.orders.contains(&Order::HeldOffHome)
                    && state.ledger.orders.contains(&Order::Rejected)
            },
        ));
    }
    all
}

/// Without its anchor the recorder stops, and a repair follows. A rejected order is released in its
/// own time.
fn is_explained(state: &State) -> bool {
    if !state.has(state.ledger.checkpoint) {
        return true;
    }
    let mut expected = state.ledger.held_here();
    for op in state.behind_checkpoint() {
        match op.effect {
            Effect::Took(order) => expected |= 1 << order,
            Effect::Set { held } => expected = held,
            Effect::LetGo(_) => {}
        }
    }
    let rejected = state.ledger.orders.iter().enumerate();
    let rejected =
        rejected.filter(|(_, order)| matches!(order, Order::Rejected | Order::HeldOffHome));
    let mask = rejected.fold(0_u8, |set, (order, _)| set | 1 << order);
    state.taken() & !mask == expected & !mask
}
