//! The end of an item, for every database.
//!
//! One transaction writes the final audit and archives the item, if nothing that the audit has read
//! has changed since. It locks every row of the item: from then on a transition finds the rows
//! archived, and a recorder leaves them alone.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemState, SafetyCheck};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Changed, LedgerError, NewJournalEntry, SegmentRow,
    changes::item,
    error::check_fence,
    events,
    transaction::{Outcome, end_as},
};

/// An item to archive, as its final audit has found it.
#[derive(Debug, Clone)]
pub struct Archival {
    /// The item.
    pub item: Item,
    /// Its rows.
    pub rows: Vec<SegmentRow>,
    /// The report of the audit.
    pub report: Value,
    /// Who archives the item.
    pub actor: String,
    /// The fencing token of the item's lock.
    pub token: u64,
}

/// The last audit of an archived item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalAudit {
    /// When the item was archived.
    pub at: Timestamp,
    /// Who archived it.
    pub actor: String,
    /// The fencing token of the item's lock.
    pub token: u64,
    /// The report.
    pub report: Value,
    /// When the last of what the sale has left was deleted. `None`: the ledger still has its
    /// orders.
    pub dropped_at: Option<Timestamp>,
}

/// SQL statements of a transaction that archives an item, besides those that change one.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Locks the item's rows, waiting for transactions that have them, and returns them by number.
    async fn lock_rows_of(&mut self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError>;

    /// Whether a transfer of the item is not done.
    async fn has_open_transfers(&mut self, item: &ItemId) -> Result<bool, LedgerError>;

    /// Writes who has asked for the archive.
    async fn write_request(&mut self, item: &ItemId, actor: &str) -> Result<(), LedgerError>;

    /// Archives the item and its rows, with the epoch and version of `archived`, and writes the
    /// audit.
    async fn write_archive(
        &mut self,
        archived: &Item,
        audit: &FinalAudit,
    ) -> Result<(), LedgerError>;
}

/// Archives the item in the transaction. `false`: it has changed since its audit.
pub(crate) async fn archive(
    mut transaction: impl Statements,
    archival: &Archival,
) -> Result<bool, LedgerError> {
    let archived = apply(&mut transaction, archival).await;
    end_as(transaction, archived).await
}

async fn apply(
    transaction: &mut impl Statements,
    archival: &Archival,
) -> Result<Outcome<bool>, LedgerError> {
    let id = &archival.item.id;
    // The lock order of every transaction: rows before their item.
    let rows = transaction.lock_rows_of(id).await?;
    let Some((item, fence)) = transaction.lock_item(id).await? else {
        return Ok(Outcome::Unchanged(false));
    };
    check_fence(archival.token, fence)?;
    if item.state == ItemState::Archived {
        return Ok(Outcome::Unchanged(true));
    }
    let is_as_audited =
        (item == archival.item && rows == archival.rows) || !SafetyCheck::AuditCompare.is_enabled();
    if !is_as_audited || !is_settled(&item, &rows) || transaction.has_open_transfers(id).await? {
        return Ok(Outcome::Unchanged(false));
    }
    let archived = Item {
        state: ItemState::Archived,
        epoch: item.epoch + 1,
        version: item.version + 1,
        ..item.clone()
    };
    let audit = FinalAudit {
        at: Timestamp::now(),
        actor: archival.actor.clone(),
        token: archival.token,
        report: archival.report.clone(),
        dropped_at: None,
    };
    transaction.write_archive(&archived, &audit).await?;
    transaction.note(&entry(&item, &archived, &audit)).await?;
    if let Some(event) = events::of_item_change(&item, &archived) {
        transaction.add_events(&[event]).await?;
    }
    Ok(Outcome::Done(true))
}

fn is_settled(item: &Item, rows: &[SegmentRow]) -> bool {
    item.state == ItemState::Closed && rows.iter().all(|row| row.held + row.returning == 0)
}

fn entry(before: &Item, after: &Item, audit: &FinalAudit) -> NewJournalEntry {
    let fields =
        |item: &Item| json!({ "state": item.state, "epoch": item.epoch, "version": item.version });
    NewJournalEntry {
        item: after.id.clone(),
        actor: audit.actor.clone(),
        action: "archive".into(),
        token: Some(audit.token),
        before: fields(before),
        after: fields(after),
    }
}

/// Notes in the transaction that a reconciler is to archive the closed item.
pub(crate) async fn request(
    mut transaction: impl Statements,
    id: &ItemId,
    expected: Option<u64>,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let requested = apply_request(&mut transaction, id, expected, actor).await;
    end_as(transaction, requested).await
}

async fn apply_request(
    transaction: &mut impl Statements,
    id: &ItemId,
    expected: Option<u64>,
    actor: &str,
) -> Result<Outcome<Changed>, LedgerError> {
    let Some((item, _)) = transaction.lock_item(id).await? else {
        return Ok(Outcome::Unchanged(Changed::NoItem));
    };
    // A repeat must find its own change, not the version that the change has produced.
    if item.state == ItemState::Archived {
        return Ok(Outcome::Unchanged(Changed::Archived(item)));
    }
    if expected.is_some_and(|expected| expected != item.version) {
        return Ok(Outcome::Unchanged(Changed::OtherVersion(item)));
    }
    if item.state == ItemState::Closed {
        transaction.write_request(id, actor).await?;
    }
    Ok(Outcome::Done(Changed::Item(item)))
}
