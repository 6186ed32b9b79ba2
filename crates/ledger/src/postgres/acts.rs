//! The service journal, on PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::PgExecutor;

use super::PostgresLedger;
use crate::{Act, Acts, LedgerError, NewAct, Page, columns::ActColumns, convert::signed};

#[async_trait]
impl Acts for PostgresLedger {
    async fn note_act(&self, act: &NewAct) -> Result<(), LedgerError> {
        note(&self.pool, act).await
    }

    async fn list_acts(
        &self,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<Act, u64>, LedgerError> {
        let rows = sqlx::query_as::<_, ActColumns>(
            "SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, actor, action, subject, before::text, after::text \
             FROM service_journal WHERE id < $1 ORDER BY id DESC LIMIT $2",
        );
        let rows = rows
            .bind(before.map_or(i64::MAX, signed))
            .bind(signed(at_most as u64 + 1))
            .fetch_all(&self.lists)
            .await?;
        let acts = rows.into_iter().map(Act::try_from);
        Ok(Page::cut(acts.collect::<Result<_, _>>()?, at_most, |act| {
            act.id
        }))
    }
}

pub(super) async fn note(executor: impl PgExecutor<'_>, act: &NewAct) -> Result<(), LedgerError> {
    let noted = sqlx::query(
        "INSERT INTO service_journal (at, actor, action, subject, before, after) \
         VALUES (to_timestamp($1::double precision / 1000), $2, $3, $4, $5::jsonb, $6::jsonb)",
    );
    noted
        .bind(Timestamp::now().as_millisecond())
        .bind(&act.actor)
        .bind(&act.action)
        .bind(act.subject.as_deref())
        .bind(act.before.to_string())
        .bind(act.after.to_string())
        .execute(executor)
        .await?;
    Ok(())
}
