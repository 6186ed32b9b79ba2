//! What the orders of an item add up to now, from their sums in an earlier snapshot and from those
//! that have changed since.
//!
//! Each change of an order's units writes an event in its transaction, so the events behind a
//! snapshot name every order that has changed. The first of them tells which counter had the units
//! in the snapshot, because the state machine has one way to most states. Where it does not tell,
//! or where the events were removed, there is no answer, and the orders have to be walked.
//!
//! PostgreSQL numbers events before they are committed. So the events behind a snapshot begin at
//! the oldest transaction that was open in it, and those from there on that the snapshot had are
//! remembered by number.

use std::collections::HashMap;

use domain::{OrderId, OrderState, Units};
use serde::{Deserialize, Serialize};

use crate::{
    EventKind, LedgerError,
    convert::{column, parsed, signed, unsigned},
};

/// Most orders that are read one by one. More are walked.
const CHANGED_MAX: u64 = 100_000;

/// An order that is looked up costs as much as so many that a walk reads.
const LOOKUP_COST: u64 = 8;

/// Most events, of all items, that are read for each order that may be looked up.
const EVENTS_PER_ORDER: i64 = 4;

/// Most events that are remembered of a snapshot. There are more only beside a transaction that
/// is open for minutes.
pub(crate) const SEEN_MAX: usize = 1000;

/// Orders that one statement reads.
pub(crate) const LOOKUP_ORDERS: usize = 10_000;

/// What the orders of an item added up to in a snapshot, and what tells which of them have changed
/// since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Orders that the last walk has read.
    orders: u64,
    /// Orders whose money was to be returned, and which had no units.
    refunds_due: u64,
    /// By segment: held and confirmed units.
    units: Vec<[u64; 2]>,
    #[serde(flatten)]
    place: Place,
}

/// The place of a snapshot among the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// On PostgreSQL, the oldest transaction that was open: the snapshot had all events below it.
    /// On SQLite, the last event of the snapshot.
    pub position: u64,
    /// Events from this position on that the snapshot had, by number.
    pub seen: Vec<u64>,
}

/// The events behind a place, as far as they are to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// Events of all items, at most one more than may be read.
    pub events: i64,
    /// Orders that those of the item name, if the snapshot did not have them.
    pub orders: i64,
    /// Whether some were removed.
    pub was_removed: bool,
    /// Whether the ledger has not issued the place: it was restored on another server.
    pub is_unknown: bool,
}

/// The kinds of events that tell of a change of units, and which counter had the units before: none
/// of those of an order that is recorded, or held again after it has expired.
const KINDS: [(EventKind, Units); 7] = [
    (EventKind::OrderHeld, Units::None),
    (EventKind::OrderRejected, Units::None),
    (EventKind::OrderConfirmed, Units::Held),
    (EventKind::OrderCancelled, Units::Held),
    (EventKind::OrderExpired, Units::Held),
    (EventKind::OrderRefundDue, Units::None),
    // One that was due had no units, see `Changed::add`.
    (EventKind::OrderRefunded, Units::Confirmed),
];

/// The words of these kinds.
pub(crate) fn kinds() -> Vec<&'static str> {
    column(KINDS, |(kind, _)| kind.as_str())
}

fn before(kind: &str) -> Option<Units> {
    let mut kinds = KINDS.into_iter();
    kinds
        .find(|(told, _)| told.as_str() == kind)
        .map(|(_, before)| before)
}

impl Sums {
    pub(crate) fn new(orders: u64, refunds_due: u64, units: Vec<[u64; 2]>, place: Place) -> Self {
        Self {
            orders,
            refunds_due,
            units,
            place,
        }
    }

