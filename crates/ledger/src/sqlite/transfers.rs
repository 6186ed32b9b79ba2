//! Adding transfers, on SQLite: one value for all rows.

use super::{Transaction, hex, json, sql::transfers as sql};
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
    let rows = column(transfers, |transfer| {
        let Transfer {
            id,
            item,
            from,
            to,
            quantity,
            moved,
            state,
            since,
        } = transfer;
        (
            hex(id.as_uuid()),
            item,
            from,
            to,
            quantity,
            moved,
            state.as_str(),
            since.as_millisecond(),
        )
    });
    let added = sqlx::query(sql::ADD)
        .bind(json(&rows)?)
        .bind(token.map(signed))
        .bind(requested.map(signed))
        .execute(&mut **transaction)
        .await?;
    Ok(usize::try_from(added.rows_affected()).unwrap_or(usize::MAX))
}
