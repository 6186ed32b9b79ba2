//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    client::Protocol,
    state::{QUORUM, Stage, State},
};

/// No token is given twice.
pub const UNIQUE: &str = "tokens are unique";
/// A client that begins after another had a token gets a higher one.
pub const RISING: &str = "tokens rise in real time";
/// No holder is fenced out while it has the lock on a majority.
pub const INTACT: &str = "no client completes above a holder whose majority is intact";

/// Everything that is checked of the protocol.
pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(UNIQUE, |_, state: &State| !state.repeated),
        Property::always(RISING, |_, state: &State| !state.fell),
        Property::always(INTACT, |_, state: &State| !state.overruled),
        Property::sometimes(
            "every acquisition completes",
            |protocol: &Protocol, state: &State| {
                state.clients[..protocol.clients]
                    .iter()
                    .all(|client| client.acquired)
            },
        ),
        Property::sometimes(
            "a proposal that was too low is raised and completes",
            |protocol: &Protocol, state: &State| {
                protocol.proposals == 1
                    || state
                        .clients
                        .iter()
                        .any(|client| client.acquired && client.proposed.count_ones() > 1)
            },
        ),
        Property::sometimes(
            "two clients count themselves as holders",
            |_, state: &State| {
                state
                    .clients
                    .iter()
                    .filter(|client| client.stage == Stage::Holding)
                    .count()
                    > 1
            },
        ),
        Property::sometimes("a holder has lost it everywhere", |_, state: &State| {
            state
                .clients
                .iter()
                .enumerate()
                .any(|(index, client)| client.stage == Stage::Holding && state.locks_of(index) == 0)
        }),
        Property::sometimes(
            "a stale holder completes below a later one whose majority is intact",
            |_, state: &State| {
                state.clients.iter().enumerate().any(|(index, client)| {
                    let is_fenced_out = |other: &super::state::Client| {
                        other.stage == Stage::Holding && other.token < client.token
                    };
                    client.stage == Stage::Holding
                        && state.locks_of(index) >= QUORUM
                        && state.clients.iter().any(is_fenced_out)
                })
            },
        ),
    ]
}
