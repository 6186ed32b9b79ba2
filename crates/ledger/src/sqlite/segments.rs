//! The rows of an item's segments, on SQLite.

use domain::Item;

use super::{Transaction, sql::segments as sql};
use crate::{LedgerError, convert::signed};

/// Inserts the segments of a new item, with its stock divided among them.
pub(super) async fn insert(transaction: &mut Transaction, item: &Item) -> Result<(), LedgerError> {
    for segment in 0..item.segments {
        sqlx::query(sql::INSERT)
            .bind(item.id.as_str())
            .bind(i32::from(segment))
            .bind(signed(item.share(segment)))
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
