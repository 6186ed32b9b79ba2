//! Explanations that a reader needs for the tables.

use crate::{backend::Backend, comparison::Comparison, fault::Fault, verdict::Outcome};

const ROWS: &str = "inside: the largest number of holders in the critical section at the same time. Below it the state of the protected row, \
    without/with a fence at the store: kept, or lost (the row accepted a stale write or lost an update). A PostgreSQL trigger counts the writes";
const WAITS: &str = "lost answer, kill: how long the next contender waited, with a lease of 1 s";
pub(super) const LOADS: &str = "alone: one client, 64 names in turn. 16 contend: sixteen clients, one name, released immediately. messages: sent for one acquire \
    and release without contention. woken: of 8 waiters, by one release; polls: waiters try again at intervals. -: nothing is sent";
pub(super) const SAME_MACHINE: &str = "servers and clients on the same machine";
pub(super) const CLOCK_AND_NEW_CLIENTS: &str = "A clock jump of a Redlock node: a client that starts after the jump cannot detect it and gets the lock. The fence still holds \
    (`stockade-lab postmortem redlock-clock`)";

/// How to read the table of these faults.
pub(super) fn how_to_read(faults: &[Fault]) -> String {
    let has_rows = faults.iter().any(|fault| !fault.measures_wait());
    let has_waits = faults.iter().any(|fault| fault.measures_wait());
    let notes = [has_rows.then_some(ROWS), has_waits.then_some(WAITS)];
    let notes: Vec<_> = notes.into_iter().flatten().collect();
    format!("{}.", notes.join("; "))
}

/// Each reason for a cell without a result, with the backends and faults that it concerns.
pub(super) fn not_applicable(comparison: &Comparison) -> Vec<(String, &'static str)> {
    let mut reasons: Vec<(&'static str, Vec<Backend>, Vec<Fault>)> = Vec::new();
    for cell in &comparison.cells {
        let Outcome::NotApplicable(reason) = cell.outcome else {
            continue;
        };
        let found = reasons.iter().position(|(known, ..)| *known == reason);
        let index = found.unwrap_or_else(|| {
            reasons.push((reason, Vec::new(), Vec::new()));
            reasons.len() - 1
        });
        let (_, backends, faults) = &mut reasons[index];
        push_new(backends, cell.backend);
        push_new(faults, cell.fault);
    }
    reasons
        .into_iter()
        .map(|(reason, backends, faults)| {
            (format!("{}: {}", list(&backends), list(&faults)), reason)
        })
        .collect()
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
