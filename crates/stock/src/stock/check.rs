//! The home check: whether a home segment has decisions on the orders that other segments took. A
//! decline writes no outbox entry, so a failover that loses only declines leaves the anchor as it
//! is.

use domain::{OrderId, SegmentKey};

use super::Stock;
use crate::{
    StockError,
    keys::Keys,
    script::{self, OffHomeOrder},
};

/// Orders in one call of a script; Lua unpacks fewer than 8000 values.
const BATCH_MAX: usize = 1000;

impl Stock {
    /// Returns those of the orders that their home does not know, or still counts although they
    /// have ended. `None`: the home's server does not have the history that
    /// [`crate::Inspection::history`] has named. It is read on the connections for operators and
    /// auditors.
    pub async fn check_home(
        &self,
        home: &SegmentKey,
        history: &str,
        orders: &[OffHomeOrder],
    ) -> Result<Option<Vec<OrderId>>, StockError> {
        let (operators, keys) = (&self.shared.operators, Keys::of(home));
        let mut forgotten = Vec::new();
        for orders in orders.chunks(BATCH_MAX) {
            match script::check_home(operators, &keys, history, orders).await? {
                Some(found) => forgotten.extend(found),
                None => return Ok(None),
            }
        }
        Ok(Some(forgotten))
    }

    /// Marks the home as checked in this history, for the holder of `token`. Returns `false` if its
    /// server has another history by now: then it is to be checked again.
    pub async fn mark_checked(
        &self,
        home: &SegmentKey,
        token: u64,
        history: &str,
    ) -> Result<bool, StockError> {
        script::mark_checked(&self.shared.connection, &Keys::of(home), token, history).await
    }
}
