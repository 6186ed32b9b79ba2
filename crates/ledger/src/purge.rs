//! Deletes the orders of archived items in steps, for every database.
//!
//! Each step is one short transaction that locks the item, so two processes that purge an item take
//! turns. What it deletes it also counts, in the same transaction: a crash between two steps loses
//! neither an order nor the figures. The payments stay: each says which order it has paid, and so
//! pays no other one.

use async_trait::async_trait;
use domain::{ItemId, OrderId};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    LedgerError, NewJournalEntry,
    changes::item,
    transaction::{Outcome, end_as},
};

/// Result of asking for a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeRequest {
    /// The item is to be purged.
    Noted,
    /// The item was purged before.
    Purged,
    /// The item is not archived.
    NotArchived,
    /// It was archived at this time, which is not long enough ago.
    TooEarly(Timestamp),
    /// There is no such item.
    NoItem,
}

/// Result of one step of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeStep {
    /// There is more to delete, behind this order.
    Continues(Option<OrderId>),
    /// So many orders stay, because their money is to be returned. Everything else is deleted.
    Waits(u64),
    /// Everything is deleted: so many orders since the purge began.
    Done(u64),
    /// The item is not to be purged.
    NotRequested,
}

/// A good audit: its time, and the revision of the rows that it has compared with the orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoodAudit {
    /// When the rows were read.
    pub at: Timestamp,
    /// A hash of the rows.
    pub revision: u64,
}

/// What the item's row says of its purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PurgeState {
    pub archived_at: Option<Timestamp>,
    pub purge_by: Option<String>,
    pub purged_orders: u64,
    pub purged_transfers: u64,
    pub purged_at: Option<Timestamp>,
}

/// Orders that a step has visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deleted {
    /// Number of orders that are deleted.
    pub orders: u64,
    /// The last order that was visited. `None`: there was none.
    pub last: Option<OrderId>,
}

/// SQL statements of a transaction that purges an item, besides the journal's.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Locks the item. `None`: there is no such item.
    async fn lock_purge(&mut self, id: &ItemId) -> Result<Option<PurgeState>, LedgerError>;

    /// Writes who has asked for the purge.
    async fn write_purge_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError>;

    /// Visits up to `at_most` orders of the item behind `after`, and deletes them and the settled
    /// carts of which no other order is left, with the checkout sessions of both and the refunds of the
    /// deleted ones. Those in `refund_due` stay, and those of which a refund has failed or is on its way. They
    /// have ended, so they need no session. The payments of what is deleted are marked as settled: a
    /// journal entry of such a payment tells of no money that is due.
    async fn delete_orders(
        &mut self,
        id: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Deleted, LedgerError>;

    /// Number of the item's orders that are left.
    async fn orders_left(&mut self, id: &ItemId) -> Result<u64, LedgerError>;

    /// Deletes up to `at_most` transfers of the item. Returns how many.
    async fn delete_transfers(&mut self, id: &ItemId, at_most: usize) -> Result<u64, LedgerError>;

    /// Adds to the figures of the purge, and ends it if `is_done`.
    async fn count_purged(
        &mut self,
        id: &ItemId,
        orders: u64,
        transfers: u64,
        is_done: bool,
    ) -> Result<(), LedgerError>;
}

/// Notes the request in the transaction.
pub(crate) async fn request(
    mut transaction: impl Statements,
    id: &ItemId,
    archived_before: Timestamp,
    actor: &str,
) -> Result<PurgeRequest, LedgerError> {
    let requested = apply_request(&mut transaction, id, archived_before, actor).await;
    end_as(transaction, requested).await
}

async fn apply_request(
    transaction: &mut impl Statements,
    id: &ItemId,
    archived_before: Timestamp,
    actor: &str,
) -> Result<Outcome<PurgeRequest>, LedgerError> {
    let Some(state) = transaction.lock_purge(id).await? else {
        return Ok(Outcome::Unchanged(PurgeRequest::NoItem));
    };
    if state.purged_at.is_some() {
        return Ok(Outcome::Unchanged(PurgeRequest::Purged));
    }
    let Some(archived_at) = state.archived_at else {
        return Ok(Outcome::Unchanged(PurgeRequest::NotArchived));
    };
    if archived_at > archived_before {
        return Ok(Outcome::Unchanged(PurgeRequest::TooEarly(archived_at)));
    }
    if state.purge_by.is_some() {
        return Ok(Outcome::Unchanged(PurgeRequest::Noted));
    }
    transaction.write_purge_request(id, actor).await?;
    let asked = entry(
        id,
        actor,
        "purge_request",
        json!({ "archived_at": archived_at }),
    );
    transaction.note(&asked).await?;
    Ok(Outcome::Done(PurgeRequest::Noted))
}

/// Makes one step of the purge in the transaction.
pub(crate) async fn step(
    mut transaction: impl Statements,
    id: &ItemId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<PurgeStep, LedgerError> {
    let step = apply_step(&mut transaction, id, after, at_most).await;
    end_as(transaction, step).await
}

async fn apply_step(
    transaction: &mut impl Statements,
    id: &ItemId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Outcome<PurgeStep>, LedgerError> {
    let Some(PurgeState {
        archived_at: Some(_),
        purge_by: Some(actor),
        purged_orders,
        purged_transfers,
        purged_at,
    }) = transaction.lock_purge(id).await?
    else {
        return Ok(Outcome::Unchanged(PurgeStep::NotRequested));
    };
    if purged_at.is_some() {
        return Ok(Outcome::Unchanged(PurgeStep::Done(purged_orders)));
    }
    let Deleted { orders, last } = transaction.delete_orders(id, after, at_most).await?;
    if last.is_some() {
        transaction.count_purged(id, orders, 0, false).await?;
        return Ok(Outcome::Done(PurgeStep::Continues(last)));
    }
    let transfers = transaction.delete_transfers(id, at_most).await?;
    if transfers > 0 {
        transaction.count_purged(id, 0, transfers, false).await?;
        return Ok(Outcome::Done(PurgeStep::Continues(after)));
    }
    match transaction.orders_left(id).await? {
        0 => {}
        left => return Ok(Outcome::Unchanged(PurgeStep::Waits(left))),
    }
    transaction.count_purged(id, 0, 0, true).await?;
    let figures = json!({ "orders": purged_orders, "transfers": purged_transfers });
    transaction
        .note(&entry(id, &actor, "purge", figures))
        .await?;
    Ok(Outcome::Done(PurgeStep::Done(purged_orders)))
}

fn entry(item: &ItemId, actor: &str, action: &str, after: serde_json::Value) -> NewJournalEntry {
    NewJournalEntry {
        item: item.clone(),
        actor: actor.into(),
        action: action.into(),
        token: None,
        before: json!({}),
        after,
    }
}