    /// Orders that the last walk has read.
    pub fn orders(&self) -> u64 {
        self.orders
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Orders that may be looked up, so that they cost a small part of a walk.
    fn orders_max(&self) -> i64 {
        signed((self.orders / LOOKUP_COST).min(CHANGED_MAX))
    }

    /// Events that may be read.
    pub(crate) fn events_max(&self) -> i64 {
        self.orders_max() * EVENTS_PER_ORDER
    }

    /// Whether the events tell of everything, and are to be read.
    pub(crate) fn is_told_by(&self, told: Told) -> bool {
        let is_small = told.events <= self.events_max() && told.orders <= self.orders_max();
        is_small && !told.was_removed && !told.is_unknown
    }

    /// The sums after the changes, by segment. `None`: the changes do not tell.
    pub(crate) fn after(&self, changes: &[ChangedUnits]) -> Option<Vec<[u64; 2]>> {
        let mut sums = column(&self.units, |units| units.map(signed));
        for change in changes {
            let sums = sums.get_mut(change.segment)?;
            // Its units may have been in another segment.
            if change.was_reacquired && change.before != Units::None {
                return None;
            }
            if let Some(place) = index(change.before) {
                sums[place] -= change.units;
            }
            if let Some(place) = index(change.state.units()) {
                sums[place] += change.units;
            }
        }
        let counted = |[held, confirmed]: [i64; 2]| {
            let held = u64::try_from(held).ok()?;
            Some([held, u64::try_from(confirmed).ok()?])
        };
        sums.into_iter().map(counted).collect()
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// `None`: another release has stored them.
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The place of a counter in the sums of a segment.
fn index(units: Units) -> Option<usize> {
    match units {
        Units::Held => Some(0),
        Units::Confirmed => Some(1),
        Units::None => None,
    }
}

/// The orders that have changed since a snapshot, with the counter that had their units in it.
#[derive(Debug)]
pub(crate) struct Changed<'s> {
    since: &'s Sums,
    orders: HashMap<OrderId, Units>,
}

impl<'s> Changed<'s> {
    pub fn since(since: &'s Sums) -> Self {
        Self {
            since,
            orders: HashMap::new(),
        }
    }

    /// Adds the orders of the next event, in the order of the events. `false`: it does not tell
    /// what they had before. One that is refunded has units or is owed money for lack of them.
    pub fn add(&mut self, kind: &str, orders: Vec<OrderId>) -> bool {
        let Some(before) = before(kind) else {
            return false;
        };
        let is_unclear = before == Units::Confirmed && self.since.refunds_due > 0;
        let is_new = |order: &OrderId| !self.orders.contains_key(order);
        if is_unclear && orders.iter().any(is_new) {
            return false;
        }
        for order in orders {
            self.orders.entry(order).or_insert(before);
        }
        true
    }

    /// The orders, with the words for the counters.
    pub fn into_rows(self) -> Vec<(OrderId, &'static str)> {
        let mut rows: Vec<_> = self.orders.into_iter().collect();
        rows.sort_unstable_by_key(|(order, _)| *order);
        column(rows, |(order, before)| (order, word(before)))
    }
}

const HELD: &str = "held";
const CONFIRMED: &str = "confirmed";

fn word(units: Units) -> &'static str {
    match units {
        Units::Held => HELD,
        Units::Confirmed => CONFIRMED,
        Units::None => "",
    }
}

/// Units of orders that had them in the same counter, and now are in the same state and segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangedUnits {
    pub before: Units,
    pub segment: usize,
    pub state: OrderState,
    pub was_reacquired: bool,
    pub units: i64,
}

/// The same as the databases add them up. An order that they do not have is in none of the columns
/// behind the first.
pub(crate) type ChangedColumns = (
    String,
    Option<i64>,
    Option<String>,
    Option<bool>,
    Option<i64>,
);

/// `None`: the ledger does not have all of the orders.
pub(crate) fn changed_units(
    rows: Vec<ChangedColumns>,
) -> Result<Option<Vec<ChangedUnits>>, LedgerError> {
    let mut changes = Vec::with_capacity(rows.len());
    for (before, segment, state, was_reacquired, units) in rows {
        let (Some(segment), Some(state), Some(was_reacquired), Some(units)) =
            (segment, state, was_reacquired, units)
        else {
            return Ok(None);
        };
        changes.push(ChangedUnits {
            before: match before.as_str() {
                HELD => Units::Held,
                CONFIRMED => Units::Confirmed,
                _ => Units::None,
            },
            segment: unsigned("orders.segment", segment)?,
            state: parsed("orders.state", &state)?,
            was_reacquired,
            units,
        });
    }
    Ok(Some(changes))
}

#[cfg(test)]
mod tests {
    use domain::{OrderId, OrderState, Units};

