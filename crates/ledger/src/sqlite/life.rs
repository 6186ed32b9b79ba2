//! Orders after they were recorded, on SQLite.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::SafetyCheck;
use domain::{ItemId, Order, OrderId, OrderState, PaymentId, SegmentKey, SessionId};
use jiff::Timestamp;
use sqlx::SqlitePool;
use uuid::Uuid;

use super::{SqliteLedger, Transaction, hex, hex_list, json, order_columns};
use crate::{
    Actors, LedgerError, OrderLife, PendingReturn, Transition,
    columns::{OrderColumns, ReturnColumns, reached_attempts, segment_key, set_stated},
    convert::{column, parsed, signed},
    events::{NewEvent, Statements as _},
    life::{
        extension,
        transition::{self, BoundPayment, Moved, Statements},
    },
};

async fn order(pool: &SqlitePool, id: OrderId) -> Result<Option<Order>, LedgerError> {
    let row = sqlx::query_as::<_, OrderColumns>(concat!(
        "SELECT ",
        order_columns!(),
        " FROM orders WHERE id = ?"
    ));
    row.bind(id.as_uuid())
        .fetch_optional(pool)
        .await?
        .map(Order::try_from)
        .transpose()
}

#[async_trait]
impl OrderLife for SqliteLedger {
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        order(&self.readers, id).await
    }

    async fn look_up_order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        order(&self.reads, id).await
    }

    async fn due(
        &self,
        item: Option<&ItemId>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        due(&self.readers, item, now, at_most).await
    }

    async fn transition_by(
        &self,
        transitions: &[Transition],
        actors: &Actors,
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        transition::transition(self.write().await?, transitions, actors).await
    }

    async fn extend_by(
        &self,
        order: &Order,
        expires_at: Timestamp,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Order>, LedgerError> {
        extension::extend(self.write().await?, order, expires_at, session, actor).await
    }

    async fn set_stated(&self, order: Order) -> Result<Option<Order>, LedgerError> {
        let set = set_stated!(order).execute(&self.writer).await?;
        Ok((set.rows_affected() == 1).then(|| extension::stated(order)))
    }

    async fn named_session(&self, target: Uuid) -> Result<Option<SessionId>, LedgerError> {
        let session = sqlx::query_scalar::<_, String>(
            "SELECT session FROM checkout_sessions WHERE target = ? ORDER BY place DESC LIMIT 1",
        );
        let session = session.bind(target).fetch_optional(&self.readers).await?;
        session
            .map(|session| parsed("checkout_sessions.session", &session))
            .transpose()
    }

    async fn has_named(&self, target: Uuid, session: &SessionId) -> Result<bool, LedgerError> {
        let named = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM checkout_sessions WHERE target = ? AND session = ?)",
        );
        let named = named.bind(target).bind(session.as_str());
        Ok(named.fetch_one(&self.readers).await?)
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        pending_returns(&self.readers, item, before, at_most).await
    }

    async fn paid_order(&self, payment: &PaymentId) -> Result<Option<OrderId>, LedgerError> {
        let order = sqlx::query_scalar::<_, Uuid>("SELECT order_id FROM payments WHERE id = ?")
            .bind(payment.as_str())
            .fetch_optional(&self.readers)
            .await?;
        Ok(order.map(OrderId::from))
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        let first: Vec<_> = ids.iter().map(|id| id.first()).collect();
        let rows = sqlx::query_as::<_, (uuid::Uuid, String, i64)>(
            "SELECT id, state, attempt FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        );
        reached_attempts(
            ids,
            rows.bind(hex_list(&first)?)
                .fetch_all(&self.readers)
                .await?,
        )
    }
}

