//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    shards::Shards,
    state::{Event, Order, State},
};

/// The promise.
pub const LIMIT: &str = "the ledger gives no buyer more than the limit";

/// Everything that is checked.
pub fn all() -> Vec<Property<Shards>> {
    vec![
        Property::always(LIMIT, |shards: &Shards, state: &State| {
            state.held() <= shards.limit
        }),
        // A repair alone is enough for it: what is on its way from home is forgotten by it, too.
        Property::always(
            "where nothing is forgotten nothing is rejected",
            |_, state: &State| {
                let repaired = state
                    .home
                    .iter()
                    .any(|event| matches!(event, Event::Repaired { .. }));
                repaired || state.failovers > 0 || !state.orders.contains(&Order::Rejected)
            },
        ),
        Property::sometimes(
            "home forgets what it let go on, and its outbox is whole",
            |_, state: &State| {
                state.failovers > 0
                    && state.next_at_home().is_some()
                    && state.off_home_recorded > 0
                    && !state.home.contains(&Event::LetGo(state.other[0]))
            },
        ),
        Property::sometimes("a off_home is held", |_, state: &State| {
            state
                .other
                .iter()
                .any(|order| state.orders[*order] == Order::Held)
        }),
        Property::sometimes("a off_home is rejected", |_, state: &State| {
            state
                .other
                .iter()
                .any(|order| state.orders[*order] == Order::Rejected)
        }),
        Property::sometimes("an order that home took is rejected", |_, state: &State| {
            state.home.iter().any(|event| matches!(event, Event::Took(order) if state.orders[*order] == Order::Rejected))
        }),
        Property::sometimes(
            "home counts too little after it was repaired",
            |_, state: &State| matches!(state.home.last(), Some(Event::Repaired { counted }) if *counted < state.held()),
        ),
    ]
}
