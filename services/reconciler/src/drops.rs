//! Drops archived sales: exports what they have left, verifies the export, and deletes it in
//! batches.

mod export;

use std::{
    collections::{HashMap, HashSet},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use ledger::{DropEnd, DropRequest, DroppedRows, ExportedRow, Ledger, LedgerError, SaleTable};
use supervision::ErrorLatch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{ERRORS, Reconciler, ReconcilerError, batch_size::BatchSize, clock};

/// Rows that one transaction deletes.
const DROP_BATCH: RangeInclusive<usize> = 50..=500;
/// What such a transaction may take.
const DROP_TIME: Duration = Duration::from_millis(10);
/// A pause between two batches or pages, in times of the last one: the rest of the time is for the
/// sales that go on.
const PAUSE_FACTOR: u32 = 2;
/// How long to wait until orders whose money is to be returned are looked at again: so many times as
/// long as the look took, within these bounds. It reads all orders of the sale, perhaps for days.
const WAIT_FACTOR: u32 = 60;
const WAIT_MIN: Duration = Duration::from_secs(60);
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Exports after which a sale whose rows keep changing is left for later.
const EXPORTS_MAX: usize = 5;
/// Items whose drop the setting asks for in one round.
const REQUESTS_MAX: usize = 100;

/// Result of [`drop_once`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dropped {
    /// What the sale has left is deleted, now or before.
    Done {
        /// Number of its orders.
        orders: u64,
        /// The exports that were written now.
        exports: Vec<PathBuf>,
    },
    /// The money of so many orders is to be returned.
    Waits(u64),
    /// The item is not archived.
    NotArchived,
    /// It was archived at this time, which is not long enough ago.
    TooEarly(Timestamp),
}

/// Why a drop failed. What was not deleted is in the ledger, and what was deleted is in a verified
/// export. A repeat goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// A call of the ledger failed.
    #[error("a ledger operation failed")]
    Ledger(#[from] LedgerError),
    /// A file or the folder of the exports failed: it is full, or may not be written.
    #[error("the export {} cannot be written or read", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The file has not what the ledger has.
    #[error("the export {} differs from the ledger, nothing more was deleted", .path.display())]
    Differs {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be told how old the archives are.
    #[error("clocks cannot be compared, nothing is dropped by its age")]
    Clock(#[source] Box<ReconcilerError>),
    /// No folder is set.
    #[error(
        "no folder for exports is set (STOCKADE_DROP_EXPORTS): nothing is dropped without an export"
    )]
    NoFolder,
    /// The rows of the sale keep changing.
    #[error("{0} rows have changed after each export, try again")]
    RowsLeft(u64),
}

/// Drops the item for `actor`, if it was archived before `archived_before`, with exports in
/// `folder`. `None`: there is no such item. A drop that was interrupted is continued. Other
/// processes may drop the item as well.
pub async fn drop_once(
    ledger: &dyn Ledger,
    id: &ItemId,
    archived_before: Timestamp,
    actor: &str,
    folder: &Path,
) -> Result<Option<Dropped>, DropError> {
    match ledger.request_drop(id, archived_before, actor).await? {
        DropRequest::NoItem => return Ok(None),
        DropRequest::NotArchived => return Ok(Some(Dropped::NotArchived)),
        DropRequest::TooEarly(at) => return Ok(Some(Dropped::TooEarly(at))),
        DropRequest::Dropped => {
            let exports = Vec::new();
            return Ok(match ledger.finish_drop(id).await? {
                DropEnd::Done(orders) => Some(Dropped::Done { orders, exports }),
                _ => Some(Dropped::NotArchived),
            });
        }
        DropRequest::Noted => {}
    }
    let never = CancellationToken::new();
    let dropped = drop_sale(ledger, id, folder, &never).await?;
    Ok(Some(dropped.unwrap_or(Dropped::NotArchived)))
}

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("dropping items", ERRORS);
    let mut waiting = HashMap::new();
    while !reconciler.pause(reconciler.settings.drop_interval).await {
        match drop_all(&reconciler, &mut waiting).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
    }
}

