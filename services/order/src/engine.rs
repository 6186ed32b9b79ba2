//! The operations of the API without HTTP: items and orders over `stock` and `ledger`.

mod amounts;
mod archive;
mod caller;
mod carts;
mod drops;
mod hold;
mod items;
mod life;
mod lists;
mod look_ups;
mod misses;
mod orders;
mod outcomes;
mod placers;
mod price;
mod reacquire;
mod readiness;
mod refunds;
mod requests;
mod rounds;
mod sessions;
mod tags;
mod transitions;
mod unmatched;
mod view;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::{CartId, Item, ItemId, OrderId};
use ledger::{Ledger, LedgerError, RequestCounts};
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use stock::{ItemStock, Stock, StockError};
use tokio::time::Instant;

pub use amounts::StatedBy;
pub use archive::ArchiveRequested;
pub use caller::Caller;
pub use carts::{CartPlaced, CartPlacement, LineReturned, Total};
pub use drops::DropRequested;
pub use hold::HoldChange;
pub(crate) use items::SegmentView;
pub use items::{ItemView, StockRequest, StockSet, Stocked, Unchanged};
pub use life::Payment;
pub use lists::{RefundDone, RefundDue, RefundKey};
pub use orders::{Placed, Placement};
pub use outcomes::{Ended, Extended, Paid, Purchase};
pub use price::{Currency, Price};
pub use readiness::NotReady;
pub use refunds::{MoneyReturned, Payable};
pub use sessions::SessionEnd;
pub use unmatched::UnmatchedPayment;
pub use view::OrderView;

use look_ups::LookUps;
use misses::Misses;
use placers::Placers;
use readiness::Readiness;
use requests::{ItemRequests, Requests};
use tags::Tags;
use transitions::Transitions;

/// Capacity of the item cache: initial and maximum number of items.
const ITEM_CACHE_INITIAL: usize = 100;
const ITEM_CACHE_MAX: u64 = 100_000;

/// How long another process may need to see an item that was just created, if orders for it came
/// before.
const UNKNOWN_LIFETIME: Duration = Duration::from_millis(250);

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// How long an order may take before it fails as "outcome unknown".
    pub order_timeout: Duration,
    /// How long an archived item keeps its orders at least.
    pub drop_retention: Duration,
    /// Whether a folder for the exports of drops is set. Without one no reconciler drops anything.
    pub has_drop_exports: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            order_timeout: Duration::from_secs(5),
            drop_retention: Duration::from_secs(30 * 24 * 3600),
            has_drop_exports: true,
        }
    }
}

