//! Deletes what archived sales have left, in batches, for every database.
//!
//! A drop has three parts. The caller reads the rows that go, page by page, and writes them into an
//! export. It then hands the rows of the export back, batch by batch. Each batch is one short
//! transaction: it locks the item, reads the rows again, and deletes those that are as in the
//! export. A row that has changed since stays, and goes into the next export. The last part writes
//! the figures.
//!
//! What a batch deletes it also counts, in the same transaction: a crash between two batches loses
//! neither a row nor the figures. The payments stay, with their refunds: each says which order it
//! has paid, and so pays no other one. The journal entries of money stay too, those that tell of
//! the end of the item, and those that name an admin, except about the holds of single orders.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use domain::{ItemId, SafetyCheck};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    LedgerError, NewJournalEntry,
    changes::item,
    convert::{signed, unsigned},
    transaction::{Outcome, end_as},
};

/// Events that are younger stay: readers that are a little behind still get them. They go by their
/// age.
pub(crate) const EVENTS_MIN_AGE: Duration = Duration::from_secs(3600);

/// Events of the item that are older than it by more than this, or younger than its archive, are not
/// looked for: their order is nearly that of their times. Those of a late refund go by their age.
const EVENTS_MARGIN: Duration = Duration::from_secs(24 * 3600);

/// After a part of the orders was searched for open money, the ledger belongs to others for so many times
/// as long as that took.
pub(crate) const PAUSE_FACTOR: u32 = 2;

/// Result of asking for a drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropRequest {
    /// The item is to be dropped.
    Noted,
    /// The item was dropped before.
    Dropped,
    /// The item is not archived.
    NotArchived,
    /// It was archived at this time, which is not long enough ago.
    TooEarly(Timestamp),
    /// There is no such item.
    NoItem,
}

/// What of a sale goes, in the order in which it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SaleTable {
    /// The orders, each with its checkout sessions and its cart. Their refunds are exported, and
    /// stay.
    Orders,
    /// The transfers between the segments.
    Transfers,
    /// The journal, except the entries of money, those of the end of the item, and those of admins
    /// about more than the hold of an order.
    Journal,
    /// The events that every webhook and every sink has, and that are no longer new.
    Events,
}

impl SaleTable {
    /// All of them, in the order in which they go.
    pub const ALL: [Self; 4] = [Self::Orders, Self::Transfers, Self::Journal, Self::Events];

    /// The name in an export.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Transfers => "transfers",
            Self::Journal => "journal",
            Self::Events => "events",
        }
    }
}

/// A row that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedRow {
    /// Its key: the id, or the position of an event.
    pub key: u128,
    /// The row, and what goes with it, as JSON on one line. The same row has the same text.
    pub document: String,
}

/// A key with its document. `None`: the row does not go.
pub(crate) type Row = (u128, Option<String>);

/// A page of the rows that go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportPage {
    /// The rows, by key. There may be none although the table continues.
    pub rows: Vec<ExportedRow>,
    /// The key behind which the next page starts. `None`: the table ends with this page.
    pub next: Option<u128>,
}

impl ExportPage {
    /// The page of these keys, which were read with this limit. A key without a document is that of
    /// a row that does not go.
    pub(crate) fn of(rows: Vec<Row>, at_most: usize) -> Self {
        let last = rows.last().map(|(key, _)| *key);
        let next = last.filter(|_| rows.len() >= at_most);
        let rows = rows.into_iter().filter_map(|(key, document)| {
            let document = document?;
            Some(ExportedRow { key, document })
        });
        Self {
            rows: rows.collect(),
            next,
        }
    }
}

/// An export that was written, read again, and found to have what the ledger has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedExport {
    /// The name of its file.
    pub file: String,
    /// Number of rows, in the order of [`SaleTable::ALL`].
    pub rows: [u64; 4],
    /// The SHA-256 of its rows, in hexadecimal digits.
    pub sha256: String,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// Number of rows that were deleted.
    pub deleted: u64,
    /// Number of rows that are not as in the export, so they stay.
    pub changed: u64,
}

/// Result of ending a drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropEnd {
    /// Everything is deleted: so many orders since the drop began.
    Done(u64),
    /// So many orders stay, because their money is to be returned.
    Waits(u64),
    /// So many rows are left that no export has as they are.
    RowsLeft(u64),
    /// The item is not to be dropped.
    NotRequested,
}

/// What the item's row says of its drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DropState {
    pub archived_at: Option<Timestamp>,
    pub drop_by: Option<String>,
    pub dropped_orders: u64,
    pub dropped_transfers: u64,
    pub dropped_at: Option<Timestamp>,
}

