//! Steps of orders, on PostgreSQL: an array for each column.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Order, OrderId, SafetyCheck, SegmentKey, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{Transaction, bind_events, life, sql::steps as sql};
use crate::{
    LedgerError, Transition,
    columns::segment_key,
    convert::{column, signed},
    events::{EventRows, NewEvent},
    life::transition::{BoundPayment, Moved, Statements},
};

#[async_trait]
impl Statements for Transaction {
    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError> {
        let locked = sqlx::query_as::<_, (String, i64, bool)>(sql::LOCK_SEGMENTS)
            .bind(column(keys, |key| key.item.to_string()))
            .bind(column(keys, |key| i32::from(key.segment)));
        let locked = locked.fetch_all(&mut **self).await?;
        let archived = locked.into_iter().filter(|(_, _, archived)| *archived);
        archived
            .map(|(item, segment, _)| segment_key(&item, segment))
            .collect()
    }

    async fn bind_payments(
        &mut self,
        payments: &BTreeMap<&str, OrderId>,
    ) -> Result<Vec<BoundPayment>, LedgerError> {
        let bound = sqlx::query_as::<_, BoundPayment>(sql::BIND_PAYMENTS)
            .bind(column(payments, |(payment, _)| payment.to_string()))
            .bind(column(payments, |(_, order)| order.as_uuid()));
        Ok(bound.fetch_all(&mut **self).await?)
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let statement = if SafetyCheck::VersionCheck.is_enabled() {
            sql::STEP
        } else {
            sql::STEP_UNCHECKED
        };
        let stepped = sqlx::query_scalar::<_, Uuid>(statement)
            .bind(column(steps, |step| step.order.id.as_uuid()))
            .bind(column(steps, |step| signed(step.order.version)))
            .bind(column(steps, |step| step.to.as_str()))
            .bind(column(steps, |step| {
                step.payment.as_ref().map(ToString::to_string)
            }))
            .fetch_all(&mut **self)
            .await?;
        Ok(stepped.into_iter().map(OrderId::from).collect())
    }

    async fn set_deadlines(
        &mut self,
        orders: &[&Order],
        expires_at: Timestamp,
    ) -> Result<usize, LedgerError> {
        let moved = sqlx::query(sql::SET_DEADLINES)
            .bind(expires_at.as_millisecond())
            .bind(column(orders, |order| order.id.as_uuid()))
            .bind(column(orders, |order| signed(order.version)))
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
        let events = EventRows::of(events);
        bind_events!(sqlx::query(sql::COUNT), events)
            .bind(column(moved, |(key, _)| key.item.to_string()))
            .bind(column(moved, |(key, _)| i32::from(key.segment)))
            .bind(column(moved, |(_, moved)| moved.held))
            .bind(column(moved, |(_, moved)| moved.confirmed))
            .bind(column(moved, |(_, moved)| moved.returning))
            .bind(column(moved, |(_, moved)| moved.available))
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}
