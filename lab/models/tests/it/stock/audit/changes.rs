//! What can happen next to an audit by what has changed.

use std::collections::BTreeMap;

use stateright::{Model, Property};

const SEGMENTS: usize = 2;
const ORDERS: usize = 2;
/// Transactions that may be open at once.
const OPEN: usize = 2;

/// What is promised of an audit by what has changed.
pub const NONE_MISSED: &str =
    "an audit by what has changed that is good has found its rows and orders to agree";
/// The same.
pub const NO_NEEDLESS_WALK: &str =
    "an audit by what has changed finds no difference that was not there";

rules! {
    /// The events behind a snapshot begin at its oldest open transaction, and not at its end.
    events_begin_at_the_oldest_open_transaction,
    /// Those of them that the snapshot had are passed over.
    seen_events_are_passed_over,
    /// The position of an event is not below what has ended.
    positions_follow_what_has_ended,
    /// The first event of an order since the snapshot tells what it had then, and not the last.
    the_first_event_counts,
    /// An order whose units were reacquired does not tell in which segment it had them.
    reacquired_orders_are_walked,
    /// A refund does not tell whether its order had units, if one that was due had none.
    refunds_of_due_orders_are_walked,
    /// Events that were removed tell nothing.
    removed_events_are_walked,
    /// Events, orders and rows are read from one snapshot.
    events_are_of_the_snapshot,
    /// The place among the events moves with the sums.
    the_place_moves_with_the_sums,
}

/// Audits under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The rules that hold.
    pub rules: Rules,
    /// Transactions that begin.
    pub transactions: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum OrderState {
    #[default]
    Missing,
    Held,
    Confirmed,
    Expired,
    RefundDue,
    Refunded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Order {
    state: OrderState,
    segment: usize,
    was_reacquired: bool,
}

/// Held and confirmed units by segment.
type Units = [[i8; 2]; SEGMENTS];

fn add(units: &mut Units, state: OrderState, segment: usize, by: i8) {
    match state {
        OrderState::Held => units[segment][0] += by,
        OrderState::Confirmed => units[segment][1] += by,
        OrderState::Missing
        | OrderState::Expired
        | OrderState::RefundDue
        | OrderState::Refunded => {}
    }
}

fn units(orders: &[Order]) -> Units {
    let mut units = Units::default();
    for order in orders {
        add(&mut units, order.state, order.segment, 1);
    }
    units
}

/// A change of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Its units are recorded, for the first time or again.
    Hold {
        /// Where they are.
        segment: usize,
    },
    /// Units were reacquired for it, and the row could not cover them.
    Miss {
        /// Where they would have been.
        segment: usize,
    },
    /// It moves to the next state.
    Confirm,
    /// The same.
    Expire,
    /// The same.
    FallDue,
    /// The same.
    Refund,
}

impl Change {
    fn all() -> impl Iterator<Item = Self> {
        let segments = (0..SEGMENTS).flat_map(|segment| {
            let (hold, miss) = (Self::Hold { segment }, Self::Miss { segment });
            [hold, miss]
        });
        segments.chain([Self::Confirm, Self::Expire, Self::FallDue, Self::Refund])
    }

    /// The order afterwards. `None`: it cannot change so.
    fn of(self, order: Order) -> Option<Order> {
        let Order {
            state,
            was_reacquired,
            ..
        } = order;
        let moved = |state| Order { state, ..order };
        Some(match (self, state) {
            (Self::Hold { segment }, OrderState::Missing) => Order {
                segment,
                ..moved(OrderState::Held)
            },
            (Self::Hold { segment }, OrderState::Expired) if !was_reacquired => Order {
                state: OrderState::Held,
                segment,
                was_reacquired: true,
            },
            (Self::Miss { segment }, OrderState::Expired) if !was_reacquired => Order {
                segment,
                was_reacquired: true,
                ..order
            },
            (Self::Confirm, OrderState::Held) => moved(OrderState::Confirmed),
            (Self::Expire, OrderState::Held) => moved(OrderState::Expired),
            (Self::FallDue, OrderState::Expired) => moved(OrderState::RefundDue),
            (Self::Refund, OrderState::Confirmed | OrderState::RefundDue) => {
                moved(OrderState::Refunded)
            }
            _ => return None,
        })
    }