/// Rows of an item that are still to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowsLeft {
    /// Orders whose money is to be returned.
    pub owed: u64,
    /// All others.
    pub others: u64,
}

/// The times of the events that a drop looks for, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTimes {
    pub from: i64,
    pub until: i64,
}

impl EventTimes {
    /// Of an item that was created and archived then.
    pub fn of(created: i64, archived: i64) -> Self {
        let margin = i64::try_from(EVENTS_MARGIN.as_millis()).unwrap_or(i64::MAX);
        Self {
            from: created.saturating_sub(margin),
            until: archived.saturating_add(margin),
        }
    }
}

/// The place of all events of a dump that was restored to another PostgreSQL server (`docs/events.md`).
const RENUMBERED: i64 = 0;

/// An event's place, and when it happened, in milliseconds since 1970. Of several events at a place, those of
/// one transaction, it is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventAt {
    pub place: i64,
    pub at: i64,
}

/// Reads single events, by place.
#[async_trait]
pub(crate) trait Places: Send {
    /// The first event at this place or behind it.
    async fn at(&mut self, place: i64) -> Result<Option<EventAt>, LedgerError>;

    /// The last event.
    async fn last(&mut self) -> Result<Option<EventAt>, LedgerError>;
}

/// A place before all events since this time, and behind those before it. `None`: there is no event since
/// then. Places are nearly in the order of times, so each step halves what is left. Events that were numbered
/// anew are in no order: the first of them tells nothing of the others.
pub(crate) async fn first_since(
    events: &mut impl Places,
    from: i64,
) -> Result<Option<i64>, LedgerError> {
    let Some(last) = events.last().await?.filter(|last| last.at >= from) else {
        return Ok(None);
    };
    let (mut low, mut high) = (0, last.place);
    while low < high {
        let middle = low + (high - low) / 2;
        match events.at(middle).await? {
            Some(event) if event.at < from && event.place > RENUMBERED => low = event.place + 1,
            _ => high = middle,
        }
    }
    Ok(Some(low))
}

/// SQL statements of a transaction that drops an item, besides the journal's.
#[async_trait]
pub(crate) trait Statements: item::Statements {
    /// Locks the item. `None`: there is no such item.
    async fn lock_drop(&mut self, id: &ItemId) -> Result<Option<DropState>, LedgerError>;

    /// Writes who has asked for the drop.
    async fn write_drop_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError>;

    /// Locks these rows of the item, and reads those that go. Not those that may not go any more:
    /// orders whose money is to be returned, and events that a webhook or a sink has yet to get.
    async fn lock_rows(
        &mut self,
        id: &ItemId,
        table: SaleTable,
        keys: &[u128],
    ) -> Result<Vec<ExportedRow>, LedgerError>;

    /// Deletes these rows, which are locked. With the orders go their checkout sessions, and the
    /// settled carts of which no other order is left. The payments of what is deleted are marked as
    /// settled, with the item: an entry that no order could take such a payment tells of no money
    /// that is due, but a refund that fails later does. So its refunds stay, too.
    async fn delete_rows(&mut self, table: SaleTable, keys: &[u128]) -> Result<u64, LedgerError>;

    /// Number of the item's rows that are left. Events do not count: the rest goes by its age.
    async fn rows_left(&mut self, id: &ItemId) -> Result<RowsLeft, LedgerError>;

