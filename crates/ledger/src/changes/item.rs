//! Manual changes of an item, for every database.

use async_trait::async_trait;
use domain::{Item, ItemId, ItemState};
use serde_json::{Map, Value, json};

use crate::{Changed, ItemChange, LedgerError, NewAct, NewJournalEntry, events, transaction::end};

/// SQL statements of a transaction that changes an item.
#[async_trait]
pub(crate) trait Statements: events::Statements {
    /// Locks the item's row, waiting for the transaction that has it. Returns the item with its
    /// fence.
    async fn lock_item(&mut self, id: &ItemId) -> Result<Option<(Item, u64)>, LedgerError>;

    /// Writes the changeable columns if the stored version is `before`. Returns whether it was.
    async fn write_item(&mut self, item: &Item, before: u64) -> Result<bool, LedgerError>;

    /// Adds an entry to the journal.
    async fn note(&mut self, entry: &NewJournalEntry) -> Result<(), LedgerError>;

    /// Adds entries to the journal, in this order. Not called with an empty list.
    async fn note_all(&mut self, entries: &[NewJournalEntry]) -> Result<(), LedgerError>;

    /// Adds an entry to the service journal.
    async fn note_act(&mut self, act: &NewAct) -> Result<(), LedgerError>;
}

/// Changes the item in the transaction.
pub(crate) async fn change_item(
    mut transaction: impl Statements,
    id: &ItemId,
    change: &ItemChange,
    expected: Option<u64>,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let changed = apply(&mut transaction, id, change, expected, actor).await;
    end(transaction, changed).await
}

async fn apply(
    transaction: &mut impl Statements,
    id: &ItemId,
    change: &ItemChange,
    expected: Option<u64>,
    actor: &str,
) -> Result<Changed, LedgerError> {
    let Some((item, _)) = transaction.lock_item(id).await? else {
        return Ok(Changed::NoItem);
    };
    if item.state == ItemState::Archived {
        return Ok(Changed::Archived(item));
    }
    // Apply the change before comparing versions: a repeat must find its own change, not the
    // version that the change has produced.
    let Some(changed) = change.apply(&item) else {
        return Ok(Changed::Item(item));
    };
    if expected.is_some_and(|expected| expected != item.version) {
        return Ok(Changed::OtherVersion(item));
    }
    if item.exceeds_stock(&changed) {
        return Ok(Changed::AboveMaximum(item));
    }
    write(transaction, &item, &changed).await?;
    transaction.note(&entry(&item, &changed, actor)).await?;
    if let Some(event) = events::of_item_change(&item, &changed) {
        transaction.add_events(&[event]).await?;
    }
    Ok(Changed::Item(changed))
}

/// The row is locked. If its version differs from the one just read, the lock did not work.
pub(crate) async fn write(
    transaction: &mut impl Statements,
    item: &Item,
    changed: &Item,
) -> Result<(), LedgerError> {
    let written = transaction.write_item(changed, item.version).await?;
    written
        .then_some(())
        .ok_or_else(|| LedgerError::Database(sqlx::Error::RowNotFound))
}

/// A journal entry with the changed fields before and after, and the new version and epoch.
fn entry(before: &Item, after: &Item, actor: &str) -> NewJournalEntry {
    let (before_fields, after_fields) = (fields(before), fields(after));
    let different: Vec<_> = CHANGEABLE
        .into_iter()
        .filter(|(_, field)| before_fields[*field] != after_fields[*field])
        .collect();
    let only = |fields: &Map<String, Value>| {
        let names = different
            .iter()
            .map(|(_, field)| *field)
            .chain(["epoch", "version"]);
        Value::Object(
            names
                .map(|name| (name.to_owned(), fields[name].clone()))
                .collect(),
        )
    };
    NewJournalEntry {
        item: after.id.clone(),
        actor: actor.into(),
        action: different
            .iter()
            .map(|(action, _)| *action)
            .collect::<Vec<_>>()
            .join(","),
        token: None,
        before: only(&before_fields),
        after: only(&after_fields),
    }
}

/// The journal entry for the creation of the item, with the values that it was created with.
pub(crate) fn created_entry(item: &Item, actor: &str) -> NewJournalEntry {
    let mut after = fields(item);
    let terms = [
        ("title", json!(item.title)),
        ("stock", json!(item.stock)),
        ("currency", json!(item.currency)),
        ("segments", json!(item.segments)),
    ];
    after.extend(terms.map(|(field, value)| (field.to_owned(), value)));
    NewJournalEntry {
        item: item.id.clone(),
        actor: actor.into(),
        action: "create".into(),
        token: None,
        before: json!({}),
        after: Value::Object(after),
    }
}

/// The journal's word for each change, and the field that it changes.
const CHANGEABLE: [(&str, &str); 5] = [
    ("state", "state"),
    ("limit", "limit_per_buyer"),
    ("window", "window"),
    ("price", "price"),
    ("waves", "waves"),
];

fn fields(item: &Item) -> Map<String, Value> {
    let fields = [
        ("state", json!(item.state)),
        (
            "limit_per_buyer",
            json!(item.limit_per_buyer.map(domain::Quantity::get)),
        ),
        (
            "window",
            json!({ "opens_at": item.window.opens_at, "closes_at": item.window.closes_at }),
        ),
        (
            "waves",
            item.waves
                .iter()
                .map(|wave| json!({ "at": wave.at, "units": wave.units }))
                .collect(),
        ),
        ("price", json!(item.current_price())),
        ("epoch", json!(item.epoch)),
        ("version", json!(item.version)),
    ];
    fields
        .map(|(field, value)| (field.to_owned(), value))
        .into_iter()
        .collect()
}
