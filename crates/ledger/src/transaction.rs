//! How a transaction ends, the same for every database.

use async_trait::async_trait;

use crate::LedgerError;

/// An open transaction. Dropping it rolls back, some time soon.
#[async_trait]
pub(crate) trait Transact: Send {
    async fn commit(self) -> Result<(), LedgerError>;

    async fn roll_back(self);
}

/// Commits what went well. What did not is rolled back here and now, so that its rows are free again when the caller hears of the error.
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

/// What a transaction came to, and whether there is something to commit.
pub(crate) enum Outcome<T> {
    /// It changed what it should.
    Done(T),
    /// It changed nothing, or what it changed is not to stay.
    Unchanged(T),
}

/// [`end`], for a transaction that may have found that there is nothing to do.
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
