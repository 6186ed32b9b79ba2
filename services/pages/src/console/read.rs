//! What the pages read, kept for a moment: all viewers of a page share one read each second.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    panic::resume_unwind,
    sync::Arc,
    time::{Duration, Instant},
};

use audit::Snapshot;
use domain::{Item, ItemId, OrderState};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use ledger::{JournalEntry, ListedItem, RequestCounts, Transfer};
use moka::{Expiry, future::Cache};
use order::engine::{Engine, EngineError, OrderView, RefundDue};
use reconciler::Plan;

use super::{rates::Rates, system::System};

/// Items on one page.
const ITEMS_PER_PAGE: usize = 50;
/// Entries of the journal, orders and refunds that a page shows.
pub(super) const ROWS: usize = 20;
/// Age of what a stream shows.
const LIFETIME: Duration = Duration::from_millis(900);
/// Age of what costs more: lists, and the drift of all items of a page.
const SLOW_LIFETIME: Duration = Duration::from_secs(4);
/// Age of what the servers say of themselves.
const SYSTEM_LIFETIME: Duration = Duration::from_secs(2);
/// Age of what reads the orders of an item, at least.
const SUMS_LIFETIME: Duration = Duration::from_secs(30);
/// What a large sale or shop makes longer is kept for so many times as long as it took to read: an open page
/// costs the ledger a twentieth of a connection.
const LIFETIME_FACTOR: u32 = 20;
/// But not longer than this, where the page does not tell its age.
const UNTOLD_LIFETIME_MAX: Duration = Duration::from_secs(60);
/// Spans of the chart of holds.
pub(super) const HOLD_SPANS: u16 = 24;
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
    pub refusals: Vec<f64>,
}

/// An item and its segments.
pub(super) struct ItemState {
    pub item: Item,
    pub segments: Vec<Snapshot>,
    /// Units of the item that are in no segment and no transfer. Must be 0.
    pub unaccounted: i64,
    pub rates: Vec<f64>,
    pub refusals: Vec<f64>,
    /// By all order services, now and before.
    pub requests: RequestCounts,
}

impl ItemState {
    pub(super) fn drift(&self) -> u64 {
        drift(&self.segments, self.unaccounted)
    }
}

/// Lists of an item.
pub(super) struct Details {
    pub holds: Vec<OrderView>,
    pub refunds: Vec<OrderView>,
    pub journal: Vec<JournalEntry>,
    /// Those that are not done, with the oldest first.
    pub transfers: Vec<Transfer>,
    /// What a repair would do. `None`: no segment needs one.
    pub plan: Option<Result<Plan, String>>,
}

/// Sums over the orders of an item.
pub(super) struct Sums {
    pub at: Timestamp,
    /// Number of orders by the word of their state.
    pub orders: Vec<(String, u64)>,
    /// Units of holds that are over, and then by the end of their hold, for [`HOLD_SPANS`] spans.
    pub holds: Vec<u64>,
    pub span: Duration,
}

/// A value, and how long it took to read.
#[derive(Clone)]
struct Read<V> {
    value: V,
    took: Duration,
}

impl<V> Read<V> {
    async fn of<E>(reading: impl Future<Output = Result<V, E>>) -> Result<Self, E> {
        let began = Instant::now();
        let value = reading.await?;
        let took = began.elapsed();
        Ok(Self { value, took })
    }
}

/// How long such a value is kept, at least and at most: longer if it has cost much.
struct ByCost(RangeInclusive<Duration>);

impl<K, V> Expiry<K, Read<V>> for ByCost {
    fn expire_after_create(&self, _: &K, read: &Read<V>, _: Instant) -> Option<Duration> {
        let lifetime = read.took.saturating_mul(LIFETIME_FACTOR);
        Some(lifetime.clamp(*self.0.start(), *self.0.end()))
    }
}

/// The reads, and what they have read.
pub(super) struct Reads {
    engine: Arc<Engine>,
    rates: Rates,
    refusals: Rates,
    system: Cache<(), Arc<System>>,
    at_work: Cache<(), Read<Arc<[ItemId]>>>,
    sums: Cache<ItemId, Read<Arc<Sums>>>,
    overviews: Cache<Option<ItemId>, Arc<Overview>>,
    states: Cache<ItemId, Option<Arc<ItemState>>>,
    details: Cache<ItemId, Arc<Details>>,
    drifts: Cache<ItemId, u64>,
    refunds: Cache<(), Read<Arc<Vec<RefundDue>>>>,
}

fn cache<K, V>(lifetime: Duration) -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let cache = Cache::builder().max_capacity(KEPT_MAX);
    cache.time_to_live(lifetime).build()
}

fn by_cost<K, V>(lifetime: RangeInclusive<Duration>) -> Cache<K, Read<V>>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let cache = Cache::builder().max_capacity(KEPT_MAX);
    cache.expire_after(ByCost(lifetime)).build()
}

