//! Steps of orders, on SQLite: one value for all rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Order, OrderId, SafetyCheck, SegmentKey, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{Transaction, hex, json, life, sql::steps as sql};
use crate::{
    LedgerError, Transition,
    columns::segment_key,
    convert::column,
    events::{NewEvent, Statements as _},
    life::transition::{BoundPayment, Moved, Statements},
};

#[async_trait]
impl Statements for Transaction {
    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError> {
        let keys = json(&column(keys, |key| (key.item.as_str(), key.segment)))?;
        let rows = sqlx::query_as::<_, (String, i64)>(sql::ARCHIVED_AMONG);
        let rows = rows.bind(keys).fetch_all(&mut **self).await?;
        rows.into_iter()
            .map(|(item, segment)| segment_key(&item, segment))
            .collect()
    }

    async fn bind_payments(
        &mut self,
        payments: &BTreeMap<&str, OrderId>,
    ) -> Result<Vec<BoundPayment>, LedgerError> {
        let rows = json(&column(payments, |(payment, order)| {
            (*payment, hex(order.as_uuid()))
        }))?;
        sqlx::query(sql::INSERT_PAYMENTS)
            .bind(&rows)
            .execute(&mut **self)
            .await?;
        let bound = sqlx::query_as::<_, BoundPayment>(sql::PAYMENTS);
        Ok(bound.bind(&rows).fetch_all(&mut **self).await?)
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let rows = column(steps, |Transition { order, to, payment }| {
            (hex(order.id.as_uuid()), order.version, to, payment)
        });
        let statement = if SafetyCheck::VersionCheck.is_enabled() {
            sql::STEP
        } else {
            sql::STEP_UNCHECKED
        };
        let stepped = sqlx::query_scalar::<_, Uuid>(statement);
        let stepped = stepped.bind(json(&rows)?).fetch_all(&mut **self).await?;
        Ok(stepped.into_iter().map(OrderId::from).collect())
    }

    async fn set_deadlines(
        &mut self,
        orders: &[&Order],
        expires_at: Timestamp,
    ) -> Result<usize, LedgerError> {
        let known = column(orders, |order| (hex(order.id.as_uuid()), order.version));
        let moved = sqlx::query(sql::SET_DEADLINES)
            .bind(expires_at.as_millisecond())
            .bind(json(&known)?)
            .execute(&mut **self)
            .await?;
        Ok(usize::try_from(moved.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn name_session(&mut self, target: Uuid, session: &SessionId) -> Result<(), LedgerError> {
        life::name_session(self, target, session).await
    }

    async fn count(
        &mut self,
        moved: &BTreeMap<SegmentKey, Moved>,
        events: &[NewEvent],
    ) -> Result<(), LedgerError> {
        if !events.is_empty() {
            self.add_events(events).await?;
        }
        for (key, moved) in moved {
            sqlx::query(sql::COUNT)
                .bind(moved.available)
                .bind(moved.held)
                .bind(moved.confirmed)
                .bind(moved.returning)
                .bind(key.item.as_str())
                .bind(i32::from(key.segment))
                .execute(&mut **self)
                .await?;
        }
        Ok(())
    }
}
