//! What the API does, without HTTP: items and orders over `stock` and `ledger`.

mod items;
mod life;
mod orders;
mod transitions;

use std::{sync::Arc, time::Duration};

use domain::{Item, ItemId};
use ledger::{Ledger, LedgerError};
use moka::future::Cache;
use stock::{ItemStock, Stock, StockError};

pub use items::{ItemView, SegmentView, StockSet, StockWish, Stocked};
pub use life::{Ended, Paid, Payment};
pub use orders::{Placed, Placement};

use transitions::Transitions;

/// How orders are placed.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// How long an order may take before its outcome is given up as unknown.
    pub order_within: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { order_within: Duration::from_secs(5) }
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
        let (items, transitions) = (Cache::new(100_000), Transitions::new(Arc::clone(&ledger), settings.order_within));
        Arc::new(Self { stock, ledger, settings, transitions, items })
    }

    /// Answers if Redis and SQL do and the scripts are loaded.
    pub async fn ready(&self) -> Result<(), EngineError> {
        self.stock.ready().await?;
        Ok(self.ledger.ping().await?)
    }

    /// Whatever the stores do not answer, whoever asked hears within this time.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
        let within = self.settings.order_within;
        tokio::time::timeout(within, work).await.unwrap_or(Err(EngineError::OutcomeUnknown(within)))
    }

    pub(crate) async fn known(&self, id: &ItemId) -> Result<Option<Arc<KnownItem>>, EngineError> {
        if let Some(known) = self.items.get(id).await {
            return Ok(Some(known));
        }
        let Some(item) = self.ledger.item(id).await? else { return Ok(None) };
        Ok(Some(self.know(item).await))
    }

    async fn know(&self, item: Item) -> Arc<KnownItem> {
        let known = Arc::new(KnownItem { tag: item.id.tag(), stock: self.stock.item(&item), item });
        self.items.insert(known.item.id.clone(), Arc::clone(&known)).await;
        known
    }
}
