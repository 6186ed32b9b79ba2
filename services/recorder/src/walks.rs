//! Has walks finished and forgotten.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use domain::ItemId;
use ledger::{Ledger, LedgerError};
use stock::{ItemStock, Stock};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(stock: Arc<Stock>, ledger: Arc<dyn Ledger>, every: Duration, stop: CancellationToken) {
    loop {
        if let Err(error) = settle_all(&stock, &*ledger).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "walks could not be listed");
        }
        if tokio::time::timeout(every, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

async fn settle_all(stock: &Stock, ledger: &dyn Ledger) -> Result<(), LedgerError> {
    let items: BTreeSet<ItemId> = ledger.checkpoints().await?.into_iter().map(|(segment, _)| segment.item).collect();
    for id in items {
        if let Some(item) = item_stock(stock, ledger, &id).await? {
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
