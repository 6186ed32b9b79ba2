//! What processes report of themselves, on PostgreSQL.

use std::time::Duration;

use async_trait::async_trait;
use domain::ItemId;
use uuid::Uuid;

use super::{PostgresLedger, Transaction, connections, webhooks::milliseconds};
use crate::{
    LedgerError, ProcessReport, Processes, RequestCounts, SeenProcess,
    convert::column,
    processes::{CountColumns, ENDED, ProcessColumns},
    transaction::Transact,
};

const INSERT: &str = "INSERT INTO processes (id, locks, clock_at, roles, version, host, pid, started_at) \
     VALUES ($1, $2, to_timestamp($3::double precision / 1000), $4, $5, $6, $7, to_timestamp($8::double precision / 1000)) \
     ON CONFLICT (id) DO UPDATE SET locks = excluded.locks, clock_at = excluded.clock_at, seen_at = clock_timestamp()";

const UPDATE: &str = "UPDATE processes SET locks = $2, clock_at = to_timestamp($3::double precision / 1000), \
     seen_at = clock_timestamp() WHERE id = $1";

/// In the order of the items, so that two transactions never wait for each other.
const COUNT: &str = "INSERT INTO request_counts (process, item, arrived, shed, sold_out, limited, not_open, repeated, held) \
     SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) AS new (item) \
     ORDER BY item \
     ON CONFLICT (item, process) DO UPDATE SET arrived = excluded.arrived, shed = excluded.shed, sold_out = excluded.sold_out, \
        limited = excluded.limited, not_open = excluded.not_open, repeated = excluded.repeated, held = excluded.held";

const KEEP: &str = "WITH gone AS (DELETE FROM request_counts WHERE process = $1 \
        RETURNING item, arrived, shed, sold_out, limited, not_open, repeated, held) \
     INSERT INTO request_counts AS known (process, item, arrived, shed, sold_out, limited, not_open, repeated, held) \
     SELECT $2, * FROM gone ORDER BY item \
     ON CONFLICT (item, process) DO UPDATE SET arrived = known.arrived + excluded.arrived, shed = known.shed + excluded.shed, \
        sold_out = known.sold_out + excluded.sold_out, limited = known.limited + excluded.limited, \
        not_open = known.not_open + excluded.not_open, repeated = known.repeated + excluded.repeated, held = known.held + excluded.held";

#[async_trait]
impl Processes for PostgresLedger {
    async fn report_process(
        &self,
        report: &ProcessReport,
        first: bool,
    ) -> Result<bool, LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
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
            return Ok(false);
        }
        if !report.requests.is_empty() {
            count(&mut transaction, report).await?;
        }
        Transact::commit(transaction).await?;
        Ok(true)
    }

    async fn end_process(&self, process: Uuid) -> Result<(), LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
        end(&mut transaction, process).await?;
        Transact::commit(transaction).await
    }

    async fn end_silent_processes(&self, silent: Duration) -> Result<usize, LedgerError> {
        let processes: Vec<Uuid> = sqlx::query_scalar(
            "SELECT id FROM processes WHERE seen_at < now() - $1 * interval '1 millisecond'",
        )
        .bind(milliseconds(silent))
        .fetch_all(&self.pool)
        .await?;
        for process in &processes {
            self.end_process(*process).await?;
        }
        Ok(processes.len())
    }

    async fn processes(&self) -> Result<Vec<SeenProcess>, LedgerError> {
        let rows = sqlx::query_as::<_, ProcessColumns>(
            "SELECT id, roles, version, host, pid, (extract(epoch FROM started_at) * 1000)::bigint AS started_ms, \
                (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint AS silent_ms, \
                (extract(epoch FROM clock_at - seen_at) * 1000)::bigint AS difference_ms, locks \
             FROM processes ORDER BY started_at, id",
        );
        let rows = rows.fetch_all(&self.pool).await?;
        rows.into_iter().map(ProcessColumns::into_process).collect()
    }

    async fn request_counts(
        &self,
        items: &[ItemId],
    ) -> Result<Vec<(ItemId, RequestCounts)>, LedgerError> {
        let rows = sqlx::query_as::<_, CountColumns>(
            "SELECT item, sum(arrived)::bigint AS arrived, sum(shed)::bigint AS shed, sum(sold_out)::bigint AS sold_out, \
                sum(limited)::bigint AS limited, sum(not_open)::bigint AS not_open, sum(repeated)::bigint AS repeated, sum(held)::bigint AS held \
             FROM request_counts WHERE item = ANY($1) GROUP BY item",
        );
        let rows = rows.bind(column(items, ItemId::as_str));
        let rows = rows.fetch_all(&self.pool).await?;
        rows.into_iter().map(CountColumns::into_counts).collect()
    }
}

async fn count(transaction: &mut Transaction, report: &ProcessReport) -> Result<(), LedgerError> {
    let items = column(&report.requests, |(item, _)| item.as_str());
    let mut query = sqlx::query(COUNT).bind(report.id).bind(items);
    for at in 0..7 {
        query = query.bind(column(&report.requests, |(_, counts)| counts.columns()[at]));
    }
    query.execute(&mut **transaction).await?;
    Ok(())
}

async fn end(transaction: &mut Transaction, process: Uuid) -> Result<(), LedgerError> {
    // The row first: of two processes that end it, the second waits, and finds no counts.
    sqlx::query("DELETE FROM processes WHERE id = $1")
        .bind(process)
        .execute(&mut **transaction)
        .await?;
    let kept = sqlx::query(KEEP).bind(process).bind(ENDED);
    kept.execute(&mut **transaction).await?;
    Ok(())
}
