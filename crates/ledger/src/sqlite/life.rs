//! Orders after they were recorded, on SQLite.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use devices::Device;
use domain::{ItemId, Order, OrderId, SegmentKey};
use jiff::Timestamp;
use sqlx::SqlitePool;
use uuid::Uuid;

use super::{Transaction, hex, json, order_columns};
use crate::{
    LedgerError, PendingReturn, Transition,
    columns::{OrderColumns, ReturnColumns},
    convert::{column, signed},
    life::transition::{Moved, Statements},
};

/// Of one item: the same index, and what is due of other items is passed over. Only a repair by hand asks so, and an index of its own would cost every order.
pub(super) async fn due(
    pool: &SqlitePool,
    item: Option<&ItemId>,
    now: Timestamp,
    at_most: usize,
) -> Result<Vec<Order>, LedgerError> {
    let rows = sqlx::query_as::<_, OrderColumns>(concat!(
        "SELECT ",
        order_columns!(),
        " FROM orders WHERE state = 'held' AND expires_at <= ?1 AND (?3 IS NULL OR item = ?3) ORDER BY expires_at LIMIT ?2",
    ));
    let rows = rows
        .bind(now.as_millisecond())
        .bind(signed(at_most as u64))
        .bind(item.map(ItemId::as_str))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(Order::try_from).collect()
}

/// Of all items and of one are two statements: each has its index.
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
    /// The transaction has the lock of all rows.
    async fn lock_segments(&mut self, _: &BTreeSet<SegmentKey>) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError> {
        let rows = column(steps, |Transition { order, to, payment }| {
            (hex(order.id.as_uuid()), order.version, to, payment)
        });
        let statement = if devices::is_on(Device::VersionCheck) {
            step!("AND orders.version = new.version")
        } else {
            step!("")
        };
        let stepped = sqlx::query_scalar::<_, Uuid>(statement);
        let stepped = stepped.bind(json(&rows)?).fetch_all(&mut **self).await?;
        Ok(stepped.into_iter().map(OrderId::from).collect())
    }

    async fn count(&mut self, moved: &BTreeMap<SegmentKey, Moved>) -> Result<(), LedgerError> {
        for (key, moved) in moved {
            sqlx::query(
                "UPDATE segments SET held = held + ?, confirmed = confirmed + ?, \"returning\" = \"returning\" + ?, version = version + 1 \
                 WHERE item = ? AND segment = ?",
            )
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
