//! What a backend hands over when it has acquired a lock.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{error::LockError, sequencer::Sequencer};

/// A lock that a backend has acquired.
pub struct Grant {
    /// Name, mode and token.
    pub sequencer: Sequencer,
    /// Until when we certainly hold the lock, by our monotonic clock. It is counted from before
    /// the request was sent.
    pub deadline: Instant,
    /// How long an extension lasts.
    pub lease: Duration,
    /// Cancelled by the backend as soon as it detects that the lock is lost.
    pub lost: CancellationToken,
    /// Extends and releases the lock.
    pub hold: Box<dyn Hold>,
}

/// Extends and releases an acquired lock. Dropping it releases the lock in the background.
#[async_trait]
pub trait Hold: Send + Sync {
    /// Restarts the lease and returns the new deadline.
    ///
    /// # Errors
    ///
    /// `Lost` is final. After any other error the call may be repeated until the deadline.
    async fn extend(&mut self) -> Result<Instant, LockError>;

    /// Called before the drop of a lock whose lease ended without a release. If there is a
    /// lock-delay, it must run to its end.
    fn lapse(&mut self) {}

    /// Releases the lock. A caller that drops the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// `Lost` if we did not hold the lock any more. Any other error if that is unknown.
    async fn release(self: Box<Self>) -> Result<(), LockError>;
}
