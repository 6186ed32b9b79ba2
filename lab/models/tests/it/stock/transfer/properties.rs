//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    moving::{Moving, Step},
    state::{Entry, RECONCILERS, SEGMENTS, State, TRANSFERS, Transfer},
};

/// The item's identity.
pub const CONSERVED: &str = "the ledger has every unit: available, held or on its way";
/// Nothing is made or lost in Redis, either.
pub const EXPLAINED: &str = "the ledger and the outbox explain every segment";
/// Whatever crashed, transfers end.
pub const FINISHED: &str = "a newer reconciler finishes every transfer";

/// Everything that is checked.
pub fn all() -> Vec<Property<Moving>> {
    vec![
        Property::always(CONSERVED, every_unit_is_somewhere),
        Property::always(EXPLAINED, |_, state: &State| {
            (0..SEGMENTS).all(|segment| is_explained(state, segment))
        }),
        Property::always("nothing is ever less than none", |_, state: &State| {
            state.segments.iter().all(|segment| segment.available >= 0)
                && state.rows.iter().all(|row| row.available >= 0)
        }),
        Property::always(FINISHED, a_newer_reconciler_finishes),
        Property::sometimes("a unit goes there and back", |_, state: &State| {
            state.transfers == [Transfer::Done(1); TRANSFERS]
        }),
        Property::sometimes("nothing was left to move", |_, state: &State| {
            state.transfers.contains(&Transfer::Done(0))
        }),
        Property::sometimes("a unit that came is sold", |_, state: &State| {
            state.rows[1].held > 0
        }),
        Property::sometimes(
            "two reconcilers move the same transfer",
            |_, state: &State| state.sent[0][0].out && state.sent[1][0].out,
        ),
    ]
}

fn every_unit_is_somewhere(moving: &Moving, state: &State) -> bool {
    let in_rows: i8 = state.rows.iter().map(|row| row.available + row.held).sum();
    let on_the_way = state.transfers.iter().map(|transfer| {
        if let Transfer::Out(units) = transfer {
            *units
        } else {
            0
        }
    });
    in_rows + on_the_way.sum::<i8>() == moving.units
}

fn is_explained(state: &State, segment: usize) -> bool {
    let there = &state.segments[segment];
    let behind = there.outbox.iter().map(|entry| match entry {
        Entry::Taken(units) | Entry::Out { units, .. } => -units,
        Entry::In { units, .. } => *units,
    });
    state.rows[segment].available + behind.sum::<i8>() == there.available
}

/// From every state: whatever crashed, and whichever message never arrives.
fn a_newer_reconciler_finishes(moving: &Moving, state: &State) -> bool {
    let mut state = state.clone();
    let reconciler = RECONCILERS - 1;
    moving.take(&mut state, Step::Claim { reconciler });
    for transfer in 0..TRANSFERS {
        record_everything(moving, &mut state);
        if state.transfers[transfer] == Transfer::Planned {
            moving.take(
                &mut state,
                Step::SendOut {
                    reconciler,
                    transfer,
                },
            );
            moving.take(
                &mut state,
                Step::Out {
                    reconciler,
                    transfer,
                },
            );
            record_everything(moving, &mut state);
        }
        moving.take(
            &mut state,
            Step::SendIn {
                reconciler,
                transfer,
            },
        );
        moving.take(
            &mut state,
            Step::In {
                reconciler,
                transfer,
            },
        );
    }
    record_everything(moving, &mut state);
    state
        .transfers
        .iter()
        .all(|transfer| matches!(transfer, Transfer::None | Transfer::Done(_)))
}

fn record_everything(moving: &Moving, state: &mut State) {
    for segment in 0..SEGMENTS {
        while !state.segments[segment].outbox.is_empty() {
            moving.take(state, Step::Record { segment });
        }
    }
}
