//! The rows of an item's segments, on PostgreSQL.

use domain::Item;

use super::{Transaction, sql::segments as sql};
use crate::{LedgerError, convert::signed};

/// Inserts the segments of a new item, with its stock divided among them.
pub(super) async fn insert(transaction: &mut Transaction, item: &Item) -> Result<(), LedgerError> {
    let (segments, shares): (Vec<_>, Vec<_>) = (0..item.segments)
        .map(|segment| (i32::from(segment), signed(item.share(segment))))
        .unzip();
    sqlx::query(sql::INSERT)
        .bind(item.id.as_str())
        .bind(segments)
        .bind(shares)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
