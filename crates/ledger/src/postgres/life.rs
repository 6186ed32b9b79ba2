//! Orders after they were recorded, on PostgreSQL.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::SafetyCheck;
use domain::{ItemId, Order, OrderId, OrderState, PaymentId, SegmentKey, SessionId};
use jiff::Timestamp;
use sqlx::PgPool;
use uuid::Uuid;

use super::{PostgresLedger, Transaction, bind_events, connections, insert_events, order_columns};
use crate::{
    Actors, LedgerError, OrderLife, PendingReturn, Transition,
    columns::{OrderColumns, ReturnColumns, reached_attempts, segment_key, set_stated},
    convert::{column, parsed, signed},
    events::{EventRows, NewEvent},
    life::{
        extension,
        transition::{self, BoundPayment, Moved, Statements},
    },
};

async fn order(pool: &PgPool, id: OrderId) -> Result<Option<Order>, LedgerError> {
    let row = sqlx::query_as::<_, OrderColumns>(concat!(
        "SELECT ",
        order_columns!(),
        " FROM orders WHERE id = $1"
    ));
    row.bind(id.as_uuid())
        .fetch_optional(pool)
        .await?
        .map(Order::try_from)
        .transpose()
}

#[async_trait]
impl OrderLife for PostgresLedger {
    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        order(&self.pool, id).await
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
        due(&self.pool, item, now, at_most).await
    }

    async fn transition_by(
        &self,
        transitions: &[Transition],
        actors: &Actors,
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        transition::transition(connections::begin(&self.pool).await?, transitions, actors).await
    }

    async fn extend_by(
        &self,
        order: &Order,
        expires_at: Timestamp,
        session: Option<&SessionId>,
        actor: Option<&str>,
    ) -> Result<Option<Order>, LedgerError> {
        extension::extend(
            connections::begin(&self.pool).await?,
            order,
            expires_at,
            session,
            actor,
        )
        .await
    }

    async fn set_stated(&self, order: Order) -> Result<Option<Order>, LedgerError> {
        let set = set_stated!(order)
            .execute(&mut *connections::lend(&self.pool).await?)
            .await?;
        Ok((set.rows_affected() == 1).then(|| extension::stated(order)))
    }

    async fn named_session(&self, target: Uuid) -> Result<Option<SessionId>, LedgerError> {
        let session = sqlx::query_scalar::<_, String>(
            "SELECT session FROM checkout_sessions WHERE target = $1 ORDER BY place DESC LIMIT 1",
        );
        let session = session.bind(target).fetch_optional(&self.pool).await?;
        session
            .map(|session| parsed("checkout_sessions.session", &session))
            .transpose()
    }

    async fn has_named(&self, target: Uuid, session: &SessionId) -> Result<bool, LedgerError> {
        let named = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM checkout_sessions WHERE target = $1 AND session = $2)",
        );
        let named = named.bind(target).bind(session.as_str());
        Ok(named.fetch_one(&self.pool).await?)
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        pending_returns(&self.pool, item, before, at_most).await
    }

    async fn paid_order(&self, payment: &PaymentId) -> Result<Option<OrderId>, LedgerError> {
        let order = sqlx::query_scalar::<_, Uuid>("SELECT order_id FROM payments WHERE id = $1")
            .bind(payment.as_str())
            .fetch_optional(&self.pool)
            .await?;
        Ok(order.map(OrderId::from))
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        let first: Vec<_> = ids.iter().map(|id| id.first().as_uuid()).collect();
        let rows = sqlx::query_as::<_, (uuid::Uuid, String, i64)>(
            "SELECT id, state, attempt::bigint FROM orders WHERE id = ANY($1)",
        );
        reached_attempts(ids, rows.bind(first).fetch_all(&self.pool).await?)
    }
}

/// A line of a cart ends with its cart. One that is held by a cart that has failed or expired is a
/// leftover: no process has released it, or a late payment never came to its end. The subquery
/// stays one search for each due order.
///
/// For one item it uses the same index and skips the due orders of other items. Only a manual
/// repair asks for one item, and a separate index would cost something for every order.
pub(super) async fn due(
    pool: &PgPool,
    item: Option<&ItemId>,
    now: Timestamp,
    at_most: usize,
) -> Result<Vec<Order>, LedgerError> {
    macro_rules! due {
        ($of:literal) => {
            concat!(
                "SELECT ",
                order_columns!(),
                " FROM orders WHERE state = 'held' AND expires_at <= to_timestamp($1::double precision / 1000) \
                   AND coalesce((SELECT carts.state FROM cart_lines JOIN carts ON carts.id = cart WHERE order_id = orders.id), 'failed') IN ('failed', 'expired') ",
                $of,
                " ORDER BY expires_at LIMIT $2",
            )
        };
    }
    let rows = sqlx::query_as::<_, OrderColumns>(if item.is_some() {
        due!("AND item = $3")
    } else {
        due!("")
    });
    let rows = rows.bind(now.as_millisecond()).bind(signed(at_most as u64));
    let rows = if let Some(item) = item {
        rows.bind(item.as_str())
    } else {
        rows
    };
    let rows = rows.fetch_all(pool).await?;
    rows.into_iter().map(Order::try_from).collect()
}

