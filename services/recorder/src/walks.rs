//! Has walks finished and forgotten, of the items whose segments have any. The sweep says which.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{ItemId, SegmentKey};
use ledger::{Ledger, LedgerError};
use stock::{ItemStock, Stock};

use crate::Recorder;

/// Items with walks that are not forgotten yet.
#[derive(Default)]
pub(crate) struct Walks(Mutex<BTreeSet<ItemId>>);

impl Walks {
    pub(crate) fn add(&self, segments: impl IntoIterator<Item = SegmentKey>) {
        let items = segments.into_iter().map(|segment| segment.item);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
    }

    /// Those that still have walks are added again by the next sweep.
    fn take(&self) -> BTreeSet<ItemId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) async fn run(recorder: Arc<Recorder>) {
    loop {
        if let Err(error) = settle_all(&recorder).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "items with walks could not be read");
        }
        if tokio::time::timeout(recorder.settings.walks_every, recorder.stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

async fn settle_all(recorder: &Recorder) -> Result<(), LedgerError> {
    for id in recorder.walks.take() {
        if let Some(item) = item_stock(&recorder.stock, &*recorder.ledger, &id).await? {
            settle(&item).await;
        }
    }
    Ok(())
}

async fn item_stock(stock: &Stock, ledger: &dyn Ledger, id: &ItemId) -> Result<Option<Arc<ItemStock>>, LedgerError> {
    if let Some(known) = stock.known_item(id) {
        return Ok(Some(known));
    }
    Ok(ledger.item(id).await?.map(|item| stock.item(&item)))
}

async fn settle(item: &Arc<ItemStock>) {
    match item.settle_walks().await {
        Ok(settled) => {
            metrics::counter!("stockade_walks_finished_total").increment(settled.finished as u64);
            metrics::counter!("stockade_walks_forgotten_total").increment(settled.forgotten as u64);
        }
        Err(error) => tracing::debug!(item = %item.id, %error, "walks could not be settled"),
    }
}
