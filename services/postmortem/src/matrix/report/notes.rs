//! What a reader must know to read the tables.

use crate::matrix::{contestant::Contestant, fault::Fault, run::Matrix, verdict::Outcome};

const ROWS: &str = "inside: the most that were in the critical section at once. Then the row that it protects, without/with the fence at the \
    store: kept, or lost (a stale write got in, or a write was written over), counted at a real PostgreSQL";
const WAITS: &str = "lost answer, kill: how long the next one waited, with a lease of 1 s";
pub(super) const LOADS: &str = "alone: one client, names in turn. 16 want it: sixteen clients, one name, held for nothing. messages: sent for one acquire and \
    release that nobody else wants. woken: of 8 waiters, by a release; polls: nobody is woken, all ask again. -: nothing is sent";
pub(super) const SAME_MACHINE: &str = "servers and clients on the same machine";
pub(super) const NEWCOMER: &str = "The clock of a redlock's node: a newcomer that starts after the jump cannot know of it, and gets in; the fence holds then, too \
    (`stockade postmortem redlock-clock`)";

/// As much as concerns these faults.
pub(super) fn how_to_read(faults: &[Fault]) -> String {
    let (waits, rows) = (
        faults.iter().any(|fault| fault.is_about_waiting()),
        faults.iter().any(|fault| !fault.is_about_waiting()),
    );
    let notes = [rows.then_some(ROWS), waits.then_some(WAITS)];
    format!(
        "{}.",
        notes.into_iter().flatten().collect::<Vec<_>>().join("; ")
    )
}

/// Why there is nothing to see, each reason once, with whom and what it concerns.
pub(super) fn not_applicable(matrix: &Matrix) -> Vec<(String, &'static str)> {
    let mut reasons: Vec<(&'static str, Vec<Contestant>, Vec<Fault>)> = Vec::new();
    for cell in &matrix.cells {
        let Outcome::NotApplicable(why) = cell.outcome else {
            continue;
        };
        let found = reasons.iter().position(|(reason, ..)| *reason == why);
        let place = found.unwrap_or_else(|| {
            reasons.push((why, Vec::new(), Vec::new()));
            reasons.len() - 1
        });
        let (_, contestants, faults) = &mut reasons[place];
        add(contestants, cell.contestant);
        add(faults, cell.fault);
    }
    let whom = |contestants: &[Contestant], faults: &[Fault]| {
        format!("{}: {}", list(contestants), list(faults))
    };
    reasons
        .into_iter()
        .map(|(why, contestants, faults)| (whom(&contestants, &faults), why))
        .collect()
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
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
