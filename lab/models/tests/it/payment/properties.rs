//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::money::{Entry, Failure, PAYERS, Payer, Payment, Report, State};

/// The promise to the shop.
pub const RETURNED: &str = "money that was returned confirms nothing";
/// A payment is one sum.
pub const ONCE: &str = "a payment pays one order or cart";
/// A report that was acknowledged is never forgotten, and no list makes an admin return what has
/// paid something.
pub const KEPT: &str = "money that was kept has paid something or is due, and not both";
/// No list makes an admin return the money twice.
pub const ASKED_ONCE: &str = "money that was returned is not due";
/// A refund that has failed is never forgotten.
pub const FAILED: &str = "money whose refund has failed is due";

/// Everything that is checked.
pub fn all() -> Vec<Property<Payment>> {
    vec![
        Property::always(RETURNED, |_, state: &State| {
            !state.returned || !state.payers.contains(&Payer::Confirmed)
        }),
        Property::always(ONCE, |_, state: &State| {
            let paid = state.payers.iter().filter(|payer| payer.is_paid());
            paid.count() <= 1
        }),
        Property::always(KEPT, kept_money_has_paid_or_is_due_and_not_both),
        Property::always(ASKED_ONCE, |payment: &Payment, state: &State| {
            let is_over = state.returned && state.with_buyer;
            let is_listed = (0..PAYERS).any(|payer| payment.is_listed(state, payer));
            !is_over || !(is_listed || state.failure_is_due())
        }),
        Property::always(FAILED, |_, state: &State| {
            let is_known = state.reported.contains(&true) && !is_busy(state);
            let is_owed = state.failure != Failure::None && !state.with_buyer;
            !(is_known && is_owed && state.is_returned()) || state.failure_is_due()
        }),
        Property::sometimes("a payment confirms", |_, state: &State| {
            state.payers.contains(&Payer::Confirmed)
        }),
        Property::sometimes("a late payment finds no units", |_, state: &State| {
            state.payers.contains(&Payer::RefundDue)
        }),
        Property::sometimes(
            "a payment of another total is due",
            |payment: &Payment, state| {
                payment.is_listed(state, 0) && state.payers[0] == Payer::Held
            },
        ),
        Property::sometimes("its order takes it after all", |_, state: &State| {
            state.entries[0] == Entry::Noted && state.payers[0] == Payer::Confirmed
        }),
        Property::sometimes("a return comes first", |_, state: &State| {
            state.row.is_some_and(|row| row.payer.is_none()) && state.returned
        }),
        Property::sometimes("an admin notes a row", |_, state: &State| {
            state.entries[0] == Entry::Done && state.is_returned()
        }),
        Property::sometimes("a failed refund is due", |_, state: &State| {
            state.failure_is_due()
        }),
        Property::sometimes("an admin returns that, too", |_, state: &State| {
            state.failure == Failure::Done && state.provider_returned
        }),
        Property::sometimes(
            "a step that lost a race leaves it bound",
            |_, state: &State| {
                let bound = state.row.and_then(|row| row.payer);
                bound.is_some_and(|payer| state.payers[payer] == Payer::Cancelled)
            },
        ),
    ]
}

fn is_busy(state: &State) -> bool {
    let is_busy = |report: &Report| *report != Report::Idle;
    state.reports.iter().any(is_busy) || state.refunding.is_some()
}

/// Of a report that was acknowledged. A refund that has failed is another property.
fn kept_money_has_paid_or_is_due_and_not_both(payment: &Payment, state: &State) -> bool {
    if state.payers.iter().any(|payer| payer.has_money()) {
        return !(0..PAYERS).any(|payer| payment.is_listed(state, payer));
    }
    if state.with_buyer || state.failure != Failure::None {
        return true;
    }
    (0..PAYERS).all(|payer| !state.reported[payer] || payment.is_listed(state, payer))
}
