//! The steps of payments that SQLite takes in a way of its own.

use domain::PaymentId;
use jiff::Timestamp;

use super::{Transaction, sql::payments as sql};
use crate::LedgerError;

/// The transaction has held the write lock from its beginning, so each statement sees what the one
/// before it has left.
pub(super) async fn lock(_: &mut Transaction, _: &PaymentId) -> Result<(), LedgerError> {
    Ok(())
}

/// Deletes some of the returns that were not claimed since `before`, with their payments.
pub(super) async fn forget_unclaimed(
    transaction: &mut Transaction,
    before: Timestamp,
) -> Result<(), LedgerError> {
    let forgotten = sqlx::query_scalar::<_, String>(sql::FORGET_UNCLAIMED);
    let forgotten = forgotten.bind(before.as_millisecond());
    for payment in forgotten.fetch_all(&mut **transaction).await? {
        sqlx::query(sql::FORGET_PAYMENT)
            .bind(payment)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
