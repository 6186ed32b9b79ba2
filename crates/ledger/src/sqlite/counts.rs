//! The counts of requests that processes report, on SQLite.

use uuid::Uuid;

use super::{
    Transaction, json,
    sql::{
        counts::DELETE,
        processes::{COUNT, KEEP},
    },
};
use crate::{LedgerError, ProcessReport, convert::column, processes::ENDED};

/// Stores the counts of a report.
pub(super) async fn count(
    transaction: &mut Transaction,
    report: &ProcessReport,
) -> Result<(), LedgerError> {
    let rows = column(&report.requests, |(item, counts)| {
        let [arrived, shed, sold_out, limited, not_open, repeated, held] = counts.columns();
        (
            item.as_str(),
            arrived,
            shed,
            sold_out,
            limited,
            not_open,
            repeated,
            held,
        )
    });
    let query = sqlx::query(COUNT).bind(report.id).bind(json(&rows)?);
    query.execute(&mut **transaction).await?;
    Ok(())
}

/// Adds the counts of a process that has ended to those of all that have. SQLite deletes no rows
/// while it inserts others.
pub(super) async fn keep(transaction: &mut Transaction, process: Uuid) -> Result<(), LedgerError> {
    let kept = sqlx::query(KEEP).bind(process).bind(ENDED);
    kept.execute(&mut **transaction).await?;
    let delete = sqlx::query(DELETE).bind(process);
    delete.execute(&mut **transaction).await?;
    Ok(())
}
