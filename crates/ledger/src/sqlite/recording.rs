//! Claiming segments and recording them, on SQLite.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Entry, EntryId, Item, ItemId, OrderId, SegmentKey, TransferId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    SqliteLedger, Transaction, hex, hex_list, item_columns, items, json, segment_columns,
    transfer_columns,
};
use crate::{
    ChangedItem, Claim, LedgerError, PendingReturn, Recorded, Recording, SegmentReplay, SegmentRow,
    Transfer,
    columns::{
        ClaimedColumns, LiveColumns, ReacquiredColumns, ReturnColumns, TermsColumns,
        TransferColumns, checkpoint, claimed, index_and_units, segment_key,
    },
    convert::{column, parsed, signed},
    events::{NewEvent, Statements as _},
    recording,
    statements::{Expected, Move, NewOrders, ReacquiredOrder, Shapes, Statements},
    terms::{Terms, UsageQuery},
    transaction::Transact,
};

/// The columns of an item in the list that workers keep.
macro_rules! live_items {
    () => {
        concat!(
            "SELECT ",
            item_columns!(),
            ", closed_at AS closed_ms, archive_by, keys_removed_at IS NULL AS is_live, \
             (SELECT item_changes.version FROM item_changes WHERE item_changes.item = items.id) AS change FROM items WHERE "
        )
    };
}

/// The items whose last change has this version or a higher one.
const CHANGED: &str = concat!(
    live_items!(),
    "id IN (SELECT item_changes.item FROM item_changes WHERE item_changes.version >= ?)"
);

/// Items that have keys in Redis.
const LIVE: &str = concat!(live_items!(), "keys_removed_at IS NULL");

/// Whether an item has open work.
macro_rules! has_open_work {
    ($id:literal) => {
        concat!(
            "(EXISTS (SELECT 1 FROM segments WHERE segments.item = ",
            $id,
            " AND segments.held + segments.\"returning\" > 0) \
             OR EXISTS (SELECT 1 FROM transfers WHERE transfers.item = ",
            $id,
            " AND transfers.state <> 'done'))"
        )
    };
}

const AT_WORK: &str = concat!(
    "SELECT id FROM items WHERE keys_removed_at IS NULL AND (state <> 'closed' OR ",
    has_open_work!("items.id"),
    ")"
);

const HAS_OPEN_WORK: &str = concat!("SELECT ", has_open_work!("?1"));

const CHECKPOINTS: &str = "SELECT item, segment, checkpoint FROM segments WHERE NOT archived";

const CHECKPOINTS_OF: &str = "SELECT item, segment, checkpoint FROM segments \
     WHERE item IN (SELECT value FROM json_each(?)) AND NOT archived";

const UNRECORDED: &str =
    "SELECT item, segment FROM segments WHERE checkpoint IS NULL AND NOT archived";

#[async_trait]
impl Recording for SqliteLedger {
    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(CHECKPOINTS).fetch_all(&self.readers).await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn checkpoints_of(
        &self,
        items: &[&ItemId],
    ) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as(CHECKPOINTS_OF)
            .bind(json(&items)?)
            .fetch_all(&self.readers)
            .await?;
        rows.into_iter().map(checkpoint).collect()
    }

    async fn unrecorded_segments(&self) -> Result<Vec<SegmentKey>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(UNRECORDED);
        let rows = rows.fetch_all(&self.readers).await?.into_iter();
        rows.map(|(item, segment)| segment_key(&item, segment))
            .collect()
    }

    async fn changed_items(&self, from: Option<u64>) -> Result<Vec<ChangedItem>, LedgerError> {
        let query = match from {
            Some(from) => sqlx::query_as::<_, LiveColumns>(CHANGED).bind(signed(from)),
            None => sqlx::query_as(LIVE),
        };
        let rows = query.fetch_all(&self.readers).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    async fn items_at_work(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids: Vec<String> = sqlx::query_scalar(AT_WORK).fetch_all(&self.readers).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn has_open_work(&self, item: &ItemId) -> Result<bool, LedgerError> {
        let found = sqlx::query_scalar(HAS_OPEN_WORK).bind(item.as_str());
        Ok(found.fetch_one(&self.readers).await?)
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        claim(self.write().await?, wanted, at_most).await
    }

    async fn rehearse(&self, item: &Item, entries: Vec<Entry>) -> Result<Recorded, LedgerError> {
        let mut transaction = self.write().await?;
        items::insert(&mut transaction, item).await?;
        let key = SegmentKey {
            item: item.id.clone(),
            segment: 0,
        };
        let mut rows = rows(&mut transaction, &[key], 1).await?.0;
        recording::rehearse(transaction, item, rows.pop(), entries).await
    }
}

struct SqliteClaim {
    transaction: Transaction,
    rows: Vec<SegmentRow>,
    shapes: Shapes,
}

/// The transaction already holds the write lock.
pub(super) async fn claim(
    mut transaction: Transaction,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    let (rows, shapes) = rows(&mut transaction, wanted, at_most).await?;
    if rows.is_empty() {
        transaction.roll_back().await;
        return Ok(None);
    }
    Ok(Some(Box::new(SqliteClaim {
        transaction,
        rows,
        shapes,
    })))
}

/// The first `at_most` of the wanted rows that exist.
pub(super) async fn rows(
    transaction: &mut Transaction,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<(Vec<SegmentRow>, Shapes), LedgerError> {
    let wanted = column(wanted, |key| (key.item.as_str(), key.segment));
    let rows = sqlx::query_as::<_, ClaimedColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        ", (SELECT items.segments FROM items WHERE items.id = segments.item) AS width, (SELECT items.hold_seconds FROM items WHERE items.id = segments.item) AS hold_seconds FROM json_each(?) AS wanted JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1 WHERE NOT archived \
           ORDER BY wanted.key LIMIT ?",
    ));
    claimed(
        rows.bind(json(&wanted)?)
            .bind(signed(at_most as u64))
            .fetch_all(&mut **transaction)
            .await?,
    )
}

