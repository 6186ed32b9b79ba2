//! The time by which holds end and items are archived.
//!
//! Redis sets the end of a hold by its own clock. A reconciler whose clock runs ahead would end
//! holds while their buyers are paying. So it compares the two clocks, uses the earlier time, and
//! ends nothing while they differ by seconds. The ledger dates the end of an item, so its clock
//! counts for the archive as well.

use domain::SafetyCheck;
use jiff::Timestamp;
use ledger::{ClocksDiffer, earlier_time};

use crate::{Reconciler, ReconcilerError};

/// The earlier of this process's time and Redis's. An error if they differ too much.
pub(crate) async fn now(reconciler: &Reconciler) -> Result<Timestamp, ReconcilerError> {
    let own = (reconciler.settings.clock)();
    if !SafetyCheck::ClockCheck.is_enabled() {
        return Ok(own);
    }
    let store = reconciler.stock.time().await?;
    let difference = own.duration_since(store);
    metrics::gauge!("stockade_clock_difference_seconds").set(difference.as_secs_f64());
    earlier_time(own, store)
        .map_err(|ClocksDiffer { ahead_seconds }| ReconcilerError::Clock { ahead_seconds })
}

/// The earliest of this process's time, Redis's and the ledger's. An error if one of the two
/// differs too much from ours.
pub(crate) async fn earliest(reconciler: &Reconciler) -> Result<Timestamp, ReconcilerError> {
    let by_redis = now(reconciler).await?;
    let own = (reconciler.settings.clock)();
    let by_ledger = earlier_time(own, reconciler.ledger.time().await?)?;
    Ok(by_redis.min(by_ledger))
}