    use super::{Changed, ChangedUnits, Place, Sums, Told, before, kinds};

    fn sums(refunds_due: u64) -> Sums {
        let place = Place {
            position: 7,
            seen: vec![3],
        };
        Sums::new(800, refunds_due, vec![[5, 2], [0, 1]], place)
    }

    fn id(n: u8) -> OrderId {
        OrderId::from_bytes([n; 16])
    }

    #[test]
    fn every_kind_tells_what_its_order_had_before() {
        // The states from which each state is reached.
        for kind in kinds() {
            let state: OrderState = kind["order.".len()..].parse().unwrap();
            let from = OrderState::ALL.iter().filter(|from| from.may_become(state));
            let mut had: Vec<_> = from.map(|from| from.units()).collect();
            had.dedup();
            let told = before(kind).unwrap();
            match state {
                OrderState::Held | OrderState::Rejected => assert_eq!(told, Units::None),
                OrderState::Refunded => assert_eq!(had, [Units::Confirmed, Units::None]),
                _ => assert_eq!(had, [told], "{kind}"),
            }
        }
        for other in ["order.extended", "cart.held", "item.opened"] {
            assert_eq!(before(other), None);
        }
    }

    #[test]
    fn the_first_event_of_an_order_counts() {
        let since = sums(0);
        let mut changed = Changed::since(&since);
        assert!(changed.add("order.confirmed", vec![id(1), id(2)]));
        assert!(changed.add("order.refunded", vec![id(2), id(3)]));
        assert!(changed.add("order.held", vec![id(4)]));
        assert!(!changed.add("order.extended", vec![id(5)]));
        assert_eq!(
            changed.into_rows(),
            [
                (id(1), "held"),
                (id(2), "held"),
                (id(3), "confirmed"),
                (id(4), "")
            ]
        );
    }

    #[test]
    fn a_refund_beside_one_that_was_due_does_not_tell_what_its_order_had() {
        let since = sums(1);
        let mut changed = Changed::since(&since);
        assert!(changed.add("order.confirmed", vec![id(1)]));
        assert!(changed.add("order.refunded", vec![id(1)]), "it was held");
        assert!(!changed.add("order.refunded", vec![id(2)]));
    }

    #[test]
    fn the_sums_follow_the_orders_that_have_changed() {
        let change = |before, segment, state, units| ChangedUnits {
            before,
            segment,
            state,
            was_reacquired: false,
            units,
        };
        let since = sums(0);
        let changes = [
            change(Units::None, 1, OrderState::Held, 4),
            change(Units::Held, 0, OrderState::Confirmed, 3),
            change(Units::Confirmed, 0, OrderState::Refunded, 1),
            change(Units::None, 0, OrderState::Rejected, 9),
        ];
        assert_eq!(since.after(&changes), Some(vec![[2, 4], [4, 1]]));
        let reacquired = |before| ChangedUnits {
            was_reacquired: true,
            ..change(before, 0, OrderState::Held, 1)
        };
        assert!(since.after(&[reacquired(Units::None)]).is_some());
        assert_eq!(since.after(&[reacquired(Units::Held)]), None);
        let too_many = change(Units::Confirmed, 1, OrderState::Refunded, 2);
        assert_eq!(since.after(&[too_many]), None);
        let elsewhere = change(Units::None, 2, OrderState::Held, 1);
        assert_eq!(since.after(&[elsewhere]), None);
    }

    #[test]
    fn events_that_were_removed_or_are_too_many_are_not_read() {
        let told = Told {
            events: 400,
            orders: 100,
            was_removed: false,
            is_unknown: false,
        };
        let since = sums(0);
        assert!(since.is_told_by(told), "an eighth of the orders");
        for other in [
            Told {
                events: 401,
                ..told
            },
            Told {
                orders: 101,
                ..told
            },
            Told {
                was_removed: true,
                ..told
            },
            Told {
                is_unknown: true,
                ..told
            },
        ] {
            assert!(!since.is_told_by(other), "{other:?}");
        }
    }

    #[test]
    fn sums_are_stored_and_read() {
        let since = sums(2);
        assert_eq!(Sums::from_json(&since.to_json()), Some(since));
        assert_eq!(Sums::from_json("{}"), None, "walked");
    }
}