/// Why a request of the engine failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A call of Redis failed.
    #[error("a stock operation failed")]
    Stock(#[from] StockError),
    /// A call of the ledger failed.
    #[error("a ledger operation failed")]
    Ledger(#[from] LedgerError),
    /// The audit could not read Redis or the ledger.
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
    /// Units may have been taken. A repeat with the same idempotency key resolves it.
    #[error("the outcome is unknown after {0:?}")]
    OutcomeUnknown(Duration),
    /// A store could not be used, and nothing was changed: the request was refused before it ran,
    /// or never sent. A retry is safe.
    #[error("a store refused, and nothing was changed")]
    Unavailable(#[source] Arc<EngineError>),
    /// A change was made, or may have been made, and then a store failed. A repeat of the request
    /// resolves it.
    #[error("a change failed before it was complete, and its outcome is unknown")]
    ChangeUnknown(#[source] Arc<EngineError>),
    /// The process is about to stop. Another one serves the same items.
    #[error("the process is stopping")]
    Stopping,
    /// A store takes no orders, or nothing is known of it.
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

impl EngineError {
    /// The error of a change in the ledger. One of a read is [`EngineError::Ledger`]: a read that
    /// fails has changed nothing in any case.
    pub(crate) fn of_change(error: LedgerError) -> Self {
        if error.proves_unchanged() || !error.is_retryable() {
            Self::Ledger(error)
        } else {
            Self::after_change(error)
        }
    }

    /// The error of whatever follows a change that was made, or may have been: that a read or
    /// another store failed proves nothing about the change.
    pub(crate) fn after_change(error: impl Into<Self>) -> Self {
        match error.into() {
            unknown @ (Self::OutcomeUnknown(_) | Self::ChangeUnknown(_)) => unknown,
            error => Self::ChangeUnknown(Arc::new(error)),
        }
    }

    /// The error of a request before any store has changed anything for it.
    pub(crate) fn before_change(error: impl Into<Self>) -> Self {
        Self::Unavailable(Arc::new(error.into()))
    }

    /// Whether it is proven that nothing was changed.
    pub(crate) fn proves_unchanged(&self) -> bool {
        match self {
            Self::Ledger(error) => error.proves_unchanged(),
            Self::Stopping | Self::Unavailable(_) | Self::NotReady(_) => true,
            Self::Stock(_) | Self::Audit(_) | Self::OutcomeUnknown(_) | Self::ChangeUnknown(_) => {
                false
            }
        }
    }
}

/// The engine: stock, ledger, and a cache of items.
pub struct Engine {
    /// The stock.
    pub stock: Arc<Stock>,
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    settings: EngineSettings,
    transitions: Transitions,
    /// Whether the process is about to stop.
    draining: AtomicBool,
    readiness: Readiness,
    /// Cache of the immutable properties of items, and of the end of archived ones. The segments of
    /// all others decide whether they sell, so an entry never goes stale.
    items: Cache<ItemId, Arc<KnownItem>, UnitWeighter, ahash::RandomState>,
    /// What came of the requests for each item.
    requests: Requests,
    cart_look_ups: LookUps<CartId>,
    order_look_ups: LookUps<OrderId>,
    misses: Misses,
    tags: Tags,
    placers: Placers,
    /// Ids that no item had a moment ago, so that orders for them cost one statement in
    /// [`UNKNOWN_LIFETIME`].
    unknown: moka::sync::Cache<ItemId, ()>,
}

/// An item in the cache.
pub(crate) struct KnownItem {
    pub item: Item,
    pub tag: domain::ItemTag,
    pub stock: Arc<ItemStock>,
    pub requests: Arc<ItemRequests>,
}

/// Why an item is not in the cache.
enum NotLoaded {
    Unknown,
    Failed(LedgerError),
}

impl From<LedgerError> for NotLoaded {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error)
    }
}

impl Engine {
    /// Creates an engine over `stock` and `ledger`.
    pub fn new(stock: Arc<Stock>, ledger: Arc<dyn Ledger>, settings: EngineSettings) -> Arc<Self> {
        let (items, transitions) = (
            Cache::with(
                ITEM_CACHE_INITIAL,
                ITEM_CACHE_MAX,
                UnitWeighter,
                ahash::RandomState::new(),
                DefaultLifecycle::default(),
            ),
            Transitions::new(Arc::clone(&ledger), settings.order_timeout),
        );
        Arc::new(Self {
            stock,
            ledger,
            settings,
            transitions,
            draining: AtomicBool::new(false),
            readiness: Readiness::default(),
            items,
            requests: Requests::default(),
            cart_look_ups: LookUps::default(),
            order_look_ups: LookUps::default(),
            misses: Misses::default(),
            tags: Tags::default(),
            placers: Placers::default(),
            unknown: moka::sync::Cache::builder()
                .max_capacity(ITEM_CACHE_MAX)
                .time_to_live(UNKNOWN_LIFETIME)
                .build(),
        })
    }

    /// From now on the engine is not ready. It still answers.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// What came of the requests for each item in this process since its start: of those items that
    /// requests have come for since this was asked last.
    pub fn changed_requests(&self) -> Vec<(ItemId, RequestCounts)> {
        self.requests.changed()
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Fails with "outcome unknown" after `order_timeout`, even if a store never answers.
    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        self.with_deadline(Instant::now() + self.settings.order_timeout, work)
            .await
    }

    async fn with_deadline<T>(
        &self,
        until: Instant,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        // What opens connections to the ledger belongs to the runtime that outlives the listeners.
        let work = self.stock.host(tokio::time::timeout_at(until, work));
        work.await.unwrap_or(Err(EngineError::OutcomeUnknown(
            self.settings.order_timeout,
        )))
    }

    pub(crate) async fn known(&self, id: &ItemId) -> Result<Option<Arc<KnownItem>>, EngineError> {
        if let Some(known) = self.items.get(id) {
            return Ok(Some(known));
        }
        // One of all that ask for an item reads it: a crowd, or an attacker, may name any.
        let loading = self.items.get_or_insert_async(id, self.load(id)).await;
        match loading {
            Ok(known) => Ok(Some(known)),
            Err(NotLoaded::Unknown) => Ok(None),
            Err(NotLoaded::Failed(error)) => Err(error.into()),
        }
    }

    async fn load(&self, id: &ItemId) -> Result<Arc<KnownItem>, NotLoaded> {
        if self.unknown.contains_key(id) {
            return Err(NotLoaded::Unknown);
        }
        let Some(item) = self.ledger.item(id).await? else {
            self.unknown.insert(id.clone(), ());
            return Err(NotLoaded::Unknown);
        };
        Ok(self.known_of(item))
    }

    fn cache(&self, item: Item) -> Arc<KnownItem> {
        self.unknown.invalidate(&item.id);
        self.tags.add(&item.id);
        let known = self.known_of(item);
        self.items.insert(known.item.id.clone(), Arc::clone(&known));
        known
    }

    fn known_of(&self, item: Item) -> Arc<KnownItem> {
        Arc::new(KnownItem {
            tag: item.id.tag(),
            stock: self.stock.item(&item),
            requests: self.requests.of(&item.id),
            item,
        })
    }
}
