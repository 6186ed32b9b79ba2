//! What processes report of themselves, on SQLite. All of them are on one machine, so there is one
//! clock.

use std::time::Duration;

use async_trait::async_trait;
use domain::ItemId;
use jiff::Timestamp;
use uuid::Uuid;

use super::{SqliteLedger, Transaction, json};
use crate::{
    LedgerError, ProcessReport, Processes, RequestCounts, SeenProcess,
    convert::column,
    processes::{CountColumns, ENDED, ProcessColumns},
    transaction::Transact,
};

const INSERT: &str = "INSERT INTO processes (id, locks, seen_at, roles, version, host, pid, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
     ON CONFLICT (id) DO UPDATE SET locks = excluded.locks, seen_at = excluded.seen_at";

const UPDATE: &str = "UPDATE processes SET locks = ?2, seen_at = ?3 WHERE id = ?1";

const COUNT: &str = "INSERT INTO request_counts (process, item, arrived, shed, sold_out, limited, not_open, repeated, held) \
     SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7 \
     FROM json_each(?2) WHERE true \
     ON CONFLICT (item, process) DO UPDATE SET arrived = excluded.arrived, shed = excluded.shed, sold_out = excluded.sold_out, \
        limited = excluded.limited, not_open = excluded.not_open, repeated = excluded.repeated, held = excluded.held";

const KEEP: &str = "INSERT INTO request_counts (process, item, arrived, shed, sold_out, limited, not_open, repeated, held) \
     SELECT ?2, item, arrived, shed, sold_out, limited, not_open, repeated, held FROM request_counts WHERE process = ?1 \
     ON CONFLICT (item, process) DO UPDATE SET arrived = arrived + excluded.arrived, shed = shed + excluded.shed, \
        sold_out = sold_out + excluded.sold_out, limited = limited + excluded.limited, \
        not_open = not_open + excluded.not_open, repeated = repeated + excluded.repeated, held = held + excluded.held";

#[async_trait]
impl Processes for SqliteLedger {
    async fn report_process(
        &self,
        report: &ProcessReport,
        first: bool,
    ) -> Result<bool, LedgerError> {
        let mut transaction = self.write().await?;
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
            transaction.rollback().await?;
            return Ok(false);
        }
        if !report.requests.is_empty() {
            count(&mut transaction, report).await?;
        }
        Transact::commit(transaction).await?;
        Ok(true)
    }

    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError> {
        let mut transaction = self.write().await?;
        end(&mut transaction, process).await?;
        Transact::commit(transaction).await
    }

    async fn end_silent_processes(&self, silent: Duration) -> Result<usize, LedgerError> {
        let silent = i64::try_from(silent.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp::now().as_millisecond().saturating_sub(silent);
        let processes: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM processes WHERE seen_at < ?")
            .bind(since)
            .fetch_all(&self.readers)
            .await?;
        for process in &processes {
            self.end_process(*process).await?;
        }
        Ok(processes.len())
    }

    async fn processes(&self) -> Result<Vec<SeenProcess>, LedgerError> {
        let rows = sqlx::query_as::<_, ProcessColumns>(
            "SELECT id, roles, version, host, pid, started_at AS started_ms, ? - seen_at AS silent_ms, \
                CAST(NULL AS INTEGER) AS difference_ms, locks FROM processes ORDER BY started_at, id",
        );
        let rows = rows.bind(Timestamp::now().as_millisecond());
        let rows = rows.fetch_all(&self.readers).await?;
        rows.into_iter().map(ProcessColumns::into_process).collect()
    }

    async fn request_counts(
        &self,
        items: &[ItemId],
    ) -> Result<Vec<(ItemId, RequestCounts)>, LedgerError> {
        let rows = sqlx::query_as::<_, CountColumns>(
            "SELECT item, sum(arrived) AS arrived, sum(shed) AS shed, sum(sold_out) AS sold_out, sum(limited) AS limited, \
                sum(not_open) AS not_open, sum(repeated) AS repeated, sum(held) AS held \
             FROM request_counts WHERE item IN (SELECT value FROM json_each(?)) GROUP BY item",
        );
        let rows = rows.bind(json(&column(items, ItemId::as_str))?);
        let rows = rows.fetch_all(&self.readers).await?;
        rows.into_iter().map(CountColumns::into_counts).collect()
    }
}

async fn count(transaction: &mut Transaction, report: &ProcessReport) -> Result<(), LedgerError> {
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

async fn end(transaction: &mut Transaction, process: Uuid) -> Result<(), LedgerError> {
    let kept = sqlx::query(KEEP).bind(process).bind(ENDED);
    kept.execute(&mut **transaction).await?;
    for statement in [
        "DELETE FROM request_counts WHERE process = ?",
        "DELETE FROM processes WHERE id = ?",
    ] {
        let delete = sqlx::query(statement).bind(process);
        delete.execute(&mut **transaction).await?;
    }
    Ok(())
}