    /// Whether an event tells of it.
    fn is_told(self) -> bool {
        !matches!(self, Self::Miss { .. })
    }
}

/// The order is in this state since the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Event {
    position: u8,
    number: u8,
    order: usize,
    state: OrderState,
}

/// A transaction that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Open {
    id: u8,
    written: Option<Written>,
}

/// What it has written, and nothing else sees yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Written {
    order: usize,
    after: Order,
    rows: Units,
    event: Option<Event>,
}

/// A row of `order_sums`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sums {
    units: Units,
    has_due_orders: bool,
    /// Events below it were in the snapshot.
    position: u8,
    /// Events from there on that were in it.
    seen: Vec<u8>,
}

/// The orders that have changed, with the state that the event tells.
type Changed = BTreeMap<usize, OrderState>;

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ledger {
    orders: [Order; ORDERS],
    rows: Units,
    /// As transactions have committed them.
    events: Vec<Event>,
    removed: u8,
    open: [Option<Open>; OPEN],
    begun: u8,
    ended: u8,
    numbers: u8,
    sums: Option<Sums>,
    /// What was read before the orders (only in a weakened variant).
    heard: Option<Option<Changed>>,
    /// A transaction has moved an order and not its row.
    has_erred: bool,
    missed: bool,
    needless: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A transaction gets its id.
    Begin {
        slot: usize,
    },
    /// It changes an order and its row, and writes the event. Or its code is wrong, and it forgets
    /// the row.
    Write {
        slot: usize,
        order: usize,
        change: Change,
        errs: bool,
    },
    Commit {
        slot: usize,
    },
    RollBack {
        slot: usize,
    },
    /// A publisher removes the oldest event.
    Remove,
    /// A full audit.
    Walk,
    /// An audit by what has changed reads the events (only in a weakened variant), and the rest.
    Hear,
    Compare,
}

impl Ledger {
    fn agrees(&self) -> bool {
        units(&self.orders) == self.rows
    }

    fn oldest_open(&self) -> u8 {
        let open = self.open.iter().flatten().map(|open| open.id);
        open.min().unwrap_or(self.begun + 1)
    }

    fn is_locked(&self, order: usize) -> bool {
        let mut written = self.open.iter().flatten().filter_map(|open| open.written);
        written.any(|written| written.order == order)
    }

    fn end(&mut self, slot: usize) -> Option<Open> {
        let open = self.open[slot].take()?;
        self.ended = self.ended.max(open.id);
        Some(open)
    }

    fn commit(&mut self, slot: usize) {
        let Some(written) = self.end(slot).and_then(|open| open.written) else {
            return;
        };
        self.orders[written.order] = written.after;
        for (row, by) in self.rows.iter_mut().zip(written.rows) {
            *row = [row[0] + by[0], row[1] + by[1]];
        }
        self.events.extend(written.event);
    }

    fn oldest_event(&self) -> Option<Event> {
        let oldest = self.events.iter().min().copied();
        oldest.filter(|event| event.position < self.oldest_open())
    }
}

impl Changes {
    fn sums(&self, ledger: &Ledger) -> Sums {
        let position = if self.rules.events_begin_at_the_oldest_open_transaction {
            ledger.oldest_open()
        } else {
            ledger.begun + 1
        };
        let seen = ledger.events.iter();
        let seen = seen.filter(|event| event.position >= position);
        let due = |order: &Order| order.state == OrderState::RefundDue;
        Sums {
            units: ledger.rows,
            has_due_orders: ledger.orders.iter().any(due),
            position,
            seen: seen.map(|event| event.number).collect(),
        }
    }

