//! The rows of a sale that go, as SQLite reads them. The pages that are freed are used again; the
//! file keeps its size.

use domain::ItemId;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::{SqliteLedger, Transaction, list, sql::sale_rows as sql, webhooks::milliseconds};
use crate::{
    ExportedRow, LedgerError, SaleTable,
    contract::SINK_UNUSED_AFTER,
    convert::{column, signed},
    drops::{self, EVENTS_MIN_AGE, Row},
};

/// What locks orders before they are read: nothing. The transaction is the only writer, so all rows
/// are locked.
pub(super) const ORDER_LOCKS: &[&str] = &[];

/// A transaction of a drop.
pub(super) async fn begin(store: &SqliteLedger) -> Result<Transaction, LedgerError> {
    store.write().await
}

/// The statement with the documents of its rows, which are of this table, in the place of `{}`.
pub(super) async fn with_documents(
    connection: &mut SqliteConnection,
    table: SaleTable,
    statement: &'static str,
) -> Result<AssertSqlSafe<String>, LedgerError> {
    let document = match table {
        SaleTable::Orders => order_document(connection).await?,
        SaleTable::Transfers | SaleTable::Journal | SaleTable::Events => {
            document(connection, table.as_str()).await?
        }
    };
    Ok(AssertSqlSafe(statement.replacen("{}", &document, 1)))
}

/// An expression that has every column of the table, with bytes as hexadecimal digits. It follows
/// the schema, so no migration can leave a column out.
async fn document(connection: &mut SqliteConnection, table: &str) -> Result<String, LedgerError> {
    let columns = sqlx::query_as::<_, (String, String)>(sql::COLUMNS);
    let columns = columns.bind(table).fetch_all(connection).await?;
    let values = columns.iter().map(|(name, kind)| match &**kind {
        "BLOB" => format!("'{name}', hex({table}.\"{name}\")"),
        _ => format!("'{name}', {table}.\"{name}\""),
    });
    let values: Vec<_> = values.collect();
    Ok(format!("json_object({})", values.join(", ")))
}

/// An order with what goes with it. A cart is written with each of its orders, because it goes with
/// the last one.
async fn order_document(connection: &mut SqliteConnection) -> Result<String, LedgerError> {
    let order = document(connection, "orders").await?;
    let session = document(connection, "checkout_sessions").await?;
    let refund = document(connection, "refunds").await?;
    let cart = document(connection, "carts").await?;
    let line = document(connection, "cart_lines").await?;
    let sessions = |target: &str| {
        format!(
            "(SELECT json_group_array(json(one)) FROM (SELECT {session} AS one FROM checkout_sessions WHERE target = {target} ORDER BY place))"
        )
    };
    let (of_order, of_cart) = (sessions("orders.id"), sessions("carts.id"));
    Ok(format!(
        "json_object('order', json({order}), 'sessions', json({of_order}), \
         'refunds', json((SELECT json_group_array(json(one)) FROM (SELECT {refund} AS one FROM refunds WHERE refunds.payment = orders.payment ORDER BY refunds.id))), \
         'cart', json((SELECT json_object('cart', json({cart}), \
             'lines', json((SELECT json_group_array(json(one)) FROM (SELECT {line} AS one FROM cart_lines WHERE cart_lines.cart = carts.id ORDER BY place))), \
             'sessions', json({of_cart})) \
             FROM cart_lines AS own JOIN carts ON carts.id = own.cart WHERE own.order_id = orders.id)))"
    ))
}

/// When a drop has ended, as its statement takes it.
pub(super) fn ended(is_done: bool) -> Option<i64> {
    is_done.then(|| Timestamp::now().as_millisecond())
}

/// The key before that of the event at this place, and behind all before it.
pub(super) fn before_events_at(place: i64) -> Result<u128, LedgerError> {
    drops::key(0, place.max(1) - 1)
}

/// The next events, each with its time in milliseconds since 1970.
pub(super) async fn events_page(
    connection: &mut SqliteConnection,
    id: &ItemId,
    after: u128,
    at_most: usize,
) -> Result<Vec<(i64, Row)>, LedgerError> {
    let page = with_documents(connection, SaleTable::Events, sql::EVENTS_PAGE).await?;
    let [served, old] = event_times();
    let rows = sqlx::query_as::<_, (i64, i64, Option<String>)>(page)
        .bind(id.as_str())
        .bind(served)
        .bind(old)
        .bind(drops::number(after))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(seq, at, row)| Ok((at, (drops::key(0, seq)?, row))))
        .collect()
}

/// The values of `?2` and `?3` in `EVENT_GOES`.
fn event_times() -> [i64; 2] {
    let now = Timestamp::now().as_millisecond();
    [SINK_UNUSED_AFTER, EVENTS_MIN_AGE].map(|age| now - milliseconds(age))
}

pub(super) async fn lock_events(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let lock = with_documents(transaction, SaleTable::Events, sql::LOCK_EVENTS).await?;
    let [served, old] = event_times();
    let rows = sqlx::query_as::<_, (i64, String)>(lock)
        .bind(item.as_str())
        .bind(served)
        .bind(old)
        .bind(numbers(keys)?)
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(seq, document)| {
            let key = drops::key(0, seq)?;
            Ok(ExportedRow { key, document })
        })
        .collect()
}

pub(super) async fn delete_events(
    transaction: &mut Transaction,
    keys: &[u128],
) -> Result<u64, LedgerError> {
    let deleted = sqlx::query(sql::DELETE_EVENTS).bind(numbers(keys)?);
    Ok(deleted.execute(&mut **transaction).await?.rows_affected())
}

fn numbers(keys: &[u128]) -> Result<String, LedgerError> {
    list(column(keys, |key| drops::number(*key)))
}
