//! Ending a transaction, for every database.

use async_trait::async_trait;

use crate::LedgerError;

/// An open transaction. Dropping it rolls back some time later.
#[async_trait]
pub(crate) trait Transact: Send {
    async fn commit(self) -> Result<(), LedgerError>;

    async fn roll_back(self);
}

/// Commits after success. After an error it rolls back before it returns, so that the rows are free
/// again when the caller sees the error.
pub(crate) async fn end<T>(
    transaction: impl Transact,
    outcome: Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    match outcome {
        Ok(done) => {
            transaction.commit().await?;
            Ok(done)
        }
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

/// Result of a transaction, and whether there is something to commit.
pub(crate) enum Outcome<T> {
    /// The transaction has made its changes.
    Done(T),
    /// The transaction changed nothing, or its changes must be rolled back.
    Unchanged(T),
}

/// [`end`] for a transaction that may have found nothing to do.
pub(crate) async fn end_as<T>(
    transaction: impl Transact,
    outcome: Result<Outcome<T>, LedgerError>,
) -> Result<T, LedgerError> {
    if let Ok(Outcome::Unchanged(found)) = outcome {
        transaction.roll_back().await;
        return Ok(found);
    }
    end(
        transaction,
        outcome.map(|(Outcome::Done(found) | Outcome::Unchanged(found))| found),
    )
    .await
}