/// Two statements, one for all items and one for a single item, so that each uses its index.
pub(super) async fn pending_returns(
    pool: &PgPool,
    item: Option<&ItemId>,
    before: Timestamp,
    at_most: usize,
) -> Result<Vec<PendingReturn>, LedgerError> {
    let rows = match item {
        Some(item) => sqlx::query_as::<_, ReturnColumns>(
            "SELECT id, item, segment::bigint, buyer, quantity FROM returns \
             WHERE since < to_timestamp($1::double precision / 1000) AND item = $3 ORDER BY since LIMIT $2",
        )
        .bind(before.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(item.as_str()),
        None => sqlx::query_as::<_, ReturnColumns>(
            "SELECT id, item, segment::bigint, buyer, quantity FROM returns \
             WHERE since < to_timestamp($1::double precision / 1000) ORDER BY since LIMIT $2",
        )
        .bind(before.as_millisecond())
        .bind(signed(at_most as u64)),
    };
    rows.fetch_all(pool)
        .await?
        .into_iter()
        .map(PendingReturn::try_from)
        .collect()
}

macro_rules! step {
    ($check:literal) => {
        concat!(
            "UPDATE orders AS o SET state = new.state, payment = coalesce(new.payment, o.payment), version = o.version + 1 \
             FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[]) AS new (id, version, state, payment) \
             WHERE o.id = new.id ",
            $check,
            " RETURNING o.id",
        )
    };
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError> {
        // In byte order, like the sorted keys and like every other transaction that locks segments.
        // The collation of the database could be a different one.
        let locked = sqlx::query_as::<_, (String, i64, bool)>(
            "SELECT item, segment::bigint, archived FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place) \
             JOIN segments ON item = of_item AND segment = number ORDER BY place FOR UPDATE OF segments",
        );
        let locked = locked
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
        // A payment that has a row is locked and updated to what it is. So a return that is noted
        // at the same time comes before this or after it, and each sees what the other did.
        let bound = sqlx::query_as::<_, BoundPayment>(
            "INSERT INTO payments (id, order_id) SELECT payment, order_id \
                 FROM UNNEST($1::text[], $2::uuid[]) AS wanted (payment, order_id) ORDER BY payment COLLATE \"C\" \
             ON CONFLICT (id) DO UPDATE SET order_id = payments.order_id RETURNING id, order_id, returned_at IS NOT NULL AS is_returned",
        );
        let bound = bound
            .bind(column(payments, |(payment, _)| payment.to_string()))
            .bind(column(payments, |(_, order)| order.as_uuid()));
        Ok(bound.fetch_all(&mut **self).await?)
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let statement = if SafetyCheck::VersionCheck.is_enabled() {
            step!("AND o.version = new.version")
        } else {
            step!("")
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
        let moved = sqlx::query(
            "UPDATE orders AS o SET expires_at = to_timestamp($1::double precision / 1000), version = o.version + 1 \
             FROM UNNEST($2::uuid[], $3::bigint[]) AS known (id, version) \
             WHERE o.id = known.id AND o.version = known.version AND o.state = 'held'",
        );
        let moved = moved
            .bind(expires_at.as_millisecond())
            .bind(column(orders, |order| order.id.as_uuid()))
            .bind(column(orders, |order| signed(order.version)))
            .execute(&mut **self)
            .await?;
        Ok(usize::try_from(moved.rows_affected()).unwrap_or(usize::MAX))
    }

    async fn name_session(&mut self, target: Uuid, session: &SessionId) -> Result<(), LedgerError> {
        sqlx::query(
            "INSERT INTO checkout_sessions (target, session, place, named_at) \
             SELECT $1, $2, coalesce(max(place), 0) + 1, now() FROM checkout_sessions WHERE target = $1 \
             ON CONFLICT (target, session) DO NOTHING",
        )
        .bind(target)
        .bind(session.as_str())
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn count(
        &mut self,
        moved: &BTreeMap<SegmentKey, Moved>,
        events: &[NewEvent],
    ) -> Result<(), LedgerError> {
        let events = EventRows::of(events);
        let counted = sqlx::query(concat!(
            "WITH happened AS (",
            insert_events!(),
            ") UPDATE segments AS s SET available = s.available + moved.free, held = s.held + moved.held, confirmed = s.confirmed + moved.confirmed, \
                    \"returning\" = s.\"returning\" + moved.back, version = s.version + 1 \
             FROM UNNEST($8::text[], $9::integer[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) AS moved (item, segment, held, confirmed, back, free) \
             WHERE s.item = moved.item AND s.segment = moved.segment",
        ));
        bind_events!(counted, events)
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