    /// Adds to the figures of the drop, and ends it if `is_done`.
    async fn count_dropped(
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
) -> Result<DropRequest, LedgerError> {
    let requested = apply_request(&mut transaction, id, archived_before, actor).await;
    end_as(transaction, requested).await
}

async fn apply_request(
    transaction: &mut impl Statements,
    id: &ItemId,
    archived_before: Timestamp,
    actor: &str,
) -> Result<Outcome<DropRequest>, LedgerError> {
    let Some(state) = transaction.lock_drop(id).await? else {
        return Ok(Outcome::Unchanged(DropRequest::NoItem));
    };
    if state.dropped_at.is_some() {
        return Ok(Outcome::Unchanged(DropRequest::Dropped));
    }
    let Some(archived_at) = state.archived_at else {
        return Ok(Outcome::Unchanged(DropRequest::NotArchived));
    };
    if archived_at > archived_before {
        return Ok(Outcome::Unchanged(DropRequest::TooEarly(archived_at)));
    }
    if state.drop_by.is_some() {
        return Ok(Outcome::Unchanged(DropRequest::Noted));
    }
    transaction.write_drop_request(id, actor).await?;
    let asked = entry(
        id,
        actor,
        "drop_request",
        json!({ "archived_at": archived_at }),
    );
    transaction.note(&asked).await?;
    Ok(Outcome::Done(DropRequest::Noted))
}

/// Notes the export in the transaction, with who has asked for the drop.
pub(crate) async fn note_export(
    mut transaction: impl Statements,
    id: &ItemId,
    export: &VerifiedExport,
) -> Result<(), LedgerError> {
    let noted = apply_export(&mut transaction, id, export).await;
    end_as(transaction, noted).await
}

async fn apply_export(
    transaction: &mut impl Statements,
    id: &ItemId,
    export: &VerifiedExport,
) -> Result<Outcome<()>, LedgerError> {
    let Some(actor) = open_drop(transaction, id).await? else {
        return Ok(Outcome::Unchanged(()));
    };
    let mut figures = json!({ "file": export.file, "sha256": export.sha256 });
    for (table, rows) in SaleTable::ALL.into_iter().zip(export.rows) {
        figures[table.as_str()] = rows.into();
    }
    transaction
        .note(&entry(id, &actor, "drop_export", figures))
        .await?;
    Ok(Outcome::Done(()))
}

/// Deletes the rows in the transaction that are as in the export. `None`: the item is not to be
/// dropped, or was dropped.
pub(crate) async fn delete(
    mut transaction: impl Statements,
    id: &ItemId,
    table: SaleTable,
    rows: &[ExportedRow],
) -> Result<Option<DroppedRows>, LedgerError> {
    let deleted = apply_delete(&mut transaction, id, table, rows).await;
    end_as(transaction, deleted).await
}

async fn apply_delete(
    transaction: &mut impl Statements,
    id: &ItemId,
    table: SaleTable,
    exported: &[ExportedRow],
) -> Result<Outcome<Option<DroppedRows>>, LedgerError> {
    if open_drop(transaction, id).await?.is_none() {
        return Ok(Outcome::Unchanged(None));
    }
    let keys: Vec<u128> = exported.iter().map(|row| row.key).collect();
    let found = transaction.lock_rows(id, table, &keys).await?;
    let documents: HashMap<u128, &str> = exported
        .iter()
        .map(|row| (row.key, &*row.document))
        .collect();
    let same: Vec<u128> = found
        .iter()
        .filter(|row| {
            documents.get(&row.key) == Some(&&*row.document)
                || !SafetyCheck::DropCompare.is_enabled()
        })
        .map(|row| row.key)
        .collect();
    let changed = (found.len() - same.len()) as u64;
    if same.is_empty() {
        let dropped = DroppedRows {
            deleted: 0,
            changed,
        };
        return Ok(Outcome::Unchanged(Some(dropped)));
    }
    let deleted = transaction.delete_rows(table, &same).await?;
    let (orders, transfers) = match table {
        SaleTable::Orders => (deleted, 0),
        SaleTable::Transfers => (0, deleted),
        SaleTable::Journal | SaleTable::Events => (0, 0),
    };
    if orders + transfers > 0 {
        transaction
            .count_dropped(id, orders, transfers, false)
            .await?;
    }
    Ok(Outcome::Done(Some(DroppedRows { deleted, changed })))
}

/// Ends the drop in the transaction, if nothing is left.
pub(crate) async fn finish(
    mut transaction: impl Statements,
    id: &ItemId,
) -> Result<DropEnd, LedgerError> {
    let end = apply_finish(&mut transaction, id).await;
    end_as(transaction, end).await
}

async fn apply_finish(
    transaction: &mut impl Statements,
    id: &ItemId,
) -> Result<Outcome<DropEnd>, LedgerError> {
    let Some(state) = transaction.lock_drop(id).await? else {
        return Ok(Outcome::Unchanged(DropEnd::NotRequested));
    };
    if state.dropped_at.is_some() {
        return Ok(Outcome::Unchanged(DropEnd::Done(state.dropped_orders)));
    }
    let Some(actor) = state.drop_by else {
        return Ok(Outcome::Unchanged(DropEnd::NotRequested));
    };
    let left = transaction.rows_left(id).await?;
    if left.others > 0 {
        return Ok(Outcome::Unchanged(DropEnd::RowsLeft(left.others)));
    }
    if left.owed > 0 {
        return Ok(Outcome::Unchanged(DropEnd::Waits(left.owed)));
    }
    transaction.count_dropped(id, 0, 0, true).await?;
    let figures = json!({ "orders": state.dropped_orders, "transfers": state.dropped_transfers });
    transaction
        .note(&entry(id, &actor, "drop", figures))
        .await?;
    Ok(Outcome::Done(DropEnd::Done(state.dropped_orders)))
}

/// Who has asked for a drop that has not ended. It is locked.
async fn open_drop(
    transaction: &mut impl Statements,
    id: &ItemId,
) -> Result<Option<String>, LedgerError> {
    let state = transaction.lock_drop(id).await?;
    let open = state.filter(|state| state.archived_at.is_some() && state.dropped_at.is_none());
    Ok(open.and_then(|state| state.drop_by))
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

/// The key of an event: its position.
pub(crate) fn key(xid: i64, seq: i64) -> Result<u128, LedgerError> {
    let (xid, seq): (u64, u64) = (unsigned("xid", xid)?, unsigned("seq", seq)?);
    Ok(u128::from(xid) << 64 | u128::from(seq))
}

/// The position of the event with this key.
pub(crate) fn position(key: u128) -> (i64, i64) {
    (number(key >> 64), number(key & u128::from(u64::MAX)))
}

/// The id of a row whose ids are numbers.
pub(crate) fn number(key: u128) -> i64 {
    signed(u64::try_from(key).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::{EventAt, ExportPage, Places, first_since, key, number, position};
    use crate::LedgerError;

    /// Events with the times in the order of their places, and how many were read.
    struct Made(Vec<EventAt>, usize);

    #[async_trait]
    impl Places for Made {
        async fn at(&mut self, place: i64) -> Result<Option<EventAt>, LedgerError> {
            self.1 += 1;
            Ok(self.0.iter().find(|event| event.place >= place).copied())
        }

        async fn last(&mut self) -> Result<Option<EventAt>, LedgerError> {
            Ok(self.0.last().copied())
        }
    }

    #[tokio::test]
    async fn the_first_event_since_a_time_is_found_in_few_steps() {
        // Some places are free.
        let of = |places: &[i64]| {
            let events = places.iter().map(|place| EventAt {
                place: *place,
                at: place * 10,
            });
            Made(events.collect(), 0)
        };
        let places: Vec<_> = (1..100_000).filter(|place| place % 3 != 0).collect();
        let mut events = of(&places);
        for (from, place) in [(0, 0), (10, 1), (11, 2), (30, 4), (999_970, 99_997)] {
            let found = first_since(&mut events, from).await.unwrap().unwrap();
            let first = events.at(found).await.unwrap().unwrap();
            assert_eq!(first.place, place.max(1), "{from}");
            events.1 = 0;
        }
        assert_eq!(first_since(&mut events, 999_990).await.unwrap(), None);
        first_since(&mut events, 500_000).await.unwrap();
        assert!(events.1 <= 20, "{}", events.1);
        assert_eq!(first_since(&mut of(&[]), 0).await.unwrap(), None);
        // A dump was restored before the event at 7: one that comes later tells that all of it is older.
        let mut restored = of(&[0, 7, 8]);
        for (from, place) in [(65, 0), (75, 8)] {
            let found = first_since(&mut restored, from).await.unwrap();
            assert_eq!(found, Some(place), "{from}");
        }
        assert_eq!(first_since(&mut of(&[5]), 51).await.unwrap(), None);
        assert_eq!(first_since(&mut of(&[5]), 50).await.unwrap(), Some(0));
    }

    #[test]
    fn a_key_has_the_position_of_its_event() {
        for (xid, seq) in [(0, 1), (1, 0), (7, 9), (i64::MAX, i64::MAX)] {
            assert_eq!(position(key(xid, seq).unwrap()), (xid, seq));
        }
        assert!(key(1, 0).unwrap() > key(0, i64::MAX).unwrap());
        assert!(key(-1, 0).is_err());
        assert_eq!(number(5), 5);
    }

    #[test]
    fn a_full_page_continues_behind_its_last_row_whether_that_row_goes_or_not() {
        let page = |rows: &[(u128, bool)]| {
            let rows = rows.iter();
            let rows = rows.map(|(key, goes)| (*key, goes.then(|| key.to_string())));
            let page = ExportPage::of(rows.collect(), 2);
            let keys: Vec<_> = page.rows.iter().map(|row| row.key).collect();
            (keys, page.next)
        };
        assert_eq!(page(&[]), (vec![], None));
        assert_eq!(page(&[(1, true)]), (vec![1], None));
        assert_eq!(page(&[(1, true), (2, false)]), (vec![1], Some(2)));
        assert_eq!(page(&[(1, false), (2, false)]), (vec![], Some(2)));
    }
}