impl Reads {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            rates: Rates::over(1),
            refusals: Rates::over(2),
            system: cache(SYSTEM_LIFETIME),
            at_work: by_cost(SYSTEM_LIFETIME..=UNTOLD_LIFETIME_MAX),
            sums: by_cost(SUMS_LIFETIME..=Duration::MAX),
            overviews: cache(LIFETIME),
            states: cache(LIFETIME),
            details: cache(SLOW_LIFETIME),
            drifts: cache(SLOW_LIFETIME),
            refunds: by_cost(SLOW_LIFETIME..=UNTOLD_LIFETIME_MAX),
        }
    }

    /// Forgets what was read of the item, so that the page after a change shows it.
    pub(super) async fn forget(&self, item: &ItemId) {
        self.states.invalidate(item).await;
        self.details.invalidate(item).await;
        self.drifts.invalidate(item).await;
        self.sums.invalidate(item).await;
        self.overviews.invalidate_all();
    }

    /// The items behind `after`.
    pub(super) async fn overview(&self, after: Option<ItemId>) -> Result<Arc<Overview>, ReadError> {
        let read = self.read_overview(after.clone());
        self.overviews.try_get_with(after, read).await.map_err(flat)
    }

    async fn read_overview(&self, after: Option<ItemId>) -> Result<Arc<Overview>, ReadError> {
        let ledger = &self.engine.ledger;
        let page = ledger.list_items(after.as_ref(), ITEMS_PER_PAGE).await;
        let page = page.map_err(EngineError::from)?;
        let ids: Vec<_> = page.rows.iter().map(|row| row.item.id.clone()).collect();
        let requests = ledger.request_counts(&ids);
        let requests: HashMap<_, _> = requests
            .await
            .map_err(EngineError::from)?
            .into_iter()
            .collect();
        let items = stream::iter(page.rows)
            .map(async |listed| {
                let counts = requests.get(&listed.item.id);
                let refused = counts.map_or(0, RequestCounts::refused);
                let refusals = self.refusals.note(&listed.item.id, refused);
                let drift = self.drift(&listed.item.id).await?;
                let rates = self
                    .rates
                    .note(&listed.item.id, listed.held + listed.confirmed);
                Ok::<_, ReadError>(OverviewItem {
                    listed,
                    drift,
                    rates,
                    refusals,
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
        let refunds = self.refunds.try_get_with((), Read::of(read)).await?;
        Ok(refunds.value)
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
            let counted = self.engine.ledger.request_counts(std::slice::from_ref(id));
            let requests = counted.await?.pop().map(|(_, counts)| counts);
            let requests = requests.unwrap_or_default();
            Ok(Some(Arc::new(ItemState {
                refusals: self.refusals.note(id, requests.refused()),
                requests,
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
                journal: self.engine.ledger.journal(id, ROWS).await?,
                transfers: self.engine.ledger.open_transfers(Some(id)).await?,
                plan: self.plan(id).await?,
            }))
        };
        self.details.try_get_with(id.clone(), read).await
    }

    /// What a repair of the item would do, if the audit objects to one of its segments.
    async fn plan(&self, id: &ItemId) -> Result<Option<Result<Plan, String>>, EngineError> {
        let (segments, _) = self.segments(id).await?;
        if segments.iter().all(|segment| segment.finding().is_none()) {
            return Ok(None);
        }
        let planned = reconciler::plan(&self.engine.stock, &*self.engine.ledger, id).await;
        Ok(match planned {
            Ok(plan) => plan.map(Ok),
            Err(error) => Some(Err(error.to_string())),
        })
    }

    /// The sums over the item's orders. They read all of them, so they are half a minute old, and older
    /// in a large sale.
    pub(super) async fn sums(&self, item: &Item) -> Result<Arc<Sums>, ReadError> {
        let read = async {
            let (ledger, at) = (&self.engine.ledger, Timestamp::now());
            let span = Duration::from_secs(u64::from(item.hold_seconds)) / u32::from(HOLD_SPANS);
            let totals = ledger.totals(&item.id).await?;
            let holds = ledger.held_units_by_end(&item.id, at, span, HOLD_SPANS);
            Ok::<_, EngineError>(Arc::new(Sums {
                at,
                orders: totals
                    .map(|totals| totals.orders_by_state)
                    .unwrap_or_default(),
                holds: holds.await?,
                span,
            }))
        };
        let sums = self.sums.try_get_with(item.id.clone(), Read::of(read));
        Ok(sums.await?.value)
    }

    /// What runs, and how far each part is behind.
    pub(super) async fn system(&self) -> Arc<System> {
        let read = async { Arc::new(System::read(&self.engine, self.at_work()).await) };
        self.system.get_with((), read).await
    }

    /// Items that sell, may sell again, or have units that are to return. A read that takes longer than a
    /// viewer waits goes on, so that the next one finds them.
    async fn at_work(&self) -> Result<Arc<[ItemId]>, ReadError> {
        let (engine, cache) = (Arc::clone(&self.engine), self.at_work.clone());
        let read = async move {
            let items = engine.ledger.items_at_work().await?;
            Ok::<_, EngineError>(Arc::from(items))
        };
        let reading = tokio::spawn(async move { cache.try_get_with((), Read::of(read)).await });
        // Nothing cancels it.
        let items = reading
            .await
            .unwrap_or_else(|error| resume_unwind(error.into_panic()));
        Ok(items?.value)
    }

    async fn orders(&self, id: &ItemId, state: OrderState) -> Result<Vec<OrderView>, EngineError> {
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