async fn drop_all(
    reconciler: &Reconciler,
    waiting: &mut HashMap<ItemId, Instant>,
) -> Result<(), DropError> {
    // What was asked for goes on, also if clocks cannot be compared.
    let asked = request_old(reconciler).await;
    let items = reconciler.ledger.items_to_drop().await?;
    let asked_for: HashSet<_> = items.iter().collect();
    waiting.retain(|id, until| asked_for.contains(id) && *until > Instant::now());
    let mut failed = None;
    for id in items {
        if waiting.contains_key(&id) || reconciler.stop.is_cancelled() {
            continue;
        }
        // An item whose drop fails does not hinder the others.
        let began = Instant::now();
        match drop_item(reconciler, &id).await {
            Ok(true) => {}
            Ok(false) => {
                let pause = (began.elapsed() * WAIT_FACTOR).clamp(WAIT_MIN, WAIT_MAX);
                waiting.insert(id, Instant::now() + pause);
            }
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(asked, Err)
}

/// Asks for the drop of items that were archived long enough ago, if the setting says so.
async fn request_old(reconciler: &Reconciler) -> Result<(), DropError> {
    let Some(after) = reconciler.settings.drop_after else {
        return Ok(());
    };
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    let now = clock::earliest(reconciler).await;
    let now = now.map_err(|error| DropError::Clock(Box::new(error)))?;
    let Ok(before) = now.checked_sub(after) else {
        return Ok(());
    };
    let ledger = &reconciler.ledger;
    let mut asked = Ok(());
    for id in ledger.items_archived_before(before, REQUESTS_MAX).await? {
        if reconciler.stop.is_cancelled() {
            break;
        }
        // An item that is locked keeps no other from its drop.
        let request = ledger.request_drop(&id, before, "reconciler").await;
        asked = asked.and(request.map(drop).map_err(DropError::from));
    }
    asked
}

/// Drops the item. `false`: orders are left whose money is to be returned.
async fn drop_item(reconciler: &Reconciler, id: &ItemId) -> Result<bool, DropError> {
    let settings = &reconciler.settings;
    let folder = settings
        .drop_exports
        .as_deref()
        .ok_or(DropError::NoFolder)?;
    match drop_sale(&*reconciler.ledger, id, folder, &reconciler.stop).await? {
        Some(Dropped::Waits(orders)) => {
            tracing::info!(item = %id, orders, "the item is not dropped: the money of orders is to be returned");
            Ok(false)
        }
        Some(Dropped::Done { orders, .. }) => {
            metrics::counter!("stockade_dropped_items_total").increment(1);
            tracing::info!(item = %id, orders, "dropped the item");
            Ok(true)
        }
        Some(Dropped::NotArchived | Dropped::TooEarly(_)) | None => Ok(true),
    }
}

/// Exports and deletes until nothing is left. `None`: it was stopped.
async fn drop_sale(
    ledger: &dyn Ledger,
    id: &ItemId,
    folder: &Path,
    stop: &CancellationToken,
) -> Result<Option<Dropped>, DropError> {
    let mut exports = Vec::new();
    // Open money forbids the drop: its orders must be found where they are.
    let owed = ledger.orders_owed(id).await?;
    if owed > 0 {
        return Ok(Some(Dropped::Waits(owed)));
    }
    let mut rows_left = 0;
    for _ in 0..EXPORTS_MAX {
        if let Some((path, export)) = export::write(ledger, id, folder).await? {
            ledger.note_export(id, &export).await?;
            if !delete_exported(ledger, id, &path, stop).await? {
                return Ok(None);
            }
            exports.push(path);
        }
        match ledger.finish_drop(id).await? {
            DropEnd::Done(orders) => return Ok(Some(Dropped::Done { orders, exports })),
            DropEnd::Waits(orders) => return Ok(Some(Dropped::Waits(orders))),
            DropEnd::NotRequested => return Ok(Some(Dropped::NotArchived)),
            DropEnd::RowsLeft(left) => rows_left = left,
        }
    }
    Err(DropError::RowsLeft(rows_left))
}

/// Deletes what the export has, in batches. `false`: it was stopped.
async fn delete_exported(
    ledger: &dyn Ledger,
    id: &ItemId,
    path: &Path,
    stop: &CancellationToken,
) -> Result<bool, DropError> {
    let mut reader = export::Reader::open(path).await?;
    let mut size = BatchSize::within(DROP_BATCH, DROP_TIME);
    let mut batch: Vec<ExportedRow> = Vec::with_capacity(size.rows());
    let mut table = SaleTable::ALL[0];
    loop {
        let next = reader.next().await?;
        let is_full = match &next {
            Some((of, _)) => *of != table || batch.len() >= size.rows(),
            None => true,
        };
        if is_full && !batch.is_empty() {
            let started = Instant::now();
            let Some(DroppedRows { changed, .. }) = ledger.drop_rows(id, table, &batch).await?
            else {
                return Ok(true);
            };
            if changed > 0 {
                tracing::info!(item = %id, table = table.as_str(), changed, "rows have changed since their export, they go into the next one");
            }
            let took = started.elapsed();
            size.adapt(batch.len(), took);
            batch.clear();
            if timeout(took * PAUSE_FACTOR, stop.cancelled()).await.is_ok() {
                return Ok(false);
            }
        }
        match next {
            Some((of, row)) => {
                table = of;
                batch.push(row);
            }
            None => return Ok(true),
        }
    }
}
