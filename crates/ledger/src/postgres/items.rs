//! Creating items, changing them manually, and their journal, on PostgreSQL.

use async_trait::async_trait;
use domain::{Item, ItemId};
use sqlx::{PgExecutor, PgPool};

use super::{
    Transaction, acts, connections,
    events::{bind_events, insert_events},
    item_columns,
};
use crate::{
    Created, JournalEntry, LedgerError, NewAct, NewJournalEntry,
    changes::item::{Statements, created_entry},
    columns::{FencedColumns, ItemColumns, JournalColumns},
    convert::{as_created, is_repeat, json, limit, milliseconds, signed, unsigned, waves_column},
    error::check_fence,
    events::{self, EventRows, Statements as _},
    terms::{NO_LIMIT, OLD_LIMIT_GRACE_MS},
    transaction::Transact,
};

pub(super) async fn create(
    pool: &PgPool,
    item: &Item,
    actor: Option<&str>,
) -> Result<Created, LedgerError> {
    let mut transaction = connections::begin(pool).await?;
    let new = insert(&mut transaction, item).await?;
    if let Some(actor) = actor.filter(|_| new) {
        Statements::note(&mut transaction, &created_entry(item, actor)).await?;
    }
    // Before the commit: an error after it would say that nothing was changed.
    let found = sqlx::query_as::<_, ItemColumns>(concat!(
        "SELECT ",
        item_columns!(),
        " FROM items WHERE id = $1"
    ));
    let found = found.bind(item.id.as_str()).fetch_one(&mut *transaction);
    let found = Item::try_from(found.await?)?;
    if new {
        Transact::commit(transaction).await?;
        return Ok(Created::New(found));
    }
    let created =
        sqlx::query_scalar::<_, String>("SELECT as_created::text FROM items WHERE id = $1");
    let created = json(
        "as_created",
        &created
            .bind(item.id.as_str())
            .fetch_one(&mut *transaction)
            .await?,
    )?;
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
    let inserted = sqlx::query(
        "INSERT INTO items (id, tag, title, stock, price, currency, limit_per_buyer, segments, opens_at, closes_at, \
                            hold_seconds, durability, state, epoch, as_created, max_hold_seconds, max_per_order, waves) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_timestamp($9::double precision / 1000), \
                 to_timestamp($10::double precision / 1000), $11, $12, $13, $14, $15::jsonb, $16, $17, $18::jsonb) \
         ON CONFLICT (id) DO NOTHING",
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
    let (segments, shares): (Vec<_>, Vec<_>) = (0..item.segments)
        .map(|segment| (i32::from(segment), signed(item.share(segment))))
        .unzip();
    sqlx::query(
        "INSERT INTO segments (item, segment, allocated, available) \
         SELECT $1, segment, share, share FROM UNNEST($2::integer[], $3::bigint[]) AS new (segment, share)",
    )
    .bind(item.id.as_str())
    .bind(segments)
    .bind(shares)
    .execute(&mut **transaction)
    .await?;
    sqlx::query("INSERT INTO items_without_spillover (item) VALUES ($1)")
        .bind(item.id.as_str())
        .execute(&mut **transaction)
        .await?;
    transaction.add_events(&[events::of_new_item(item)]).await?;
    Ok(true)
}

pub(super) async fn claim(pool: &PgPool, id: &ItemId, token: u64) -> Result<(), LedgerError> {
    let claimed = sqlx::query("UPDATE items SET fence = $2 WHERE id = $1 AND fence <= $2");
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
    let fence = sqlx::query_scalar::<_, i64>("SELECT fence FROM items WHERE id = $1");
    check_fence(
        token,
        unsigned("fence", fence.bind(id.as_str()).fetch_one(pool).await?)?,
    )
}

pub(super) async fn journal(
    pool: &PgPool,
    item: &ItemId,
    at_most: usize,
) -> Result<Vec<JournalEntry>, LedgerError> {
    let rows = sqlx::query_as::<_, JournalColumns>(
        "SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text, after::text \
         FROM journal WHERE item = $1 ORDER BY id DESC LIMIT $2",
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
    executor: impl PgExecutor<'_>,
    entry: &NewJournalEntry,
    once: Option<&str>,
) -> Result<bool, LedgerError> {
    let event = events::of_journal_entry(entry);
    let events = EventRows::of(event.as_slice());
    // The event belongs to the entry: a repeat adds neither.
    let noted = sqlx::query_scalar::<_, i64>(concat!(
        "WITH noted AS (INSERT INTO journal (at, item, actor, action, token, before, after, once) \
         VALUES (to_timestamp($1::double precision / 1000), $8, $9, $10, $11, $12::jsonb, $13::jsonb, $14) \
         ON CONFLICT (item, once) WHERE once IS NOT NULL DO NOTHING RETURNING id), happened AS (",
        insert_events!(),
        " WHERE EXISTS (SELECT FROM noted)) SELECT count(*) FROM noted",
    ));
    let noted = bind_events!(noted, events)
        .bind(entry.item.as_str())
        .bind(&entry.actor)
        .bind(&entry.action)
        .bind(entry.token.map(signed))
        .bind(entry.before.to_string())
        .bind(entry.after.to_string())
        .bind(once)
        .fetch_one(executor)
        .await?;
    Ok(noted == 1)
}

/// [`note`] for an entry that is noted once.
pub(super) async fn note_once(
    transaction: &mut Transaction,
    entry: &NewJournalEntry,
    once: &str,
) -> Result<bool, LedgerError> {
    note(&mut **transaction, entry, Some(once)).await
}

#[async_trait]
impl Statements for Transaction {
    /// `NO KEY` allows concurrent inserts of rows that refer to the item. A transaction that has
    /// inserted such a row may still wait for this lock.
    async fn lock_item(&mut self, id: &ItemId) -> Result<Option<(Item, u64)>, LedgerError> {
        let item = sqlx::query_as::<_, FencedColumns>(concat!(
            "SELECT ",
            item_columns!(),
            ", fence FROM items WHERE id = $1 FOR NO KEY UPDATE"
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
            "UPDATE items SET stock = $3, limit_per_buyer = $4, opens_at = to_timestamp($5::double precision / 1000), \
                    closes_at = to_timestamp($6::double precision / 1000), state = $7, epoch = $8, version = $9, \
                    limit_before = CASE \
                        WHEN coalesce($4, $10) >= coalesce(limit_per_buyer, $10) THEN limit_before \
                        WHEN limit_lowered_at > to_timestamp($11::double precision / 1000) THEN greatest(limit_before, coalesce(limit_per_buyer, $10)) \
                        ELSE coalesce(limit_per_buyer, $10) END, \
                    limit_lowered_at = CASE \
                        WHEN coalesce($4, $10) >= coalesce(limit_per_buyer, $10) THEN limit_lowered_at \
                        ELSE to_timestamp($12::double precision / 1000) END, \
                    closed_at = CASE \
                        WHEN $7 <> 'closed' THEN NULL \
                        WHEN state = 'closed' THEN closed_at \
                        ELSE to_timestamp($12::double precision / 1000) END, \
                    archive_by = CASE WHEN $7 = 'closed' THEN archive_by END, waves = $13::jsonb, new_price = $14 \
             WHERE id = $1 AND version = $2 AND archived_at IS NULL",
        )
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
        note(&mut **self, entry, None).await.map(drop)
    }

    async fn note_all(&mut self, entries: &[NewJournalEntry]) -> Result<(), LedgerError> {
        let column = |of: fn(&NewJournalEntry) -> &str| entries.iter().map(of).collect::<Vec<_>>();
        let texts = |of: fn(&NewJournalEntry) -> String| entries.iter().map(of).collect::<Vec<_>>();
        let tokens = entries.iter().map(|entry| entry.token.map(signed));
        sqlx::query(
            "INSERT INTO journal (at, item, actor, action, token, before, after) \
             SELECT to_timestamp($1::double precision / 1000), item, actor, action, token, before::jsonb, after::jsonb \
             FROM UNNEST($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[]) WITH ORDINALITY \
               AS new (item, actor, action, token, before, after, place) ORDER BY place",
        )
        .bind(jiff::Timestamp::now().as_millisecond())
        .bind(column(|entry| entry.item.as_str()))
        .bind(column(|entry| &entry.actor))
        .bind(column(|entry| &entry.action))
        .bind(tokens.collect::<Vec<_>>())
        .bind(texts(|entry| entry.before.to_string()))
        .bind(texts(|entry| entry.after.to_string()))
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn note_act(&mut self, act: &NewAct) -> Result<(), LedgerError> {
        acts::note(&mut **self, act).await
    }
}