    fn write(&self, ledger: &mut Ledger, slot: usize, order: usize, change: Change, errs: bool) {
        let Some(after) = change.of(ledger.orders[order]) else {
            return;
        };
        let Some(Open { id, .. }) = ledger.open[slot] else {
            return;
        };
        let before = ledger.orders[order];
        let mut rows = Units::default();
        if errs {
            ledger.has_erred = true;
        } else {
            add(&mut rows, before.state, before.segment, -1);
            add(&mut rows, after.state, after.segment, 1);
        }
        let event = change.is_told().then(|| {
            ledger.numbers += 1;
            let follows = self.rules.positions_follow_what_has_ended;
            Event {
                position: if follows { id.max(ledger.ended) } else { id },
                number: ledger.numbers,
                order,
                state: after.state,
            }
        });
        let written = Some(Written {
            order,
            after,
            rows,
            event,
        });
        ledger.open[slot] = Some(Open { id, written });
    }

    /// The orders that have changed since the sums. `None`: the events do not tell.
    fn hear(&self, ledger: &Ledger, sums: &Sums) -> Option<Changed> {
        let rules = self.rules;
        if rules.removed_events_are_walked && ledger.removed >= sums.position {
            return None;
        }
        let is_seen =
            |event: &&Event| rules.seen_events_are_passed_over && sums.seen.contains(&event.number);
        let new = ledger.events.iter();
        let new = new.filter(|event| event.position >= sums.position);
        let mut events: Vec<_> = new.filter(|event| !is_seen(event)).collect();
        events.sort_unstable();
        let mut changed = Changed::new();
        for event in events {
            let told = changed.entry(event.order).or_insert(event.state);
            if !rules.the_first_event_counts {
                *told = event.state;
            }
        }
        Some(changed)
    }

    /// The sums of the orders now. `None`: what was heard does not tell.
    fn follow(&self, ledger: &Ledger, sums: &Sums, changed: &Changed) -> Option<Units> {
        let mut units = sums.units;
        for (order, told) in changed {
            let before = match told {
                OrderState::Missing | OrderState::Held | OrderState::RefundDue => {
                    OrderState::Missing
                }
                OrderState::Confirmed | OrderState::Expired => OrderState::Held,
                OrderState::Refunded => {
                    if self.rules.refunds_of_due_orders_are_walked && sums.has_due_orders {
                        return None;
                    }
                    OrderState::Confirmed
                }
            };
            let order = ledger.orders[*order];
            let is_lost = self.rules.reacquired_orders_are_walked && order.was_reacquired;
            if is_lost && before != OrderState::Missing {
                return None;
            }
            add(&mut units, before, order.segment, -1);
            add(&mut units, order.state, order.segment, 1);
        }
        Some(units)
    }

    /// What an audit by what has changed would find now: the orders that it reads, and the sums.
    fn found(&self, ledger: &Ledger) -> Option<(usize, Units)> {
        let sums = ledger.sums.as_ref()?;
        let changed = self.hear(ledger, sums)?;
        Some((changed.len(), self.follow(ledger, sums, &changed)?))
    }

    fn passes_over_events(&self, ledger: &Ledger) -> bool {
        let sums = ledger.sums.as_ref();
        let found = self.found(ledger);
        sums.is_some_and(|sums| !sums.seen.is_empty())
            && found.is_some_and(|(changed, units)| changed > 0 && units == ledger.rows)
    }

    fn finds_a_fault(&self, ledger: &Ledger) -> bool {
        let found = self.found(ledger);
        !ledger.agrees() && found.is_some_and(|(_, units)| units != ledger.rows)
    }

    fn compare(&self, ledger: &mut Ledger) {
        let Some(sums) = ledger.sums.clone() else {
            return;
        };
        let heard = ledger.heard.take();
        let changed = heard.unwrap_or_else(|| self.hear(ledger, &sums));
        let followed = changed.and_then(|changed| self.follow(ledger, &sums, &changed));
        let Some(units) = followed else {
            return;
        };
        let is_good = units == ledger.rows;
        ledger.missed |= is_good && !ledger.agrees();
        ledger.needless |= !is_good && ledger.agrees();
        if is_good {
            let new = self.sums(ledger);
            ledger.sums = Some(if self.rules.the_place_moves_with_the_sums {
                new
            } else {
                Sums {
                    units: new.units,
                    ..sums
                }
            });
        }
    }

