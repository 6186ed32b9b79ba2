//! The trait that every backend implements.
//!
//! Users read [`Lock`] and [`Capabilities`]. A backend implements [`Lock::request`] and
//! [`Hold`](crate::Hold) and hands a [`Grant`](crate::Grant) to [`Guard::new`]. The guard then
//! provides deadline, loss, renewal, release and drop.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::{
    error::LockError,
    guard::Guard,
    guard_set::{GuardSet, in_order},
    request::{Capabilities, Request, Wait},
    token::FencingToken,
};

/// A distributed lock on any backend.
///
/// A caller may drop the future of any of these calls: nothing is left behind.
#[async_trait]
pub trait Lock: Send + Sync {
    /// What this backend offers.
    fn capabilities(&self) -> Capabilities;

    /// Acquires the lock as requested.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. A partial acquisition is released in the background.
    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError>;

    /// Raises the next tokens of this name above a token that is known from elsewhere, usually the
    /// fence of a row that the lock protects. A backend whose servers cannot be set back ignores
    /// it.
    ///
    /// # Errors
    ///
    /// If the name is invalid.
    fn observe(&self, _name: &str, _token: FencingToken) -> Result<(), LockError> {
        Ok(())
    }

    /// Makes one attempt.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name).wait(Wait::Never)).await
    }

    /// Waits for as long as another owner holds the lock.
    ///
    /// # Errors
    ///
    /// If the lock is unavailable for any other reason: see [`LockError`].
    async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name)).await
    }

    /// Waits up to `timeout`, also for servers that do not answer. After that it returns the error
    /// of the last attempt.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    async fn acquire_within(&self, name: &str, timeout: Duration) -> Result<Guard, LockError> {
        self.request(Request::new(name).wait(Wait::AtMost(timeout)))
            .await
    }

    /// Acquires several locks, all or none, and holds them as one. They are acquired in the order
    /// of their names, so two callers cannot deadlock. The wait covers all of them together.
    ///
    /// # Errors
    ///
    /// See [`LockError`]; [`InvalidArgument::NoNames`](crate::InvalidArgument::NoNames) without a
    /// name.
    async fn acquire_all(&self, names: &[&str], wait: Wait) -> Result<GuardSet, LockError> {
        let names = in_order(names)?;
        let started = Instant::now();
        let mut set = GuardSet::with_capacity(names.len());
        for name in names {
            let request = Request::new(name).wait(wait.after(started.elapsed()));
            // The locks that are held already are extended while the next one is waited for.
            let guard = tokio::select! {
                guard = self.request(request) => guard?,
                error = set.extend_until_lost() => return Err(error),
            };
            set.push(guard);
        }
        Ok(set)
    }
}
