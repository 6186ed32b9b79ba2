//! The service journal.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    Connection, Store, lend,
    listing::page,
    sql::acts::{LIST, NOTE},
};
use crate::{Act, Acts, LedgerError, NewAct, Page, columns::ActColumns, convert::signed};

#[async_trait]
impl Acts for Store {
    async fn note_act(&self, act: &NewAct) -> Result<(), LedgerError> {
        note(&mut *lend(self).await?, act).await
    }

    async fn list_acts(
        &self,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<Act, u64>, LedgerError> {
        let acts = sqlx::query_as::<_, ActColumns>(LIST);
        let acts = acts.bind(before.map_or(i64::MAX, signed));
        page(&self.lists, acts, at_most, |act: &Act| act.id).await
    }
}

pub(super) async fn note(connection: &mut Connection, act: &NewAct) -> Result<(), LedgerError> {
    sqlx::query(NOTE)
        .bind(Timestamp::now().as_millisecond())
        .bind(&act.actor)
        .bind(&act.action)
        .bind(act.subject.as_deref())
        .bind(act.before.to_string())
        .bind(act.after.to_string())
        .execute(connection)
        .await?;
    Ok(())
}