    fn slot_steps(&self, ledger: &Ledger, slot: usize, steps: &mut Vec<Step>) {
        let Some(open) = ledger.open[slot] else {
            // One that begins takes the first free place.
            let is_first = ledger.open[..slot].iter().all(Option::is_some);
            if is_first && ledger.begun < self.transactions {
                steps.push(Step::Begin { slot });
            }
            return;
        };
        steps.push(Step::RollBack { slot });
        if open.written.is_some() {
            return steps.push(Step::Commit { slot });
        }
        for order in (0..ORDERS).filter(|order| !ledger.is_locked(*order)) {
            let before = ledger.orders[order];
            for change in Change::all() {
                let Some(after) = change.of(before) else {
                    continue;
                };
                let write = |errs| Step::Write {
                    slot,
                    order,
                    change,
                    errs,
                };
                steps.push(write(false));
                if units(&[before]) != units(&[after]) && !ledger.has_erred {
                    steps.push(write(true));
                }
            }
        }
    }
}

impl Model for Changes {
    type State = Ledger;
    type Action = Step;

    /// The first order is anywhere, and the second one does not exist.
    fn init_states(&self) -> Vec<Ledger> {
        let states = [
            OrderState::Missing,
            OrderState::Held,
            OrderState::Confirmed,
            OrderState::Expired,
            OrderState::RefundDue,
        ];
        let begin = |state| {
            let first = Order {
                state,
                ..Order::default()
            };
            let orders = [first, Order::default()];
            Ledger {
                orders,
                rows: units(&orders),
                ..Ledger::default()
            }
        };
        states.into_iter().map(begin).collect()
    }

    fn actions(&self, ledger: &Ledger, steps: &mut Vec<Step>) {
        for slot in 0..OPEN {
            self.slot_steps(ledger, slot, steps);
        }
        if ledger.oldest_event().is_some() {
            steps.push(Step::Remove);
        }
        steps.push(Step::Walk);
        if ledger.sums.is_some() {
            steps.push(Step::Compare);
            if !self.rules.events_are_of_the_snapshot {
                steps.push(Step::Hear);
            }
        }
    }

    fn next_state(&self, ledger: &Ledger, step: Step) -> Option<Ledger> {
        let mut next = ledger.clone();
        match step {
            Step::Begin { slot } => {
                next.begun += 1;
                next.open[slot] = Some(Open {
                    id: next.begun,
                    written: None,
                });
            }
            Step::Write {
                slot,
                order,
                change,
                errs,
            } => self.write(&mut next, slot, order, change, errs),
            Step::Commit { slot } => next.commit(slot),
            Step::RollBack { slot } => {
                next.end(slot);
            }
            Step::Remove => {
                let oldest = next.oldest_event()?;
                next.events.retain(|event| *event != oldest);
                next.removed = next.removed.max(oldest.position);
            }
            // After a fault, no audit by what has changed is made.
            Step::Walk => {
                next.heard = None;
                next.sums = next.agrees().then(|| self.sums(&next));
            }
            Step::Hear => {
                let sums = next.sums.clone()?;
                next.heard = Some(self.hear(&next, &sums));
            }
            Step::Compare => self.compare(&mut next),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NONE_MISSED, |_, ledger: &Ledger| !ledger.missed),
            Property::always(NO_NEEDLESS_WALK, |_, ledger: &Ledger| !ledger.needless),
            Property::sometimes(
                "it is good behind events that it passes over",
                |changes: &Self, ledger: &Ledger| changes.passes_over_events(ledger),
            ),
            Property::sometimes(
                "it finds a row that was forgotten",
                |changes: &Self, ledger: &Ledger| changes.finds_a_fault(ledger),
            ),
        ]
    }
}
