//! Creating items, changing them manually, and their journal: the statements, for either database.

use async_trait::async_trait;
use domain::{Item, ItemId};

use super::{
    Connection, Pool, Transaction, acts, notes, segments,
    sql::{items as sql, journal as journal_sql, totals},
};
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
        Statements::note(&mut transaction, &created_entry(item, actor)).await?;
    }
    // Before the commit: an error after it would say that nothing was changed.
    let found = sqlx::query_as::<_, ItemColumns>(totals::ITEM);
    let found = found.bind(item.id.as_str()).fetch_one(&mut *transaction);
    let found = Item::try_from(found.await?)?;
    if new {
        Transact::commit(transaction).await?;
        return Ok(Created::New(found));
    }
    let created = sqlx::query_scalar::<_, String>(sql::AS_CREATED);
    let created = created.bind(item.id.as_str()).fetch_one(&mut *transaction);
    let created = json("as_created", &created.await?)?;
    transaction.roll_back().await;
    Ok(if is_repeat(&created, item) {
        Created::Same(found)
    } else {
        Created::Different
    })
}

/// Returns whether the item was new.
pub(super) async fn insert(
    transaction: &mut Transaction,
    item: &Item,
) -> Result<bool, LedgerError> {
    let inserted = sqlx::query(sql::INSERT_ITEM)
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
    segments::insert(transaction, item).await?;
    sqlx::query(sql::MARK_WITHOUT_SPILLOVER)
        .bind(item.id.as_str())
        .execute(&mut **transaction)
        .await?;
    transaction.add_events(&[events::of_new_item(item)]).await?;
    Ok(true)
}

pub(super) async fn claim(
    connection: &mut Connection,
    id: &ItemId,
    token: u64,
) -> Result<(), LedgerError> {
    let claimed = sqlx::query(sql::CLAIM)
        .bind(id.as_str())
        .bind(signed(token))
        .execute(&mut *connection)
        .await?;
    if claimed.rows_affected() == 1 {
        return Ok(());
    }
    let fence = sqlx::query_scalar::<_, i64>(sql::FENCE).bind(id.as_str());
    let fence = fence.fetch_one(connection).await?;
    check_fence(token, unsigned("fence", fence)?)
}

pub(super) async fn journal(
    pool: &Pool,
    item: &ItemId,
    at_most: usize,
) -> Result<Vec<JournalEntry>, LedgerError> {
    let rows = sqlx::query_as::<_, JournalColumns>(journal_sql::OF_ITEM)
        .bind(item.as_str())
        .bind(signed(at_most as u64))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(JournalEntry::try_from).collect()
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_item(&mut self, id: &ItemId) -> Result<Option<(Item, u64)>, LedgerError> {
        sqlx::query_as::<_, FencedColumns>(sql::LOCK_ITEM)
            .bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    async fn write_item(&mut self, item: &Item, before: u64) -> Result<bool, LedgerError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let written = sqlx::query(sql::WRITE_ITEM)
            .bind(item.id.as_str())
            .bind(signed(before))
            .bind(signed(item.stock))
            .bind(limit(item))
            .bind(milliseconds(item.window.opens_at))
            .bind(milliseconds(item.window.closes_at))
            .bind(item.state.as_str())
            .bind(signed(item.epoch))
            .bind(signed(item.version))
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
        notes::add(&mut **self, entry, None).await.map(drop)
    }

    async fn note_all(&mut self, entries: &[NewJournalEntry]) -> Result<(), LedgerError> {
        notes::add_all(self, entries).await
    }

    async fn note_act(&mut self, act: &NewAct) -> Result<(), LedgerError> {
        acts::note(self, act).await
    }
}
