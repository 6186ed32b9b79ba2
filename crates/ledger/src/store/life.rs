//! Orders after they were recorded: the statements, for either database. Those of a step stay
//! apart.

use async_trait::async_trait;
use domain::{ItemId, Order, OrderId, OrderState, PaymentId, SessionId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Pool, Store, Transaction, begin, id_list, lend, list, sql::life as sql, step_reads, with_now,
};
use crate::{
    Actors, ItemScope, LedgerError, OrderLife, PendingReturn, Transition,
    columns::{OrderColumns, ReturnColumns, reached_attempts, set_stated},
    convert::{parsed, signed},
    life::{extension, transition},
};

#[async_trait]
impl OrderLife for Store {
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        order(step_reads(self), id).await
    }

    async fn look_up_order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        order(&self.reads, id).await
    }

    async fn due(
        &self,
        of: ItemScope<'_>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        let statement = match of {
            ItemScope::Only(_) => sql::DUE_OF_ITEM,
            ItemScope::Except(_) => sql::DUE,
        };
        let due = sqlx::query_as::<_, OrderColumns>(statement)
            .bind(now.as_millisecond())
            .bind(signed(at_most as u64));
        let due = match of {
            ItemScope::Only(item) => due.bind(item.as_str()),
            ItemScope::Except(items) => due.bind(list(items.iter().map(ItemId::as_str))?),
        };
        let rows = due.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    async fn transition_by(
        &self,
        transitions: &[Transition],
        actors: &Actors,
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        transition::transition(begin(self).await?, transitions, actors).await
    }

    async fn expire_orders(&self, orders: &[Order]) -> Result<Vec<Order>, LedgerError> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        transition::expire(begin(self).await?, orders).await
    }

    async fn extend_by(
        &self,
        order: &Order,
        expires_at: Timestamp,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Order>, LedgerError> {
        extension::extend(begin(self).await?, order, expires_at, session, actor).await
    }

    async fn set_stated(&self, order: Order) -> Result<Option<Order>, LedgerError> {
        let set = set_stated!(order).execute(&mut *lend(self).await?).await?;
        Ok((set.rows_affected() == 1).then(|| extension::stated(order)))
    }

    async fn named_session(&self, target: Uuid) -> Result<Option<SessionId>, LedgerError> {
        let session = sqlx::query_scalar::<_, String>(sql::NAMED_SESSION);
        let session = session
            .bind(target)
            .fetch_optional(step_reads(self))
            .await?;
        session
            .map(|session| parsed("checkout_sessions.session", &session))
            .transpose()
    }

    async fn has_named(&self, target: Uuid, session: &SessionId) -> Result<bool, LedgerError> {
        let named = sqlx::query_scalar::<_, bool>(sql::HAS_NAMED);
        let named = named.bind(target).bind(session.as_str());
        Ok(named.fetch_one(step_reads(self)).await?)
    }

    async fn pending_returns(
        &self,
        of: ItemScope<'_>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        let statement = match of {
            ItemScope::Only(_) => sql::PENDING_RETURNS_OF_ITEM,
            ItemScope::Except(_) => sql::PENDING_RETURNS,
        };
        let returns = sqlx::query_as::<_, ReturnColumns>(statement)
            .bind(before.as_millisecond())
            .bind(signed(at_most as u64));
        let returns = match of {
            ItemScope::Only(item) => returns.bind(item.as_str()),
            ItemScope::Except(items) => returns.bind(list(items.iter().map(ItemId::as_str))?),
        };
        let rows = returns.fetch_all(step_reads(self)).await?;
        rows.into_iter().map(PendingReturn::try_from).collect()
    }

    async fn paid_order(&self, payment: &PaymentId) -> Result<Option<OrderId>, LedgerError> {
        let order = sqlx::query_scalar::<_, Uuid>(sql::PAID_ORDER)
            .bind(payment.as_str())
            .fetch_optional(step_reads(self))
            .await?;
        Ok(order.map(OrderId::from))
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        let rows = sqlx::query_as::<_, (Uuid, String, i64)>(sql::RECORDED)
            .bind(id_list(ids.iter().map(|id| id.first().as_uuid()))?);
        reached_attempts(ids, rows.fetch_all(step_reads(self)).await?)
    }
}

async fn order(pool: &Pool, id: OrderId) -> Result<Option<Order>, LedgerError> {
    sqlx::query_as::<_, OrderColumns>(sql::ORDER)
        .bind(id.as_uuid())
        .fetch_optional(pool)
        .await?
        .map(Order::try_from)
        .transpose()
}

/// Writes the checkout session of the order or cart with this id.
pub(super) async fn name_session(
    transaction: &mut Transaction,
    target: Uuid,
    session: &SessionId,
) -> Result<(), LedgerError> {
    let named = sqlx::query(sql::NAME_SESSION)
        .bind(target)
        .bind(session.as_str());
    with_now(named).execute(&mut **transaction).await?;
    Ok(())
}
