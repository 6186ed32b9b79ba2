//! Extending the holds of a cart, for every database: the deadlines of all lines and the cart's own, in
//! one transaction under the lock of the cart's row.

use std::time::Duration;

use domain::{Cart, CartState, Order, OrderState};
use jiff::Timestamp;

use super::{Statements, all_are, due_at};
use crate::{
    LedgerError, events,
    life::extension,
    transaction::{Outcome, end_as},
};

/// Makes the holds of the cart last `hold`, counted from when the first line took its units.
pub(crate) async fn extend(
    mut transaction: impl Statements,
    cart: &Cart,
    hold: Duration,
) -> Result<Option<Cart>, LedgerError> {
    let extended = apply(&mut transaction, cart, hold).await;
    end_as(transaction, extended).await
}

async fn apply(
    transaction: &mut impl Statements,
    cart: &Cart,
    hold: Duration,
) -> Result<Outcome<Option<Cart>>, LedgerError> {
    let found = transaction.lock_cart(cart.id).await?;
    if cart.state != CartState::Held || found != Some((CartState::Held, cart.version)) {
        return Ok(Outcome::Unchanged(None));
    }
    let lines = transaction.lines_of(cart.id).await?;
    if !all_are(cart, &lines, OrderState::Held) {
        return Err(LedgerError::BrokenCart(cart.id));
    }
    let Some(expires_at) = end(&lines, hold).filter(|end| *end > cart.expires_at) else {
        return Ok(Outcome::Unchanged(Some(cart.clone())));
    };
    let after = Cart {
        expires_at,
        version: cart.version + 1,
        ..cart.clone()
    };
    let event = events::of_cart_extension(&after)?;
    // The hold of a line may last longer already, because its item has longer ones.
    let earlier: Vec<_> = lines
        .iter()
        .filter(|line| line.expires_at < expires_at)
        .collect();
    if !extension::make(transaction, &earlier, expires_at, vec![event]).await? {
        return Err(LedgerError::CartSuperseded(cart.id));
    }
    transaction
        .write_cart(&after, due_at(&after, false))
        .await?;
    Ok(Outcome::Done(Some(after)))
}

/// The end of a hold of this length. The lines' creation never changes, so every repeat finds the same.
fn end(lines: &[Order], hold: Duration) -> Option<Timestamp> {
    let created_at = lines.iter().filter_map(|line| line.created_at).min()?;
    created_at.checked_add(hold).ok()
}
