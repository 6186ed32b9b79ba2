//! Creating items, changing them manually, and their journal, on SQLite.

use async_trait::async_trait;
use domain::{Item, ItemId};
use sqlx::{SqliteExecutor, SqlitePool};

use super::{Transaction, acts, item_columns};
use crate::{
    Created, JournalEntry, LedgerError, NewAct, NewJournalEntry,
    changes::item::{Statements, created_entry},
    columns::{FencedColumns, ItemColumns, JournalColumns},
    convert::{as_created, is_repeat, json, limit, milliseconds, signed, unsigned, waves_column},
    error::check_fence,
    events::{self, Statements as _},
    terms::{NO_LIMIT, OLD_LIMIT_GRACE_MS},
    transaction::Transact,
};

pub(super) async fn create(
    mut transaction: Transaction,
    item: &Item,
    actor: Option<&str>,
) -> Result<Created, LedgerError> {
    let new = insert(&mut transaction, item).await?;
    if let Some(actor) = actor.filter(|_| new) {
        transaction.note(&created_entry(item, actor)).await?;
    }
    let found = sqlx::query_as::<_, ItemColumns>(concat!(
        "SELECT ",
        item_columns!(),
        " FROM items WHERE id = ?"
    ));
    let found = Item::try_from(
        found
            .bind(item.id.as_str())
            .fetch_one(&mut *transaction)
            .await?,
    )?;
    let created = sqlx::query_scalar::<_, String>("SELECT as_created FROM items WHERE id = ?");
    let created = json(
        "as_created",
        &created
            .bind(item.id.as_str())
            .fetch_one(&mut *transaction)
            .await?,
    )?;
    Transact::commit(transaction).await?;
    Ok(match (new, is_repeat(&created, item)) {
        (true, _) => Created::New(found),
        (false, true) => Created::Same(found),
        (false, false) => Created::Different,
    })
}

/// Returns whether the item was new.
pub(super) async fn insert(
    transaction: &mut Transaction,
    item: &Item,
) -> Result<bool, LedgerError> {
    let inserted = sqlx::query(
        "INSERT INTO items (id, tag, title, stock, price, currency, limit_per_buyer, segments, opens_at, closes_at, \
                            hold_seconds, durability, state, epoch, as_created, max_hold_seconds, max_per_order, waves) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
    )
    .bind(item.id.as_str())
    .bind(i64::from(item.id.tag().0))
    .bind(&item.title)
    .bind(signed(item.stock))
    .bind(signed(item.price))
    .bind(&item.currency)
    .bind(limit(item))
    .bind(i32::from(item.segments))
    .bind(milliseconds(item.window.opens_at))
    .bind(milliseconds(item.window.closes_at))
    .bind(i64::from(item.hold_seconds))
    .bind(item.durability.as_str())
    .bind(item.state.as_str())
    .bind(signed(item.epoch))
    .bind(as_created(item).to_string())
    .bind(i64::from(item.max_hold_seconds))
    .bind(item.max_per_order.map(|units| i64::from(units.get())))
    .bind(waves_column(&item.waves))
    .execute(&mut **transaction)
    .await?
    .rows_affected();
    if inserted == 0 {
        return Ok(false);
    }
    sqlx::query("INSERT INTO items_without_spillover (item) VALUES (?)")
        .bind(item.id.as_str())
        .execute(&mut **transaction)
        .await?;
    for segment in 0..item.segments {
        let row = sqlx::query(
            "INSERT INTO segments (item, segment, allocated, available) VALUES (?1, ?2, ?3, ?3)",
        );
        let row = row
            .bind(item.id.as_str())
            .bind(i32::from(segment))
            .bind(signed(item.share(segment)));
        row.execute(&mut **transaction).await?;
    }
    transaction.add_events(&[events::of_new_item(item)]).await?;
    Ok(true)
}

pub(super) async fn claim(pool: &SqlitePool, id: &ItemId, token: u64) -> Result<(), LedgerError> {
    let claimed = sqlx::query("UPDATE items SET fence = ?2 WHERE id = ?1 AND fence <= ?2");
    if claimed
        .bind(id.as_str())
        .bind(signed(token))
        .execute(pool)
        .await?
        .rows_affected()
        == 1
    {
        return Ok(());
    }
    let fence = sqlx::query_scalar::<_, i64>("SELECT fence FROM items WHERE id = ?");
    check_fence(
        token,
        unsigned("fence", fence.bind(id.as_str()).fetch_one(pool).await?)?,
    )
}

