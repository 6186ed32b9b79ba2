//! Dropping archived items: the statements, for either database. The rows of events, and what each
//! database locks and writes into an export, stay apart.

use std::time::Instant;

use async_trait::async_trait;
use domain::ItemId;
use jiff::Timestamp;
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    Connection, Store, Transaction, id_list, list, sale_rows as apart,
    sale_rows::{ORDER_LOCKS, with_documents},
    sql::drops as sql,
};
use crate::{
    DropEnd, DropRequest, DroppedRows, Drops, ExportPage, ExportedRow, LedgerError, SaleTable,
    VerifiedExport,
    columns::DropColumns,
    convert::{column, id_range, parsed, signed, unsigned},
    drops::{self, DropState, EventAt, EventTimes, Places, Row, RowsLeft, Statements},
    listing,
};

#[async_trait]
impl Drops for Store {
    async fn request_drop(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<DropRequest, LedgerError> {
        drops::request(apart::begin(self).await?, id, archived_before, actor).await
    }

    async fn items_to_drop(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(sql::ITEMS_TO_DROP);
        let ids = ids.fetch_all(&self.lists).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn items_archived_before(
        &self,
        time: Timestamp,
        at_most: usize,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(sql::ARCHIVED_BEFORE)
            .bind(time.as_millisecond())
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn orders_owed(&self, id: &ItemId) -> Result<u64, LedgerError> {
        let [mut after, last] = id_range(id.tag());
        let mut owed = 0;
        loop {
            let began = Instant::now();
            let end = listing::end_of_scan(self, after, last).await?;
            let due = sqlx::query_scalar::<_, i64>(sql::ORDERS_OWED)
                .bind(id.as_str())
                .bind(after.as_uuid())
                .bind(end.unwrap_or(last).as_uuid());
            owed += unsigned::<u64>("orders", due.fetch_one(&self.lists).await?)?;
            let Some(end) = end else {
                return Ok(owed);
            };
            after = end;
            sleep(began.elapsed() * drops::PAUSE_FACTOR).await;
        }
    }

    async fn export_page(
        &self,
        id: &ItemId,
        table: SaleTable,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<ExportPage, LedgerError> {
        let mut connection = self.lists.acquire().await?;
        let rows = match table {
            SaleTable::Orders => orders_page(&mut connection, id, after, at_most).await?,
            SaleTable::Transfers => transfers_page(&mut connection, id, after, at_most).await?,
            SaleTable::Journal => journal_page(&mut connection, id, after, at_most).await?,
            SaleTable::Events => events_page(&mut connection, id, after, at_most).await?,
        };
        Ok(ExportPage::of(rows, at_most))
    }

    async fn note_export(&self, id: &ItemId, export: &VerifiedExport) -> Result<(), LedgerError> {
        drops::note_export(apart::begin(self).await?, id, export).await
    }

    async fn drop_rows(
        &self,
        id: &ItemId,
        table: SaleTable,
        rows: &[ExportedRow],
    ) -> Result<Option<DroppedRows>, LedgerError> {
        drops::delete(apart::begin(self).await?, id, table, rows).await
    }

    async fn finish_drop(&self, id: &ItemId) -> Result<DropEnd, LedgerError> {
        drops::finish(apart::begin(self).await?, id).await
    }
}

async fn orders_page(
    connection: &mut Connection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let [first, last] = id_range(id.tag());
    let after = after.map(Uuid::from_u128);
    let page = with_documents(connection, SaleTable::Orders, sql::ORDERS_PAGE).await?;
    let rows = sqlx::query_as::<_, (Uuid, String)>(page)
        .bind(id.as_str())
        .bind(after.unwrap_or(first.as_uuid()))
        .bind(after.unwrap_or_default())
        .bind(last.as_uuid())
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
}

async fn transfers_page(
    connection: &mut Connection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let page = with_documents(connection, SaleTable::Transfers, sql::TRANSFERS_PAGE).await?;
    let rows = sqlx::query_as::<_, (Uuid, String)>(page)
        .bind(id.as_str())
        .bind(after.map_or(Uuid::nil(), Uuid::from_u128))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
}

async fn journal_page(
    connection: &mut Connection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let page = with_documents(connection, SaleTable::Journal, sql::JOURNAL_PAGE).await?;
    let rows = sqlx::query_as::<_, (i64, String)>(page)
        .bind(id.as_str())
        .bind(after.map_or(0, drops::number))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(id, row)| Ok((entry_key(id)?, Some(row))))
        .collect()
}

async fn events_page(
    connection: &mut Connection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let times = sqlx::query_as::<_, (i64, Option<i64>)>(sql::TIMES);
    let times = times.bind(id.as_str()).fetch_optional(&mut *connection);
    let Some((created, Some(archived))) = times.await? else {
        return Ok(Vec::new());
    };
    let times = EventTimes::of(created, archived);
    let after = match after {
        Some(after) => after,
        None => match drops::first_since(&mut *connection, times.from).await? {
            Some(place) => apart::before_events_at(place)?,
            None => return Ok(Vec::new()),
        },
    };
    let rows = apart::events_page(connection, id, after, at_most).await?;
    // A single event may have come from a process whose clock was wrong.
    if rows.iter().all(|(at, _)| *at > times.until) {
        return Ok(Vec::new());
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

#[async_trait]
impl Places for Connection {
    async fn at(&mut self, place: i64) -> Result<Option<EventAt>, LedgerError> {
        let event = sqlx::query_as::<_, (i64, i64)>(sql::EVENT_AT).bind(place);
        let event = event.fetch_optional(self).await?;
        Ok(event.map(|(place, at)| EventAt { place, at }))
    }

    async fn last(&mut self) -> Result<Option<EventAt>, LedgerError> {
        let event = sqlx::query_as::<_, (i64, i64)>(sql::LAST_EVENT);
        let event = event.fetch_optional(self).await?;
        Ok(event.map(|(place, at)| EventAt { place, at }))
    }
}

fn entry_key(id: i64) -> Result<u128, LedgerError> {
    Ok(u128::from(unsigned::<u64>("journal.id", id)?))
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_drop(&mut self, id: &ItemId) -> Result<Option<DropState>, LedgerError> {
        let row = sqlx::query_as::<_, DropColumns>(sql::LOCK_DROP);
        row.bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(DropState::try_from)
            .transpose()
    }

    async fn write_drop_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query(sql::WRITE_REQUEST)
            .bind(id.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn lock_rows(
        &mut self,
        id: &ItemId,
        table: SaleTable,
        keys: &[u128],
    ) -> Result<Vec<ExportedRow>, LedgerError> {
        match table {
            SaleTable::Orders => lock_orders(self, id, &uuids(keys)).await,
            SaleTable::Transfers => {
                lock_by_ids(self, table, sql::LOCK_TRANSFERS, id, &uuids(keys)).await
            }
            SaleTable::Journal => lock_journal(self, id, keys).await,
            SaleTable::Events => apart::lock_events(self, id, keys).await,
        }
    }

    async fn delete_rows(&mut self, table: SaleTable, keys: &[u128]) -> Result<u64, LedgerError> {
        let deleted = match table {
            SaleTable::Orders => return delete_orders(self, &uuids(keys)).await,
            SaleTable::Transfers => sqlx::query(sql::DELETE_TRANSFERS).bind(id_list(uuids(keys))?),
            SaleTable::Journal => sqlx::query(sql::DELETE_JOURNAL).bind(list(numbers(keys))?),
            SaleTable::Events => return apart::delete_events(self, keys).await,
        };
        Ok(deleted.execute(&mut **self).await?.rows_affected())
    }

    async fn rows_left(&mut self, id: &ItemId) -> Result<RowsLeft, LedgerError> {
        let [first, last] = id_range(id.tag());
        let (owed, others) = sqlx::query_as::<_, (i64, i64)>(sql::ROWS_LEFT)
            .bind(id.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .fetch_one(&mut **self)
            .await?;
        Ok(RowsLeft {
            owed: unsigned("orders", owed)?,
            others: unsigned("rows", others)?,
        })
    }

    async fn count_dropped(
        &mut self,
        id: &ItemId,
        orders: u64,
        transfers: u64,
        is_done: bool,
    ) -> Result<(), LedgerError> {
        sqlx::query(sql::COUNT_DROPPED)
            .bind(id.as_str())
            .bind(signed(orders))
            .bind(signed(transfers))
            .bind(apart::ended(is_done))
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

fn uuids(keys: &[u128]) -> Vec<Uuid> {
    column(keys, |key| Uuid::from_u128(*key))
}

fn numbers(keys: &[u128]) -> Vec<i64> {
    column(keys, |key| drops::number(*key))
}

async fn lock_orders(
    transaction: &mut Transaction,
    item: &ItemId,
    ids: &[Uuid],
) -> Result<Vec<ExportedRow>, LedgerError> {
    for lock in ORDER_LOCKS {
        sqlx::query(*lock)
            .bind(id_list(ids.iter().copied())?)
            .execute(&mut **transaction)
            .await?;
    }
    lock_by_ids(transaction, SaleTable::Orders, sql::LOCK_ORDERS, item, ids).await
}

/// Rows of a table whose ids are UUIDs.
async fn lock_by_ids(
    transaction: &mut Transaction,
    table: SaleTable,
    lock: &'static str,
    item: &ItemId,
    ids: &[Uuid],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let lock = with_documents(transaction, table, lock).await?;
    let rows = sqlx::query_as::<_, (Uuid, String)>(lock)
        .bind(id_list(ids.iter().copied())?)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    Ok(column(rows, |(id, document)| ExportedRow {
        key: id.as_u128(),
        document,
    }))
}

async fn lock_journal(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let lock = with_documents(transaction, SaleTable::Journal, sql::LOCK_JOURNAL).await?;
    let rows = sqlx::query_as::<_, (i64, String)>(lock)
        .bind(list(numbers(keys))?)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(id, document)| {
            let key = entry_key(id)?;
            Ok(ExportedRow { key, document })
        })
        .collect()
}

/// The refunds of an order stay with its payment: one of them may fail later, and is known then.
async fn delete_orders(transaction: &mut Transaction, orders: &[Uuid]) -> Result<u64, LedgerError> {
    let ids = id_list(orders.iter().copied())?;
    sqlx::query(sql::SETTLE_ORDERS)
        .bind(&ids)
        .execute(&mut **transaction)
        .await?;
    let deleted = sqlx::query(sql::DELETE_ORDERS)
        .bind(&ids)
        .execute(&mut **transaction)
        .await?;
    sqlx::query(sql::DELETE_SESSIONS)
        .bind(&ids)
        .execute(&mut **transaction)
        .await?;
    delete_carts(transaction, orders).await?;
    Ok(deleted.rows_affected())
}

/// Deletes the settled carts of these orders of which no order is left. The lines of the others
/// stay: they name the orders of other items.
async fn delete_carts(transaction: &mut Transaction, orders: &[Uuid]) -> Result<(), LedgerError> {
    let carts = sqlx::query_scalar::<_, Uuid>(sql::CARTS_WITHOUT_ORDERS)
        .bind(id_list(orders.iter().copied())?)
        .fetch_all(&mut **transaction)
        .await?;
    if carts.is_empty() {
        return Ok(());
    }
    let carts = id_list(carts)?;
    for statement in [
        sql::SETTLE_CARTS,
        sql::DELETE_LINES,
        sql::DELETE_CARTS,
        sql::DELETE_SESSIONS,
    ] {
        sqlx::query(statement)
            .bind(&carts)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