/// A line of a cart ends with its cart. One that is held by a cart that has failed or expired is a
/// leftover: no process has released it, or a late payment never came to its end. The subquery
/// stays one search for each due order.
///
/// For one item it uses the same index and skips the due orders of other items. Only a manual
/// repair asks for one item, and a separate index would cost something for every order.
pub(super) async fn due(
    pool: &SqlitePool,
    item: Option<&ItemId>,
    now: Timestamp,
    at_most: usize,
) -> Result<Vec<Order>, LedgerError> {
    let rows = sqlx::query_as::<_, OrderColumns>(concat!(
        "SELECT ",
        order_columns!(),
        " FROM orders WHERE state = 'held' AND expires_at <= ?1 AND (?3 IS NULL OR item = ?3) \
           AND coalesce((SELECT carts.state FROM cart_lines JOIN carts ON carts.id = cart WHERE order_id = orders.id), 'failed') IN ('failed', 'expired') ORDER BY expires_at LIMIT ?2",
    ));
    let rows = rows
        .bind(now.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(Order::try_from).collect()
}

/// Two statements, one for all items and one for a single item, so that each uses its index.
pub(super) async fn pending_returns(
    pool: &SqlitePool,
    item: Option<&ItemId>,
    before: Timestamp,
    at_most: usize,
) -> Result<Vec<PendingReturn>, LedgerError> {
    let rows = match item {
        Some(item) => sqlx::query_as::<_, ReturnColumns>(
            "SELECT id, item, segment, buyer, quantity FROM returns WHERE item = ? AND since < ? ORDER BY since LIMIT ?",
        )
        .bind(item.as_str()),
        None => sqlx::query_as::<_, ReturnColumns>(
            "SELECT id, item, segment, buyer, quantity FROM returns WHERE since < ? ORDER BY since LIMIT ?",
        ),
    };
    let rows = rows
        .bind(before.as_millisecond())
        .bind(signed(at_most as u64));
    rows.fetch_all(pool)
        .await?
        .into_iter()
        .map(PendingReturn::try_from)
        .collect()
}

macro_rules! step {
    ($check:literal) => {
        concat!(
            "UPDATE orders SET state = new.state, payment = coalesce(new.payment, orders.payment), version = orders.version + 1 \
             FROM (SELECT unhex(value ->> 0) AS id, value ->> 1 AS version, value ->> 2 AS state, value ->> 3 AS payment FROM json_each(?)) AS new \
             WHERE orders.id = new.id ",
            $check,
            " RETURNING id",
        )
    };
}

#[async_trait]
impl Statements for Transaction {
    /// The transaction already holds the write lock, which covers all rows.
    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(
            "SELECT item, segment FROM json_each(?) AS wanted \
             JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1 WHERE archived",
        );
        let keys = json(&column(keys, |key| (key.item.as_str(), key.segment)))?;
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
        sqlx::query(
            "INSERT INTO payments (id, order_id) SELECT value ->> 0, unhex(value ->> 1) FROM json_each(?) \
             WHERE TRUE ON CONFLICT (id) DO NOTHING",
        )
        .bind(&rows)
        .execute(&mut **self)
        .await?;
        let bound = sqlx::query_as::<_, BoundPayment>(
            "SELECT payments.id, payments.order_id, payments.returned_at IS NOT NULL AS is_returned \
             FROM json_each(?) JOIN payments ON payments.id = value ->> 0",
        );
        Ok(bound.bind(&rows).fetch_all(&mut **self).await?)
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let rows = column(steps, |Transition { order, to, payment }| {
            (hex(order.id.as_uuid()), order.version, to, payment)
        });
        let statement = if SafetyCheck::VersionCheck.is_enabled() {
            step!("AND orders.version = new.version")
        } else {
            step!("")
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
        let moved = sqlx::query(
            "UPDATE orders SET expires_at = ?1, version = orders.version + 1 \
             FROM (SELECT unhex(value ->> 0) AS id, value ->> 1 AS version FROM json_each(?2)) AS known \
             WHERE orders.id = known.id AND orders.version = known.version AND orders.state = 'held'",
        );
        let known = column(orders, |order| (hex(order.id.as_uuid()), order.version));
        let moved = moved
            .bind(expires_at.as_millisecond())
            .bind(json(&known)?)
            .execute(&mut **self)
            .await?;
        Ok(usize::try_from(moved.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn name_session(&mut self, target: Uuid, session: &SessionId) -> Result<(), LedgerError> {
        sqlx::query(
            "INSERT INTO checkout_sessions (target, session, place, named_at) \
             SELECT ?1, ?2, coalesce(max(place), 0) + 1, ?3 FROM checkout_sessions WHERE target = ?1 \
             ON CONFLICT (target, session) DO NOTHING",
        )
        .bind(target)
        .bind(session.as_str())
        .bind(Timestamp::now().as_millisecond())
        .execute(&mut **self)
        .await?;
        Ok(())
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
            sqlx::query(
                "UPDATE segments SET available = available + ?, held = held + ?, confirmed = confirmed + ?, \"returning\" = \"returning\" + ?, version = version + 1 \
                 WHERE item = ? AND segment = ?",
            )
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
