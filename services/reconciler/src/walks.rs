//! Has the walks of an item finished and forgotten that nobody else did.

use domain::ItemId;

use crate::{Reconciler, ReconcilerError};

pub(crate) async fn settle(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let Some(item) = reconciler.item_stock(id).await? else {
        return Ok(());
    };
    let settled = item.settle_walks().await?;
    metrics::counter!("stockade_walks_finished_total").increment(settled.finished as u64);
    metrics::counter!("stockade_walks_forgotten_total").increment(settled.forgotten as u64);
    Ok(())
}
