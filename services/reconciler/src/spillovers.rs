//! Finishes abandoned spillovers of an item, and removes settled ones.

use domain::ItemId;

use crate::{Reconciler, ReconcilerError};

pub(crate) async fn settle(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let Some(item) = reconciler.item_stock(id).await? else {
        return Ok(());
    };
    let settled = item.settle_spillovers().await?;
    metrics::counter!("stockade_spillovers_finished_total").increment(settled.finished as u64);
    metrics::counter!("stockade_spillovers_forgotten_total").increment(settled.forgotten as u64);
    Ok(())
}
