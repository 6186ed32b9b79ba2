//! The columns of the load table.

use reporting::number::decimals;

use crate::load::{Load, LoadFigures};

/// Number of columns if everything is measured.
pub(super) const COLUMNS: usize = 8;

/// Indexes of the columns that these loads fill.
pub(super) fn columns(loads: &[Load]) -> Vec<usize> {
    let of = |load: &Load| match load {
        Load::Alone => 0..3,
        Load::Contended => 3..6,
        Load::Messages => 6..7,
        Load::Wakeups => 7..COLUMNS,
    };
    Load::ALL
        .iter()
        .filter(|load| loads.contains(load))
        .flat_map(of)
        .collect()
}

/// The figures of a lock, by column. A dash stands for what was not measured, and the label `polls`
/// for a lock whose waiters are not woken.
pub(super) fn values(figures: &LoadFigures, polls: &str) -> [String; COLUMNS] {
    let (alone, contended) = (&figures.alone, &figures.contended);
    [
        milliseconds(alone.acquire_ms(0.5)),
        milliseconds(alone.acquire_ms(0.99)),
        decimals(alone.per_second(), 0),
        milliseconds(contended.acquire_ms(0.5)),
        milliseconds(contended.acquire_ms(0.99)),
        decimals(contended.per_second(), 0),
        decimals(figures.messages, 1),
        if figures.backend.polls() {
            polls.into()
        } else {
            decimals(figures.woken, 1)
        },
    ]
}

fn milliseconds(value: Option<f64>) -> String {
    let digits = if value.is_some_and(|value| value < 10.0) {
        2
    } else {
        0
    };
    decimals(value, digits)
}