#[async_trait]
impl Claim for SqliteClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError> {
        recording::record(self.transaction, &replays, &self.shapes, Expected::Any).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn insert(
        &mut self,
        orders: &NewOrders<'_>,
        _expected: Expected,
    ) -> Result<HashSet<OrderId>, LedgerError> {
        let rows = column(0..orders.ids.len(), |at| {
            let id = hex(orders.ids[at].as_uuid());
            (
                id,
                orders.items[at],
                orders.segments[at],
                orders.buyers[at],
                orders.quantities[at],
                orders.expires_ms[at],
                orders.created_ms[at],
                orders.prices[at],
            )
        });
        // `WHERE true` keeps SQLite from reading ON CONFLICT as part of a join.
        let inserted = sqlx::query_scalar::<_, Uuid>(
            "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at, created_at, price) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, 'held', value ->> 5, value ->> 6, value ->> 7 FROM json_each(?) \
             WHERE true ON CONFLICT (id) DO NOTHING RETURNING id",
        );
        let inserted = inserted.bind(json(&rows)?).fetch_all(&mut **self).await?;
        if inserted.len() == orders.ids.len() {
            return Ok(HashSet::new());
        }
        let inserted: HashSet<_> = inserted.into_iter().map(OrderId::from).collect();
        Ok(orders
            .ids
            .iter()
            .copied()
            .filter(|id| !inserted.contains(id))
            .collect())
    }

    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError> {
        let rejected = sqlx::query(
            "UPDATE orders SET state = 'rejected' WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        );
        rejected
            .bind(hex_list(orders)?)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// The transaction already holds the write lock, which covers all rows.
    async fn limits_of(
        &mut self,
        items: &BTreeMap<&ItemId, bool>,
    ) -> Result<Vec<Terms>, LedgerError> {
        let rows = sqlx::query_as::<_, TermsColumns>(
            "SELECT id, limit_per_buyer, limit_before, limit_lowered_at AS lowered_ms, \
                    EXISTS (SELECT 1 FROM items_without_spillover WHERE items_without_spillover.item = items.id) AS is_without_spillover \
             FROM items WHERE id IN (SELECT value FROM json_each(?)) AND (limit_per_buyer IS NOT NULL OR limit_before IS NOT NULL)",
        );
        let rows = rows
            .bind(json(&column(items.keys(), |item| item.as_str()))?)
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(Terms::try_from).collect()
    }

    async fn mark_spillover(&mut self, items: &[&ItemId]) -> Result<(), LedgerError> {
        let deleted = sqlx::query(
            "DELETE FROM items_without_spillover WHERE item IN (SELECT value FROM json_each(?))",
        );
        deleted
            .bind(json(&column(items, |item| item.as_str()))?)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn usage_of(
        &mut self,
        queries: &[UsageQuery<'_>],
    ) -> Result<Vec<(usize, u64)>, LedgerError> {
        let rows = column(
            queries,
            |UsageQuery {
                 item,
                 buyer,
                 range: [first, last],
             }| (item, buyer, hex(first.as_uuid()), hex(last.as_uuid())),
        );
        // CROSS JOIN fixes the join order: for each query its range of the index, and never the
        // reverse.
        let held = sqlx::query_as::<_, (i64, i64)>(
            "SELECT asked.key, sum(quantity) FROM json_each(?) AS asked CROSS JOIN orders \
             ON orders.id BETWEEN unhex(asked.value ->> 2) AND unhex(asked.value ->> 3) \
                AND orders.item = asked.value ->> 0 AND orders.buyer = asked.value ->> 1 AND orders.state IN ('held', 'confirmed') \
             GROUP BY asked.key",
        );
        let held = held.bind(json(&rows)?).fetch_all(&mut **self).await?;
        held.into_iter().map(index_and_units).collect()
    }

    async fn lock_orders(
        &mut self,
        ids: &BTreeSet<OrderId>,
    ) -> Result<Vec<ReacquiredOrder>, LedgerError> {
        let rows = sqlx::query_as::<_, ReacquiredColumns>(
            "SELECT id, state, attempt, segment, quantity, expires_at AS expires_ms FROM orders \
             WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        );
        let rows = rows.bind(hex_list(ids)?).fetch_all(&mut **self).await?;
        rows.into_iter().map(ReacquiredOrder::try_from).collect()
    }

    async fn reacquire(
        &mut self,
        orders: &BTreeMap<OrderId, ReacquiredOrder>,
    ) -> Result<(), LedgerError> {
        let rows = column(orders.values(), |order| {
            (
                hex(order.id.as_uuid()),
                order.state,
                order.attempt,
                order.segment,
                order.expires_ms,
            )
        });
        let reacquired = sqlx::query(
            "UPDATE orders SET state = new.value ->> 1, attempt = new.value ->> 2, segment = new.value ->> 3, expires_at = new.value ->> 4, \
                    version = version + 1 \
             FROM json_each(?) AS new WHERE orders.id = unhex(new.value ->> 0)",
        );
        reacquired.bind(json(&rows)?).execute(&mut **self).await?;
        Ok(())
    }

    async fn take_returns(
        &mut self,
        returned: &BTreeMap<OrderId, &SegmentKey>,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        let back = column(returned, |(id, key)| {
            (hex(id.as_uuid()), &key.item, key.segment)
        });
        let rows = sqlx::query_as::<_, ReturnColumns>(
            "DELETE FROM returns WHERE (id, item, segment) IN \
                (SELECT unhex(value ->> 0), value ->> 1, value ->> 2 FROM json_each(?)) \
             RETURNING id, item, segment, buyer, quantity",
        );
        rows.bind(json(&back)?)
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(PendingReturn::try_from)
            .collect()
    }

    async fn add_returns(
        &mut self,
        returns: &[PendingReturn],
        since: Timestamp,
    ) -> Result<(), LedgerError> {
        let rows = column(returns, |back| {
            let PendingReturn {
                id,
                segment,
                buyer,
                quantity,
            } = back;
            (
                hex(id.as_uuid()),
                &segment.item,
                segment.segment,
                buyer,
                quantity.get(),
            )
        });
        let added = sqlx::query(
            "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, ?2 FROM json_each(?1)",
        );
        added
            .bind(json(&rows)?)
            .bind(since.as_millisecond())
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn lock_transfers(
        &mut self,
        ids: &BTreeSet<TransferId>,
    ) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(concat!(
            "SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        ));
        let rows = rows
            .bind(json(&column(ids, |id| hex(id.as_uuid())))?)
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(Transfer::try_from).collect()
    }

    async fn move_transfers(
        &mut self,
        transfers: &BTreeMap<TransferId, Transfer>,
    ) -> Result<(), LedgerError> {
        let rows = column(transfers.values(), |transfer| {
            (
                hex(transfer.id.as_uuid()),
                transfer.state.as_str(),
                transfer.moved,
            )
        });
        let moved = sqlx::query(
            "UPDATE transfers SET state = new.value ->> 1, moved = new.value ->> 2 \
             FROM json_each(?) AS new WHERE transfers.id = unhex(new.value ->> 0)",
        );
        moved.bind(json(&rows)?).execute(&mut **self).await?;
        Ok(())
    }

    async fn compare_and_set(
        &mut self,
        moves: &[Move],
        events: &[NewEvent],
    ) -> Result<Vec<usize>, LedgerError> {
        if !events.is_empty() {
            self.add_events(events).await?;
        }
        let mut moved = Vec::with_capacity(moves.len());
        for (place, Move { before, after }) in moves.iter().enumerate() {
            let row = sqlx::query(
                "UPDATE segments SET allocated = ?, available = ?, held = ?, confirmed = ?, \"returning\" = ?, checkpoint = ?, anchor = ?, \
                        fence = ?, version = version + 1 \
                 WHERE item = ? AND segment = ? AND version = ? AND checkpoint IS ?",
            )
            .bind(signed(after.allocated))
            .bind(signed(after.available))
            .bind(signed(after.held))
            .bind(signed(after.confirmed))
            .bind(signed(after.returning))
            .bind(after.checkpoint.map(|id| id.to_string()))
            .bind(after.anchor)
            .bind(signed(after.fence))
            .bind(before.key.item.as_str())
            .bind(i32::from(before.key.segment))
            .bind(signed(before.version))
            .bind(before.checkpoint.map(|id| id.to_string()));
            if row.execute(&mut **self).await?.rows_affected() == 1 {
                moved.push(place);
            }
        }
        Ok(moved)
    }
}
