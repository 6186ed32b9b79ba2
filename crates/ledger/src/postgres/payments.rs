//! The steps of payments that PostgreSQL takes in a way of its own.

use domain::PaymentId;
use jiff::Timestamp;

use super::{Transaction, sql::payments as sql};
use crate::LedgerError;

/// Locks the payment until the transaction ends. Most payments that are asked for have a row. The
/// advisory lock also covers those without one: two reports of a payment must see each other's
/// refunds.
pub(super) async fn lock(
    transaction: &mut Transaction,
    payment: &PaymentId,
) -> Result<(), LedgerError> {
    sqlx::query(sql::LOCK)
        .bind(payment.as_str())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Deletes some of the returns that were not claimed since `before`, with their payments.
pub(super) async fn forget_unclaimed(
    transaction: &mut Transaction,
    before: Timestamp,
) -> Result<(), LedgerError> {
    sqlx::query(sql::FORGET_UNCLAIMED)
        .bind(before.as_millisecond())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
