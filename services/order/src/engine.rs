//! What the API does, without HTTP: items and orders over `stock` and `ledger`.

mod items;
mod life;
mod orders;
mod transitions;

use std::{sync::Arc, time::Duration};

use domain::{Item, ItemId};
use ledger::{Ledger, LedgerError};
use quick_cache::{UnitWeighter, sync::Cache};
use stock::{ItemStock, Stock, StockError};
use tokio::time::Instant;

pub use items::{ItemView, SegmentView, StockSet, StockWish, Stocked};
pub use life::{Ended, Paid, Payment};
pub use orders::{Placed, Placement};

use transitions::Transitions;

/// Items that are remembered: so many have room from the beginning, and so many at most.
const ITEMS_USUALLY: usize = 100;
const ITEMS_MOST: u64 = 100_000;

/// How orders are placed.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// How long an order may take before its outcome is given up as unknown.
    pub order_within: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            order_within: Duration::from_secs(5),
        }
    }
}

/// Why the engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Redis did not.
    #[error("the stock did not answer")]
    Stock(#[from] StockError),
    /// SQL did not.
    #[error("the ledger did not answer")]
    Ledger(#[from] LedgerError),
    /// The audit could not look.
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
    /// Units may have been taken. The same idempotency key resolves it.
    #[error("the outcome is unknown after {0:?}")]
    OutcomeUnknown(Duration),
}

/// The engine: stock, ledger, and the items that this process has met.
pub struct Engine {
    /// The stock.
    pub stock: Arc<Stock>,
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    settings: EngineSettings,
    transitions: Transitions,
    /// What of an item cannot change. Whether it sells is asked of its segments, so nothing here goes stale.
    items: Cache<ItemId, Arc<KnownItem>>,
}

/// An item that this process has met.
pub(crate) struct KnownItem {
    pub item: Item,
    pub tag: domain::ItemTag,
    pub stock: Arc<ItemStock>,
}

impl Engine {
    /// An engine over these.
    pub fn new(stock: Arc<Stock>, ledger: Arc<dyn Ledger>, settings: EngineSettings) -> Arc<Self> {
        let (items, transitions) = (
            Cache::with_weighter(ITEMS_USUALLY, ITEMS_MOST, UnitWeighter),
            Transitions::new(Arc::clone(&ledger), settings.order_within),
        );
        Arc::new(Self {
            stock,
            ledger,
            settings,
            transitions,
            items,
        })
    }

    /// Answers if Redis and SQL do and the scripts are loaded.
    pub async fn ready(&self) -> Result<(), EngineError> {
        self.stock.ready().await?;
        Ok(self.ledger.ping().await?)
    }

    /// Whatever the stores do not answer, whoever asked hears within this time.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        self.in_time_until(Instant::now() + self.settings.order_within, work)
            .await
    }

    async fn in_time_until<T>(
        &self,
        until: Instant,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        tokio::time::timeout_at(until, work)
            .await
            .unwrap_or(Err(EngineError::OutcomeUnknown(self.settings.order_within)))
    }

    pub(crate) async fn known(&self, id: &ItemId) -> Result<Option<Arc<KnownItem>>, EngineError> {
        if let Some(known) = self.items.get(id) {
            return Ok(Some(known));
        }
        let Some(item) = self.ledger.item(id).await? else {
            return Ok(None);
        };
        Ok(Some(self.know(item)))
    }

    fn know(&self, item: Item) -> Arc<KnownItem> {
        let known = Arc::new(KnownItem {
            tag: item.id.tag(),
            stock: self.stock.item(&item),
            item,
        });
        self.items.insert(known.item.id.clone(), Arc::clone(&known));
        known
    }
}
