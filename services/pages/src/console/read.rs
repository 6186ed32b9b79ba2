//! What the pages read, kept for a moment: all viewers of a page share one read each second.

use std::{sync::Arc, time::Duration};

use audit::Snapshot;
use domain::{Item, ItemId, OrderState};
use futures::{StreamExt, TryStreamExt, stream};
use ledger::{JournalEntry, ListedItem, Transfer};
use moka::future::Cache;
use order::engine::{Engine, EngineError, ListedOrder, RefundDue};

use super::rates::Rates;

/// Items on one page.
const ITEMS_PER_PAGE: usize = 50;
/// Entries of the journal, orders and refunds that a page shows.
pub(super) const ROWS: usize = 20;
/// Age of what a stream shows.
const LIFETIME: Duration = Duration::from_millis(900);
/// Age of what costs more: lists, and the drift of all items of a page.
const SLOW_LIFETIME: Duration = Duration::from_secs(4);
/// Items whose drift is read concurrently.
const DRIFTS_CONCURRENT: usize = 8;
/// Pages and items that are kept.
const KEPT_MAX: u64 = 1000;

type ReadError = Arc<EngineError>;

/// A page of all items.
pub(super) struct Overview {
    pub items: Vec<OverviewItem>,
    pub next: Option<ItemId>,
    pub refunds: Arc<Vec<RefundDue>>,
}

/// An item on that page.
pub(super) struct OverviewItem {
    pub listed: ListedItem,
    pub drift: u64,
    pub rates: Vec<f64>,
}

/// An item and its segments.
pub(super) struct ItemState {
    pub item: Item,
    pub segments: Vec<Snapshot>,
    /// Units of the item that are in no segment and no transfer. Must be 0.
    pub unaccounted: i64,
    pub rates: Vec<f64>,
}

impl ItemState {
    pub(super) fn drift(&self) -> u64 {
        drift(&self.segments, self.unaccounted)
    }
}

/// Lists of an item.
pub(super) struct Details {
    pub holds: Vec<ListedOrder>,
    pub refunds: Vec<ListedOrder>,
    pub journal: Vec<JournalEntry>,
    /// Those that are not done, with the oldest first.
    pub transfers: Vec<Transfer>,
}

/// The reads, and what they have read.
pub(super) struct Reads {
    engine: Arc<Engine>,
    rates: Rates,
    overviews: Cache<Option<ItemId>, Arc<Overview>>,
    states: Cache<ItemId, Option<Arc<ItemState>>>,
    details: Cache<ItemId, Arc<Details>>,
    drifts: Cache<ItemId, u64>,
    refunds: Cache<(), Arc<Vec<RefundDue>>>,
}

fn cache<K, V>(lifetime: Duration) -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(KEPT_MAX)
        .time_to_live(lifetime)
        .build()
}

impl Reads {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            rates: Rates::default(),
            overviews: cache(LIFETIME),
            states: cache(LIFETIME),
            details: cache(SLOW_LIFETIME),
            drifts: cache(SLOW_LIFETIME),
            refunds: cache(SLOW_LIFETIME),
        }
    }

    /// Forgets what was read of the item, so that the page after a change shows it.
    pub(super) async fn forget(&self, item: &ItemId) {
        self.states.invalidate(item).await;
        self.details.invalidate(item).await;
        self.drifts.invalidate(item).await;
        self.overviews.invalidate_all();
    }

    /// The items behind `after`.
    pub(super) async fn overview(&self, after: Option<ItemId>) -> Result<Arc<Overview>, ReadError> {
        let read = self.read_overview(after.clone());
        self.overviews.try_get_with(after, read).await.map_err(flat)
    }

    async fn read_overview(&self, after: Option<ItemId>) -> Result<Arc<Overview>, ReadError> {
        let page = self
            .engine
            .list_items(after.as_ref(), ITEMS_PER_PAGE)
            .await?;
        let items = stream::iter(page.rows)
            .map(async |listed| {
                let drift = self.drift(&listed.item.id).await?;
                let rates = self
                    .rates
                    .note(&listed.item.id, listed.held + listed.confirmed);
                Ok::<_, ReadError>(OverviewItem {
                    listed,
                    drift,
                    rates,
                })
            })
            .buffered(DRIFTS_CONCURRENT)
            .try_collect()
            .await?;
        Ok(Arc::new(Overview {
            items,
            next: page.next,
            refunds: self.refunds().await?,
        }))
    }

    async fn drift(&self, item: &ItemId) -> Result<u64, ReadError> {
        let read = async {
            let (segments, unaccounted) = self.segments(item).await?;
            Ok::<_, EngineError>(drift(&segments, unaccounted))
        };
        self.drifts.try_get_with(item.clone(), read).await
    }

    async fn segments(&self, item: &ItemId) -> Result<(Vec<Snapshot>, i64), EngineError> {
        let (stock, ledger) = (&self.engine.stock, &*self.engine.ledger);
        let segments = audit::snapshots(stock, ledger, item).await?;
        Ok((segments, ledger.unaccounted(item).await?))
    }

    /// Money that must be returned, of all items.
    async fn refunds(&self) -> Result<Arc<Vec<RefundDue>>, ReadError> {
        let read = async {
            let page = self.engine.list_refunds_due(None, ROWS).await?;
            Ok::<_, EngineError>(Arc::new(page.rows))
        };
        self.refunds.try_get_with((), read).await
    }

    /// The item and its segments. `None`: there is no such item.
    pub(super) async fn item(&self, id: &ItemId) -> Result<Option<Arc<ItemState>>, ReadError> {
        let read = async {
            let Some(item) = self.engine.item(id).await? else {
                return Ok::<_, EngineError>(None);
            };
            let (segments, unaccounted) = self.segments(id).await?;
            let promised = segments
                .iter()
                .map(|part| part.row.held + part.row.confirmed);
            Ok(Some(Arc::new(ItemState {
                rates: self.rates.note(id, promised.sum()),
                item,
                segments,
                unaccounted,
            })))
        };
        self.states.try_get_with(id.clone(), read).await
    }

    /// The lists of an item.
    pub(super) async fn details(&self, id: &ItemId) -> Result<Arc<Details>, ReadError> {
        let read = async {
            Ok::<_, EngineError>(Arc::new(Details {
                holds: self.orders(id, OrderState::Held).await?,
                refunds: self.orders(id, OrderState::RefundDue).await?,
                journal: self.engine.journal(id, ROWS).await?,
                transfers: self.engine.ledger.open_transfers(Some(id)).await?,
            }))
        };
        self.details.try_get_with(id.clone(), read).await
    }

    async fn orders(
        &self,
        id: &ItemId,
        state: OrderState,
    ) -> Result<Vec<ListedOrder>, EngineError> {
        let page = self.engine.list_item_orders(id, Some(state), None, ROWS);
        Ok(page.await?.rows)
    }
}

/// The error of a read that shared another read.
fn flat(error: Arc<ReadError>) -> ReadError {
    Arc::clone(&error)
}

fn drift(segments: &[Snapshot], unaccounted: i64) -> u64 {
    let segments = segments
        .iter()
        .map(|segment| segment.drift().unsigned_abs());
    segments.sum::<u64>() + unaccounted.unsigned_abs()
}
