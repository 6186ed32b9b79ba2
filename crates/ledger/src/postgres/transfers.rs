//! Adding transfers, on PostgreSQL: an array for each column.

use super::{Transaction, sql::transfers as sql};
use crate::{
    LedgerError, Transfer,
    convert::{column, signed},
};

/// Inserts the transfers that are not known yet, and returns how many they were.
pub(super) async fn add(
    transaction: &mut Transaction,
    transfers: &[Transfer],
    token: Option<u64>,
    requested: Option<u64>,
) -> Result<usize, LedgerError> {
    let added = sqlx::query(sql::ADD)
        .bind(column(transfers, |transfer| transfer.id.as_uuid()))
        .bind(column(transfers, |transfer| transfer.item.to_string()))
        .bind(column(transfers, |transfer| transfer.from.map(i32::from)))
        .bind(column(transfers, |transfer| transfer.to.map(i32::from)))
        .bind(column(transfers, |transfer| signed(transfer.quantity)))
        .bind(column(transfers, |transfer| signed(transfer.moved)))
        .bind(column(transfers, |transfer| transfer.state.as_str()))
        .bind(token.map(signed))
        .bind(column(transfers, |transfer| {
            transfer.since.as_millisecond()
        }))
        .bind(requested.map(signed))
        .execute(&mut **transaction)
        .await?;
    Ok(usize::try_from(added.rows_affected()).unwrap_or(usize::MAX))
}
