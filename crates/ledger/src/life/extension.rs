//! Extending a hold, for every database: one order, no units.

use domain::Order;
use jiff::Timestamp;

use super::transition::Statements;
use crate::{
    LedgerError, events,
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
    if !transaction.set_deadline(order, expires_at).await? {
        return Ok(Outcome::Unchanged(None));
    }
    let extended = Order {
        expires_at,
        version: order.version + 1,
        ..order.clone()
    };
    let event = events::of_extension(&extended);
    transaction.add_events(&[event]).await?;
    Ok(Outcome::Done(Some(extended)))
}
