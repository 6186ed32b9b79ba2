//! Extending the holds of a cart and naming its checkout session, for every database: the deadlines
//! of all lines and the cart's own, in one transaction under the lock of the cart's row.

use std::time::Duration;

use domain::{Cart, CartState, Order, OrderState, SessionId};
use jiff::Timestamp;

use super::{Statements, all_are, due_at};
use crate::{
    LedgerError, events,
    life::extension,
    transaction::{Outcome, end_as},
};

/// Makes the holds of the cart last `hold`, counted from when the first line took its units, and
/// names the checkout session. `actor`: the admin whom the journal names.
pub(crate) async fn extend(
    mut transaction: impl Statements,
    cart: &Cart,
    hold: Option<Duration>,
    session: Option<&SessionId>,
    actor: Option<&str>,
) -> Result<Option<Cart>, LedgerError> {
    let extended = apply(&mut transaction, cart, hold, session, actor).await;
    end_as(transaction, extended).await
}

async fn apply(
    transaction: &mut impl Statements,
    cart: &Cart,
    hold: Option<Duration>,
    session: Option<&SessionId>,
    actor: Option<&str>,
) -> Result<Outcome<Option<Cart>>, LedgerError> {
    let found = transaction.lock_cart(cart.id).await?;
    if cart.state != CartState::Held || found != Some((CartState::Held, cart.version)) {
        return Ok(Outcome::Unchanged(None));
    }
    let lines = transaction.lines_of(&[cart.id]).await?;
    if !all_are(cart, &lines, OrderState::Held) {
        return Err(LedgerError::BrokenCart(cart.id));
    }
    let wanted = hold.and_then(|hold| end(&lines, hold));
    let later = wanted.filter(|end| *end > cart.expires_at);
    if later.is_none() && session.is_none() {
        return Ok(Outcome::Unchanged(Some(cart.clone())));
    }
    let after = Cart {
        expires_at: later.unwrap_or(cart.expires_at),
        version: cart.version + 1,
        ..cart.clone()
    };
    if later.is_some() {
        extend_lines(transaction, &after, &lines).await?;
    }
    if let Some(session) = session {
        transaction.name_session(cart.id.as_uuid(), session).await?;
    }
    transaction
        .write_cart(&after, due_at(&after, false))
        .await?;
    if let Some(actor) = actor {
        let of = |line: &Order| {
            let expires_at = line.expires_at.max(after.expires_at);
            extension::entry(line, expires_at, session, actor)
        };
        let entries: Vec<_> = lines.iter().map(of).collect();
        transaction.note_all(&entries).await?;
    }
    Ok(Outcome::Done(Some(after)))
}

/// Moves the deadlines of the lines to that of the cart. The hold of a line may last longer
/// already, because its item has longer ones.
async fn extend_lines(
    transaction: &mut impl Statements,
    cart: &Cart,
    lines: &[Order],
) -> Result<(), LedgerError> {
    let event = events::of_cart_extension(cart)?;
    let earlier: Vec<_> = lines
        .iter()
        .filter(|line| line.expires_at < cart.expires_at)
        .collect();
    if !extension::make(transaction, &earlier, cart.expires_at, vec![event]).await? {
        return Err(LedgerError::CartSuperseded(cart.id));
    }
    Ok(())
}

/// The end of a hold of this length. The lines' creation never changes, so every repeat finds the
/// same.
fn end(lines: &[Order], hold: Duration) -> Option<Timestamp> {
    let created_at = lines.iter().filter_map(|line| line.created_at).min()?;
    created_at.checked_add(hold).ok()
}
