//! The service journal, on SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::SqliteExecutor;

use super::SqliteLedger;
use crate::{Act, Acts, LedgerError, NewAct, Page, columns::ActColumns, convert::signed};

#[async_trait]
impl Acts for SqliteLedger {
    async fn note_act(&self, act: &NewAct) -> Result<(), LedgerError> {
        note(&self.writer, act).await
    }

    async fn list_acts(
        &self,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<Act, u64>, LedgerError> {
        let rows = sqlx::query_as::<_, ActColumns>(
            "SELECT id, at AS at_ms, actor, action, subject, before, after \
             FROM service_journal WHERE id < ? ORDER BY id DESC LIMIT ?",
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

pub(super) async fn note(
    executor: impl SqliteExecutor<'_>,
    act: &NewAct,
) -> Result<(), LedgerError> {
    let noted = sqlx::query(
        "INSERT INTO service_journal (at, actor, action, subject, before, after) VALUES (?, ?, ?, ?, ?, ?)",
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
