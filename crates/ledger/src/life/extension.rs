//! Extending holds and naming checkout sessions, for every database: deadlines of orders, and no
//! units.

use domain::{Order, SessionId};
use jiff::Timestamp;
use serde_json::json;

use super::transition::Statements;
use crate::{
    LedgerError, NewJournalEntry,
    events::{self, NewEvent},
    transaction::{Outcome, end_as},
};

/// Moves the deadline in the transaction, and names the checkout session if there is one, if the
/// order still has this version and is held. `actor`: the admin whom the journal names.
pub(crate) async fn extend(
    mut transaction: impl Statements,
    order: &Order,
    expires_at: Timestamp,
    session: Option<&SessionId>,
    actor: Option<&str>,
) -> Result<Option<Order>, LedgerError> {
    let extended = apply(&mut transaction, order, expires_at, session, actor).await;
    end_as(transaction, extended).await
}

async fn apply(
    transaction: &mut impl Statements,
    order: &Order,
    expires_at: Timestamp,
    session: Option<&SessionId>,
    actor: Option<&str>,
) -> Result<Outcome<Option<Order>>, LedgerError> {
    // First of all: this locks the order, so that of two sessions the later one is written last.
    if !make(transaction, &[order], expires_at, Vec::new()).await? {
        return Ok(Outcome::Unchanged(None));
    }
    if let Some(session) = session {
        transaction
            .name_session(order.id.as_uuid(), session)
            .await?;
    }
    if let Some(actor) = actor {
        let entry = entry(order, expires_at, session, actor);
        transaction.note(&entry).await?;
    }
    Ok(Outcome::Done(Some(extended(order, expires_at))))
}

/// A journal entry for what an admin has done to the hold of an order.
pub(crate) fn entry(
    order: &Order,
    expires_at: Timestamp,
    session: Option<&SessionId>,
    actor: &str,
) -> NewJournalEntry {
    let mut before = json!({ "order": order.id, "expires_at": order.expires_at });
    if let Some(cart) = order.cart {
        before["cart"] = json!(cart);
    }
    let mut after = json!({ "expires_at": expires_at });
    if let Some(session) = session {
        after["session"] = json!(session.as_str());
    }
    NewJournalEntry {
        item: order.item.clone(),
        actor: actor.into(),
        action: "extend".into(),
        token: None,
        before,
        after,
    }
}

/// Moves the deadlines of orders, and raises their versions also where the deadline stays. `more`:
/// events that belong to the change, besides those of the orders whose holds get longer.
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
    let longer = orders.iter().filter(|order| order.expires_at != expires_at);
    let own = longer.map(|order| extended(order, expires_at));
    let mut events: Vec<_> = own.map(|order| events::of_extension(&order)).collect();
    events.extend(more);
    if !events.is_empty() {
        transaction.add_events(&events).await?;
    }
    Ok(true)
}

/// The order once the ledger has what the shop states.
pub(crate) fn stated(order: Order) -> Order {
    Order {
        version: order.version + 1,
        ..order
    }
}

fn extended(order: &Order, expires_at: Timestamp) -> Order {
    Order {
        expires_at,
        version: order.version + 1,
        ..order.clone()
    }
}
