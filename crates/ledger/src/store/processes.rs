//! What processes report of themselves.

use std::time::Duration;

use async_trait::async_trait;
use domain::ItemId;
use uuid::Uuid;

use super::{
    KEPT_COUNTS, Store, Transaction, begin, bind_rows, list,
    sql::processes::{COUNT, COUNTS, DELETE, INSERT, KEEP, PROCESSES, SILENT, UPDATE},
    step_reads,
    webhooks::milliseconds,
};
use crate::{
    LedgerError, ProcessReport, Processes, RequestCounts, SeenProcess,
    processes::{CountColumns, ENDED, ProcessColumns},
    transaction::Transact,
};

#[async_trait]
impl Processes for Store {
    async fn report_process(
        &self,
        report: &ProcessReport,
        first: bool,
    ) -> Result<bool, LedgerError> {
        let mut transaction = begin(self).await?;
        let query = sqlx::query(if first { INSERT } else { UPDATE })
            .bind(report.id)
            .bind(report.locks_text()?)
            .bind(report.now.as_millisecond());
        let query = match first {
            true => query
                .bind(&report.roles)
                .bind(&report.version)
                .bind(&report.host)
                .bind(i64::from(report.pid))
                .bind(report.started_at.as_millisecond()),
            false => query,
        };
        if query.execute(&mut *transaction).await?.rows_affected() == 0 {
            transaction.roll_back().await;
            return Ok(false);
        }
        if !report.requests.is_empty() {
            count(&mut transaction, report).await?;
        }
        Transact::commit(transaction).await?;
        Ok(true)
    }

    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError> {
        let mut transaction = begin(self).await?;
        // The row first: of two processes that end it, the second waits, and finds no counts.
        let delete = sqlx::query(DELETE).bind(process);
        delete.execute(&mut *transaction).await?;
        keep(&mut transaction, process).await?;
        Transact::commit(transaction).await
    }

    async fn end_silent_processes(&self, silent: Duration) -> Result<usize, LedgerError> {
        let processes: Vec<Uuid> = sqlx::query_scalar(SILENT)
            .bind(milliseconds(silent))
            .fetch_all(step_reads(self))
            .await?;
        for process in &processes {
            self.end_process(*process).await?;
        }
        Ok(processes.len())
    }

    async fn processes(&self) -> Result<Vec<SeenProcess>, LedgerError> {
        let rows = sqlx::query_as::<_, ProcessColumns>(PROCESSES);
        let rows = rows.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(ProcessColumns::into_process).collect()
    }

    async fn request_counts(
        &self,
        items: &[ItemId],
    ) -> Result<Vec<(ItemId, RequestCounts)>, LedgerError> {
        let rows = sqlx::query_as::<_, CountColumns>(COUNTS);
        let rows = rows.bind(list(items.iter().map(ItemId::as_str))?);
        let rows = rows.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(CountColumns::into_counts).collect()
    }
}

/// Stores the counts of a report.
async fn count(transaction: &mut Transaction, report: &ProcessReport) -> Result<(), LedgerError> {
    let counts = sqlx::query(COUNT).bind(report.id);
    let counts = bind_rows!(counts, &report.requests, |counted| (
        counted.0.as_str(),
        counted.1.columns()[0],
        counted.1.columns()[1],
        counted.1.columns()[2],
        counted.1.columns()[3],
        counted.1.columns()[4],
        counted.1.columns()[5],
        counted.1.columns()[6],
    ));
    counts.execute(&mut **transaction).await?;
    Ok(())
}

/// Adds the counts of a process that has ended to those of all that have.
async fn keep(transaction: &mut Transaction, process: Uuid) -> Result<(), LedgerError> {
    let kept = sqlx::query(KEEP).bind(process).bind(ENDED);
    kept.execute(&mut **transaction).await?;
    if let Some(delete) = KEPT_COUNTS {
        let delete = sqlx::query(delete).bind(process);
        delete.execute(&mut **transaction).await?;
    }
    Ok(())
}
