//! A lock that renews itself in the background (others call it a watchdog), and that its holder may
//! enter again.
//!
//! Renewal proves that the process lives, not that its work makes progress: a body that hangs keeps
//! its lock forever. [`Guard::run`] ties the lease to the work and is the better choice wherever
//! the work is one future.

use std::sync::Arc;

use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
};

use crate::{
    error::LockError,
    guard::{Guard, Scope},
};

/// What the release of one handle did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It was the last handle, and the lock is free.
    Released,
    /// Other handles still hold the lock.
    StillHeld,
}

/// A lock that is extended in the background while at least one handle exists.
///
/// Only this handle can enter the lock again. Ownership is never derived from a thread or a task,
/// so one owner cannot be mistaken for another. The last handle that is released or dropped
/// releases the lock.
#[derive(Debug)]
#[must_use = "dropping the last handle releases the lock"]
pub struct Renewed(Arc<Renewal>);

#[derive(Debug)]
struct Renewal {
    scope: Scope,
    /// Dropping it stops the task.
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<(), LockError>>>,
}

impl Guard {
    /// Extends the lease in the background until the lock is released, dropped or lost.
    pub fn renewed(self) -> Renewed {
        let scope = self.scope();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(renew(self, stopped));
        Renewed(Arc::new(Renewal {
            scope,
            stop: Some(stop),
            task: Some(task),
        }))
    }
}

impl Renewed {
    /// Token, validity and loss of the lock.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Enters the lock once more. It stays held until every handle is released.
    ///
    /// # Errors
    ///
    /// `Lost` if we do not hold the lock any more.
    pub fn enter(&self) -> Result<Self, LockError> {
        if self.0.scope.is_lost() {
            return Err(LockError::lost());
        }
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Releases this handle. The last one releases the lock and reports whether we still held it.
    ///
    /// # Errors
    ///
    /// See [`Guard::release`].
    pub async fn release(self) -> Result<ReleaseOutcome, LockError> {
        let Some(mut renewal) = Arc::into_inner(self.0) else {
            return Ok(ReleaseOutcome::StillHeld);
        };
        drop(renewal.stop.take());
        if let Some(task) = renewal.task.take() {
            task.await.unwrap_or_else(aborted)?;
        }
        Ok(ReleaseOutcome::Released)
    }
}

/// The runtime is shutting down, and the guard was dropped with its task.
fn aborted(_: JoinError) -> Result<(), LockError> {
    Err(LockError::lost())
}

async fn renew(mut guard: Guard, mut stopped: oneshot::Receiver<()>) -> Result<(), LockError> {
    tokio::select! {
        biased;
        // The channel carries no message: its end says that the last handle is gone.
        _ = &mut stopped => guard.release().await,
        error = guard.extend_until_lost() => Err(error),
    }
}
