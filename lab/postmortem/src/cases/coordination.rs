//! What the cases need of a coordination service.

use anyhow::{Result, bail};
use async_trait::async_trait;

/// A lock of a coordination service, as its clients implement it.
#[async_trait]
pub(super) trait Coordination: Send {
    /// Waits for the lock, and returns the service's number for this acquisition.
    async fn lock(&mut self) -> Result<i64>;

    /// Asks the service whether the lock is still held.
    async fn is_ours(&mut self) -> Result<bool>;

    /// Releases the lock, if it is held.
    async fn unlock(&mut self) -> Result<()>;

    /// Reads the stock in the service.
    async fn stock(&mut self) -> Result<i64> {
        bail!("this coordination service keeps no stock")
    }

    /// Sets the stock if the lock is still held, and returns whether it was.
    async fn set_stock(&mut self, _left: i64) -> Result<bool> {
        bail!("this coordination service keeps no stock")
    }
}
