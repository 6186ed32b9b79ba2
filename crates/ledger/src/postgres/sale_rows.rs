//! The rows of a sale that go, as PostgreSQL locks and reads them. Its documents are made by the
//! statements.

use domain::ItemId;
use sqlx::PgConnection;

use super::{
    PostgresLedger, Transaction, connections,
    sql::{locks, sale_rows as sql},
    webhooks::milliseconds,
};
use crate::{
    ExportedRow, LedgerError, SaleTable,
    contract::SINK_UNUSED_AFTER,
    convert::{column, signed},
    drops::{self, EVENTS_MIN_AGE, Row},
};

/// What locks orders before they are read. Carts are locked first, then payments, then orders, as
/// by the steps of all three: a report that a refund has failed comes before this, and is seen, or
/// finds the order gone.
pub(super) const ORDER_LOCKS: &[&str] = &[
    locks::CARTS_OF_ORDERS,
    locks::PAYMENTS_OF_ORDERS,
    locks::ORDERS,
];

/// A transaction of a drop. Drops use the connections of lists: their plans read the rows of a page
/// and no others, and however much is dropped, orders and recorders keep their connections.
pub(super) async fn begin(store: &PostgresLedger) -> Result<Transaction, LedgerError> {
    connections::begin(&store.lists).await
}

/// The statement, which has the documents of its rows.
pub(super) async fn with_documents(
    _: &mut PgConnection,
    _: SaleTable,
    statement: &'static str,
) -> Result<&'static str, LedgerError> {
    Ok(statement)
}

/// Whether a drop has ended, as its statement takes it: the time is the database's.
pub(super) fn ended(is_done: bool) -> bool {
    is_done
}

/// The key before those of the events at this place, and behind all before it.
pub(super) fn before_events_at(place: i64) -> Result<u128, LedgerError> {
    drops::key(place, 0)
}

/// The next events, each with its time in milliseconds since 1970.
pub(super) async fn events_page(
    connection: &mut PgConnection,
    id: &ItemId,
    after: u128,
    at_most: usize,
) -> Result<Vec<(i64, Row)>, LedgerError> {
    let (xid, seq) = drops::position(after);
    let rows = sqlx::query_as::<_, (i64, i64, i64, Option<String>)>(sql::EVENTS_PAGE)
        .bind(id.as_str())
        .bind(milliseconds(SINK_UNUSED_AFTER))
        .bind(milliseconds(EVENTS_MIN_AGE))
        .bind(xid.to_string())
        .bind(seq)
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(xid, seq, at, row)| Ok((at, (drops::key(xid, seq)?, row))))
        .collect()
}

pub(super) async fn lock_events(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let (xids, seqs) = positions(keys);
    let rows = sqlx::query_as::<_, (i64, i64, String)>(sql::LOCK_EVENTS)
        .bind(item.as_str())
        .bind(milliseconds(SINK_UNUSED_AFTER))
        .bind(milliseconds(EVENTS_MIN_AGE))
        .bind(xids)
        .bind(seqs)
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(xid, seq, document)| {
            let key = drops::key(xid, seq)?;
            Ok(ExportedRow { key, document })
        })
        .collect()
}

pub(super) async fn delete_events(
    transaction: &mut Transaction,
    keys: &[u128],
) -> Result<u64, LedgerError> {
    let (xids, seqs) = positions(keys);
    let deleted = sqlx::query(sql::DELETE_EVENTS).bind(xids).bind(seqs);
    Ok(deleted.execute(&mut **transaction).await?.rows_affected())
}

fn positions(keys: &[u128]) -> (Vec<String>, Vec<i64>) {
    let positions = column(keys, |key| drops::position(*key));
    positions
        .into_iter()
        .map(|(xid, seq)| (xid.to_string(), seq))
        .unzip()
}
