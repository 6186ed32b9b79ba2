//! Returning one line of a confirmed cart, for every database: the line is refunded, and the others
//! stay as they are. The last one takes the cart with it.

use std::sync::Arc;

use domain::{Cart, CartState, Order, OrderId, OrderState};

use super::{Statements, due_at};
use crate::{
    Actors, LedgerError, Transition, events,
    life::transition,
    refunds,
    transaction::{Outcome, end_as},
};

/// A line that was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedLine {
    /// The cart as it is now: `confirmed`, or `refunded` with its last line.
    pub cart: Cart,
    /// The order of the line as it is now.
    pub line: Order,
}

/// Notes in the transaction that `actor` has returned the money of the line, if the cart still has
/// this version. `None`: it has another one, or it or the line is not confirmed.
pub(crate) async fn return_line(
    mut transaction: impl Statements + refunds::Statements,
    cart: &Cart,
    line: OrderId,
    actor: &Arc<str>,
) -> Result<Option<ReturnedLine>, LedgerError> {
    let returned = apply(&mut transaction, cart, line, actor).await;
    end_as(transaction, returned).await
}

async fn apply(
    transaction: &mut (impl Statements + refunds::Statements),
    cart: &Cart,
    line: OrderId,
    actor: &Arc<str>,
) -> Result<Outcome<Option<ReturnedLine>>, LedgerError> {
    let found = transaction.lock_cart(cart.id).await?;
    if cart.state != CartState::Confirmed || found != Some((CartState::Confirmed, cart.version)) {
        return Ok(Outcome::Unchanged(None));
    }
    let lines = transaction.lines_of(&[cart.id]).await?;
    let is_confirmed = |of: &&Order| of.id == line && of.state == OrderState::Confirmed;
    let Some(order) = lines.iter().find(is_confirmed) else {
        return Ok(Outcome::Unchanged(None));
    };
    let after = Cart {
        state: match is_last(cart, &lines, line) {
            true => CartState::Refunded,
            false => CartState::Confirmed,
        },
        version: cart.version + 1,
        ..cart.clone()
    };
    let mut event = None;
    if after.state == CartState::Refunded {
        // All money of the payment was returned, so it pays nothing more. A refund that has failed
        // may be that of a line that was returned before.
        if let Some(payment) = &cart.payment {
            refunds::spend_only(transaction, payment).await?;
        }
        event = events::of_cart(&after)?;
    }
    let moved = Transition {
        order: order.clone(),
        to: OrderState::Refunded,
        payment: None,
    };
    let actors = Actors::from([(line, Arc::clone(actor))]);
    let events = event.into_iter().collect();
    let mut made = transition::make(transaction, vec![&moved], &actors, events).await?;
    let Some(line) = made.remove(&line) else {
        return Err(LedgerError::CartSuperseded(cart.id));
    };
    transaction
        .write_cart(&after, due_at(&after, false))
        .await?;
    Ok(Outcome::Done(Some(ReturnedLine { cart: after, line })))
}

/// Whether all others were returned before. An order that went with a drop was not.
fn is_last(cart: &Cart, lines: &[Order], line: OrderId) -> bool {
    let is_returned = |of: &Order| of.id == line || of.state == OrderState::Refunded;
    lines.len() == cart.lines.len() && lines.iter().all(is_returned)
}
