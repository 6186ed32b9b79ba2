//! Changing an item by hand, the same for every database.

use async_trait::async_trait;
use domain::{Item, ItemId};
use serde_json::{Map, Value, json};

use crate::{
    Changed, ItemChange, LedgerError, NewJournalEntry,
    transaction::{Transact, end},
};

/// The statements of a transaction that changes an item.
#[async_trait]
pub(crate) trait Statements: Transact {
    /// Locks the item's row, waiting for whoever has it. With it, the token that has the authority.
    async fn lock_item(&mut self, id: &ItemId) -> Result<Option<(Item, u64)>, LedgerError>;

    /// Writes what can change of an item, if its version is `before`. Whether it was.
    async fn write_item(&mut self, item: &Item, before: u64) -> Result<bool, LedgerError>;

    /// Adds to the journal.
    async fn note(&mut self, entry: &NewJournalEntry) -> Result<(), LedgerError>;
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
    // First, so that a repeat finds its change and not its own new version.
    let Some(changed) = change.apply(&item) else {
        return Ok(Changed::Item(item));
    };
    if expected.is_some_and(|expected| expected != item.version) {
        return Ok(Changed::OtherVersion(item));
    }
    write(transaction, &item, &changed).await?;
    transaction.note(&entry(&item, &changed, actor)).await?;
    Ok(Changed::Item(changed))
}

/// The row is locked: that it has another version than the one read a moment ago means that the lock was none.
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

/// What is different, before and after, and the version and epoch that came of it.
fn entry(before: &Item, after: &Item, actor: &str) -> NewJournalEntry {
    let (before_said, after_said) = (said(before), said(after));
    let different: Vec<_> = CHANGEABLE
        .into_iter()
        .filter(|(_, field)| before_said[*field] != after_said[*field])
        .collect();
    let only = |said: &Map<String, Value>| {
        let fields = different
            .iter()
            .map(|(_, field)| *field)
            .chain(["epoch", "version"]);
        Value::Object(
            fields
                .map(|field| (field.to_owned(), said[field].clone()))
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
        before: only(&before_said),
        after: only(&after_said),
    }
}

/// The word for a change, and the field that it changes.
const CHANGEABLE: [(&str, &str); 3] = [
    ("state", "state"),
    ("limit", "limit_per_buyer"),
    ("window", "window"),
];

fn said(item: &Item) -> Map<String, Value> {
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
        ("epoch", json!(item.epoch)),
        ("version", json!(item.version)),
    ];
    fields
        .map(|(field, value)| (field.to_owned(), value))
        .into_iter()
        .collect()
}
