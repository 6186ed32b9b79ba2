//! What processes report of themselves.

use std::time::Duration;

use async_trait::async_trait;
use domain::ItemId;
use uuid::Uuid;

use super::{
    Store, begin, counts, list,
    sql::processes::{COUNTS, DELETE, INSERT, PROCESSES, SILENT, UPDATE},
    step_reads,
    webhooks::milliseconds,
};
use crate::{
    LedgerError, ProcessReport, Processes, RequestCounts, SeenProcess,
    processes::{CountColumns, ProcessColumns},
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
            counts::count(&mut transaction, report).await?;
        }
        Transact::commit(transaction).await?;
        Ok(true)
    }

    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError> {
        let mut transaction = begin(self).await?;
        // The row first: of two processes that end it, the second waits, and finds no counts.
        let delete = sqlx::query(DELETE).bind(process);
        delete.execute(&mut *transaction).await?;
        counts::keep(&mut transaction, process).await?;
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
