//! The counts of requests that processes report, on PostgreSQL.

use uuid::Uuid;

use super::{
    Transaction,
    sql::processes::{COUNT, KEEP},
};
use crate::{LedgerError, ProcessReport, convert::column, processes::ENDED};

/// Stores the counts of a report.
pub(super) async fn count(
    transaction: &mut Transaction,
    report: &ProcessReport,
) -> Result<(), LedgerError> {
    let items = column(&report.requests, |(item, _)| item.as_str());
    let mut query = sqlx::query(COUNT).bind(report.id).bind(items);
    for at in 0..7 {
        query = query.bind(column(&report.requests, |(_, counts)| counts.columns()[at]));
    }
    query.execute(&mut **transaction).await?;
    Ok(())
}

/// Adds the counts of a process that has ended to those of all that have.
pub(super) async fn keep(transaction: &mut Transaction, process: Uuid) -> Result<(), LedgerError> {
    let kept = sqlx::query(KEEP).bind(process).bind(ENDED);
    kept.execute(&mut **transaction).await?;
    Ok(())
}
