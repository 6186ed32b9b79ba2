//! Claims of segments, on PostgreSQL: locks of their rows, and turns.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use domain::SegmentKey;
use sqlx::PgPool;

use super::{PostgresLedger, Transaction, connections, sql::claims as sql};
use crate::{
    Claim, LedgerError, Recorded, SegmentReplay, SegmentRow,
    columns::{ClaimedColumns, SegmentColumns, claimed},
    convert::{column, signed},
    recording,
    statements::{Expected, Shapes},
    transaction::Transact,
};

struct PostgresClaim {
    pool: PgPool,
    transaction: Transaction,
    rows: Vec<SegmentRow>,
    shapes: Shapes,
}

pub(super) async fn claim(
    store: &PostgresLedger,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    Ok(open(&store.pool, wanted, at_most)
        .await?
        .map(|claim| Box::new(claim) as Box<dyn Claim>))
}

async fn open(
    pool: &PgPool,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<PostgresClaim>, LedgerError> {
    let mut transaction = connections::begin(pool).await?;
    let found = sqlx::query_as::<_, ClaimedColumns>(sql::CLAIM)
        .bind(column(wanted, |key| key.item.as_str()))
        .bind(column(wanted, |key| i32::from(key.segment)))
        .bind(ranks(wanted))
        .bind(signed(at_most as u64))
        .fetch_all(&mut *transaction)
        .await?;
    let (mut rows, shapes) = claimed(found)?;
    if rows.is_empty() {
        transaction.roll_back().await;
        return Ok(None);
    }
    let places: HashMap<_, _> = wanted
        .iter()
        .enumerate()
        .map(|(place, key)| (key, place))
        .collect();
    rows.sort_by_key(|row| places.get(&row.key).copied());
    Ok(Some(PostgresClaim {
        pool: pool.clone(),
        transaction,
        rows,
        shapes,
    }))
}

/// The rank of each key among all of them.
fn ranks(keys: &[SegmentKey]) -> Vec<i64> {
    let sorted: BTreeSet<_> = keys.iter().collect();
    let ranks: HashMap<_, _> = sorted.into_iter().zip(0..).collect();
    keys.iter()
        .filter_map(|key| ranks.get(key).copied())
        .collect()
}

/// Locks rows in the given order, waiting for transactions that have them.
pub(super) async fn lock_rows(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    let rows = sqlx::query_as::<_, SegmentColumns>(sql::LOCK_ROWS)
        .bind(column(sorted, |key| key.item.as_str()))
        .bind(column(sorted, |key| i32::from(key.segment)));
    rows.fetch_all(&mut **transaction)
        .await?
        .into_iter()
        .map(SegmentRow::try_from)
        .collect()
}

/// Locks the rows of these segments, which are in order, against recorders and other repairs. It
/// takes the turns first, waiting for them. Recorders do not wait for turns: from then on they skip
/// these segments, instead of waiting for the rows.
pub(super) async fn lock_for_repair(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    sqlx::query(sql::REPAIR_IDLE_TIMEOUT)
        .execute(&mut **transaction)
        .await?;
    let turns = sqlx::query(sql::WAIT_FOR_TURNS)
        .bind(column(sorted, |key| key.item.to_string()))
        .bind(column(sorted, |key| i32::from(key.segment)));
    turns.execute(&mut **transaction).await?;
    lock_rows(transaction, sorted).await
}

#[async_trait]
impl Claim for PostgresClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError> {
        let Self {
            pool,
            transaction,
            shapes,
            ..
        } = *self;
        match recording::record(transaction, &replays, &shapes, Expected::New).await {
            Err(LedgerError::Known) => record_again(&pool, replays).await,
            recorded => recorded,
        }
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

/// Handles a batch with orders that are recorded already, because they stand in two outboxes or
/// because the batch is a repeat. It claims the segments again and replays the entries over the
/// rows as they are now. A payment may have changed the counters in the meantime; the entries still
/// follow from the row.
async fn record_again(
    pool: &PgPool,
    replays: Vec<SegmentReplay>,
) -> Result<Vec<Recorded>, LedgerError> {
    let segments = column(&replays, |replay| replay.row.key.clone());
    let first = segments.first().cloned().ok_or(sqlx::Error::RowNotFound)?;
    let Some(PostgresClaim {
        transaction,
        rows,
        shapes,
        ..
    }) = open(pool, &segments, segments.len()).await?
    else {
        return Err(LedgerError::Superseded(first));
    };
    match on_top_of(rows, replays) {
        Ok(replays) => recording::record(transaction, &replays, &shapes, Expected::Any).await,
        Err(superseded) => {
            transaction.roll_back().await;
            Err(superseded)
        }
    }
}

/// The same entries over these newer rows, if they still follow from each row.
fn on_top_of(
    rows: Vec<SegmentRow>,
    replays: Vec<SegmentReplay>,
) -> Result<Vec<SegmentReplay>, LedgerError> {
    let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
    let on_top = |SegmentReplay {
                      row: before,
                      entries,
                  }: SegmentReplay| {
        let is_same = |row: &SegmentRow| {
            (row.checkpoint, row.anchor, row.fence)
                == (before.checkpoint, before.anchor, before.fence)
        };
        let row = rows.remove(&before.key).filter(is_same);
        row.map(|row| SegmentReplay { row, entries })
            .ok_or(LedgerError::Superseded(before.key))
    };
    replays.into_iter().map(on_top).collect()
}

#[cfg(test)]
mod tests {
    use domain::EntryId;

    use super::on_top_of;
    use crate::{LedgerError, SegmentReplay, SegmentRow};

    fn row(segment: &str, checkpoint: u64, version: u64, available: u64) -> SegmentRow {
        SegmentRow {
            key: segment.parse().unwrap(),
            allocated: 9,
            available,
            held: 9 - available,
            confirmed: 0,
            returning: 0,
            checkpoint: Some(EntryId {
                ms: checkpoint,
                seq: 0,
            }),
            anchor: Some(7),
            version,
            fence: 0,
        }
    }

    #[test]
    fn entries_go_on_top_of_a_row_that_a_payment_has_changed_and_of_none_that_was_recorded() {
        let replays = || {
            vec![SegmentReplay {
                row: row("vase:0", 1, 3, 5),
                entries: Vec::new(),
            }]
        };
        let paid = row("vase:0", 1, 4, 6);
        let on_top = on_top_of(vec![paid.clone()], replays()).unwrap();
        assert_eq!(
            (on_top.len(), on_top[0].row.version, on_top[0].row.available),
            (1, 4, 6)
        );
        for other in [
            row("vase:0", 2, 4, 4),
            SegmentRow {
                anchor: Some(8),
                ..paid.clone()
            },
            SegmentRow { fence: 1, ..paid },
            row("vase:1", 1, 3, 5),
        ] {
            let superseded = on_top_of(vec![other], replays());
            assert!(
                matches!(&superseded, Err(LedgerError::Superseded(key)) if key.segment == 0),
                "{:?}",
                superseded.is_ok()
            );
        }
    }
}
