//! Extending holds, for every database: deadlines of orders, and no units.

use domain::Order;
use jiff::Timestamp;

use super::transition::Statements;
use crate::{
    LedgerError,
    events::{self, NewEvent},
    transaction::{Outcome, end_as},
};

/// Moves the deadline in the transaction, if the order still has this version and is held.
pub(crate) async fn extend(
    mut transaction: impl Statements,
    order: &Order,
    expires_at: Timestamp,
) -> Result<Option<Order>, LedgerError> {
    let extended = apply(&mut transaction, order, expires_at).await;
    end_as(transaction, extended).await
}

async fn apply(
    transaction: &mut impl Statements,
    order: &Order,
    expires_at: Timestamp,
) -> Result<Outcome<Option<Order>>, LedgerError> {
    if !make(transaction, &[order], expires_at, Vec::new()).await? {
        return Ok(Outcome::Unchanged(None));
    }
    Ok(Outcome::Done(Some(extended(order, expires_at))))
}

/// Moves the deadlines of orders. `more`: events that belong to the change, besides the orders' own.
/// `false`: an order has another version or is not held, and the transaction is to be rolled back.
pub(crate) async fn make(
    transaction: &mut impl Statements,
    orders: &[&Order],
    expires_at: Timestamp,
    more: Vec<NewEvent>,
) -> Result<bool, LedgerError> {
    if transaction.set_deadlines(orders, expires_at).await? != orders.len() {
        return Ok(false);
    }
    let own = orders.iter().map(|order| extended(order, expires_at));
    let mut events: Vec<_> = own.map(|order| events::of_extension(&order)).collect();
    events.extend(more);
    transaction.add_events(&events).await?;
    Ok(true)
}

fn extended(order: &Order, expires_at: Timestamp) -> Order {
    Order {
        expires_at,
        version: order.version + 1,
        ..order.clone()
    }
}