pub(super) async fn journal(
    pool: &SqlitePool,
    item: &ItemId,
    at_most: usize,
) -> Result<Vec<JournalEntry>, LedgerError> {
    let rows = sqlx::query_as::<_, JournalColumns>(
        "SELECT id, at AS at_ms, item, actor, action, token, before, after FROM journal WHERE item = ? ORDER BY id DESC LIMIT ?",
    );
    let rows = rows
        .bind(item.as_str())
        .bind(signed(at_most as u64))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(JournalEntry::try_from).collect()
}

/// Returns whether the entry was added.
pub(super) async fn note(
    executor: impl SqliteExecutor<'_>,
    entry: &NewJournalEntry,
    once: Option<&str>,
) -> Result<bool, LedgerError> {
    let noted = sqlx::query(
        "INSERT INTO journal (at, item, actor, action, token, before, after, once) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (item, once) WHERE once IS NOT NULL DO NOTHING",
    );
    let noted = noted
        .bind(jiff::Timestamp::now().as_millisecond())
        .bind(entry.item.as_str())
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(entry.token.map(signed))
        .bind(entry.before.to_string())
        .bind(entry.after.to_string())
        .bind(once)
        .execute(executor)
        .await?;
    Ok(noted.rows_affected() == 1)
}

/// [`note`] for an entry that is noted once, with its event.
pub(super) async fn note_once(
    transaction: &mut Transaction,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    let is_new = note(&mut **transaction, entry, Some(once)).await?;
    if let Some(event) = events::of_journal_entry(entry).filter(|_| is_new) {
        transaction.add_events(&[event]).await?;
    }
    Ok(is_new)
}

#[async_trait]
impl Statements for Transaction {
    /// The transaction already holds the write lock, which covers all rows.
    async fn lock_item(&mut self, id: &ItemId) -> Result<Option<(Item, u64)>, LedgerError> {
        let item = sqlx::query_as::<_, FencedColumns>(concat!(
            "SELECT ",
            item_columns!(),
            ", fence FROM items WHERE id = ?"
        ));
        item.bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    async fn write_item(&mut self, item: &Item, before: u64) -> Result<bool, LedgerError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let written = sqlx::query(
            "UPDATE items SET stock = ?1, limit_per_buyer = ?2, opens_at = ?3, closes_at = ?4, state = ?5, epoch = ?6, version = ?7, \
                    limit_before = CASE \
                        WHEN coalesce(?2, ?10) >= coalesce(limit_per_buyer, ?10) THEN limit_before \
                        WHEN limit_lowered_at > ?11 THEN max(limit_before, coalesce(limit_per_buyer, ?10)) \
                        ELSE coalesce(limit_per_buyer, ?10) END, \
                    limit_lowered_at = CASE \
                        WHEN coalesce(?2, ?10) >= coalesce(limit_per_buyer, ?10) THEN limit_lowered_at \
                        ELSE ?12 END, \
                    closed_at = CASE WHEN ?5 <> 'closed' THEN NULL WHEN state = 'closed' THEN closed_at ELSE ?12 END, \
                    archive_by = CASE WHEN ?5 = 'closed' THEN archive_by END, waves = ?13, new_price = ?14 \
             WHERE id = ?8 AND version = ?9 AND archived_at IS NULL",
        )
        .bind(signed(item.stock))
        .bind(limit(item))
        .bind(milliseconds(item.window.opens_at))
        .bind(milliseconds(item.window.closes_at))
        .bind(item.state.as_str())
        .bind(signed(item.epoch))
        .bind(signed(item.version))
        .bind(item.id.as_str())
        .bind(signed(before))
        .bind(NO_LIMIT)
        .bind(now - OLD_LIMIT_GRACE_MS)
        .bind(now)
        .bind(waves_column(&item.waves))
        .bind(item.new_price.map(signed))
        .execute(&mut **self)
        .await?;
        Ok(written.rows_affected() == 1)
    }

    async fn note(&mut self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        note(&mut **self, entry, None).await.map(drop)
    }

    async fn note_all(&mut self, entries: &[NewJournalEntry]) -> Result<(), LedgerError> {
        for entry in entries {
            note(&mut **self, entry, None).await?;
        }
        Ok(())
    }

    async fn note_act(&mut self, act: &NewAct) -> Result<(), LedgerError> {
        acts::note(&mut **self, act).await
    }
}
