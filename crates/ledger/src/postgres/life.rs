//! Orders after they were recorded, on PostgreSQL.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use devices::Device;
use domain::{ItemId, Order, OrderId, SegmentKey};
use jiff::Timestamp;
use sqlx::PgPool;
use uuid::Uuid;

use super::{Transaction, order_columns};
use crate::{
    LedgerError, PendingReturn, Transition,
    columns::{OrderColumns, ReturnColumns},
    convert::{column, signed},
    life::transition::{Moved, Statements},
};

/// Of one item: the same index, and what is due of other items is passed over. Only a repair by hand asks so, and an index of its own would cost every order.
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
                " FROM orders WHERE state = 'held' AND expires_at <= to_timestamp($1::double precision / 1000) ",
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

/// Of all items and of one are two statements: each has its index.
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
    async fn lock_segments(&mut self, keys: &BTreeSet<SegmentKey>) -> Result<(), LedgerError> {
        // In byte order, as the keys are sorted and as everybody locks; the collation of the database could be another.
        let locked = sqlx::query(
            "SELECT 1 FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place) \
             JOIN segments ON item = of_item AND segment = number ORDER BY place FOR UPDATE OF segments",
        );
        let locked = locked
            .bind(column(keys, |key| key.item.to_string()))
            .bind(column(keys, |key| i32::from(key.segment)));
        locked.execute(&mut **self).await?;
        Ok(())
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let statement = if devices::is_on(Device::VersionCheck) {
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

    async fn count(&mut self, moved: &BTreeMap<SegmentKey, Moved>) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE segments AS s SET held = s.held + moved.held, confirmed = s.confirmed + moved.confirmed, \
                    \"returning\" = s.\"returning\" + moved.back, version = s.version + 1 \
             FROM UNNEST($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[]) AS moved (item, segment, held, confirmed, back) \
             WHERE s.item = moved.item AND s.segment = moved.segment",
        )
        .bind(column(moved, |(key, _)| key.item.to_string()))
        .bind(column(moved, |(key, _)| i32::from(key.segment)))
        .bind(column(moved, |(_, moved)| moved.held))
        .bind(column(moved, |(_, moved)| moved.confirmed))
        .bind(column(moved, |(_, moved)| moved.returning))
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}
