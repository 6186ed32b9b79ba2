//! Steps of orders: the statements, for either database. What a step locks and counts stays apart.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Order, OrderId, SafetyCheck, SegmentKey, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{Transaction, bind_rows, id_value, life, sql::steps as sql, step_rows as apart};
use crate::{
    LedgerError, Transition,
    convert::signed,
    events::NewEvent,
    life::transition::{BoundPayment, Moved, Statements},
};

#[async_trait]
impl Statements for Transaction {
    async fn wait_briefly(&mut self) -> Result<(), LedgerError> {
        apart::wait_briefly(self).await
    }

    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError> {
        apart::lock_segments(self, keys).await
    }

    async fn bind_payments(
        &mut self,
        payments: &BTreeMap<&str, OrderId>,
    ) -> Result<Vec<BoundPayment>, LedgerError> {
        apart::bind_payments(self, payments).await
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let statement = if SafetyCheck::VersionCheck.is_enabled() {
            sql::STEP
        } else {
            sql::STEP_UNCHECKED
        };
        let stepped = sqlx::query_scalar::<_, Uuid>(statement);
        let stepped = bind_rows!(stepped, steps, |step| (
            id_value(step.order.id.as_uuid()),
            signed(step.order.version),
            step.to.as_str(),
            step.payment.as_ref().map(ToString::to_string),
        ));
        let stepped = stepped.fetch_all(&mut **self).await?;
        Ok(stepped.into_iter().map(OrderId::from).collect())
    }

    async fn set_deadlines(
        &mut self,
        orders: &[&Order],
        expires_at: Timestamp,
    ) -> Result<usize, LedgerError> {
        let moved = sqlx::query(sql::SET_DEADLINES).bind(expires_at.as_millisecond());
        let moved = bind_rows!(moved, orders, |order| (
            id_value(order.id.as_uuid()),
            signed(order.version)
        ));
        let moved = moved.execute(&mut **self).await?;
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
        apart::count(self, moved, events).await
    }
}
