//! A lock that renews itself in the background (what others call a watchdog), and that its holder may enter again.
//!
//! What a reader could get wrong: renewal proves that the process lives, not that its work does. A body that hangs keeps its lock for ever.
//! [`Guard::run`] ties the two together and is the better choice wherever the work is one future.

use std::sync::Arc;

use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
};

use crate::{Guard, LockError, Scope};

/// How a holder that leaves has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It was the last one, and the lock is free.
    Released,
    /// Others are still inside.
    StillHeld,
}

/// A lock that is extended in the background for as long as anybody is inside.
///
/// It is entered again by whoever has this handle, and by nobody else: there is no owner by thread or by task that could be taken for
/// somebody else's. The last that leaves, or is dropped, gives the lock back.
#[derive(Debug)]
#[must_use = "a lock is given back when its last handle is dropped"]
pub struct Renewed(Arc<Keeper>);

#[derive(Debug)]
struct Keeper {
    scope: Scope,
    /// Dropping it ends the renewal as well.
    leave: Option<oneshot::Sender<()>>,
    renewal: Option<JoinHandle<Result<(), LockError>>>,
}

impl Guard {
    /// Extends the lease in the background from now on, until it is released, dropped or lost.
    pub fn renewed(self) -> Renewed {
        let scope = self.scope();
        let (leave, left) = oneshot::channel();
        let renewal = tokio::spawn(renew(self, left));
        Renewed(Arc::new(Keeper {
            scope,
            leave: Some(leave),
            renewal: Some(renewal),
        }))
    }
}

impl Renewed {
    /// Token, validity and loss of the lock.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Enters the lock once more. It stays held until all who entered have left.
    ///
    /// # Errors
    ///
    /// `Lost` if it is not ours any more.
    pub fn enter(&self) -> Result<Self, LockError> {
        if self.0.scope.is_lost() {
            return Err(LockError::lost());
        }
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Leaves. The last one gives the lock back and says whether it was still ours.
    ///
    /// # Errors
    ///
    /// See [`Guard::release`].
    pub async fn release(self) -> Result<Left, LockError> {
        let Some(mut keeper) = Arc::into_inner(self.0) else {
            return Ok(Left::StillHeld);
        };
        drop(keeper.leave.take());
        if let Some(renewal) = keeper.renewal.take() {
            renewal.await.unwrap_or_else(died)?;
        }
        Ok(Left::Released)
    }
}

/// The runtime is going down, and with it the guard.
fn died(_: JoinError) -> Result<(), LockError> {
    Err(LockError::lost())
}

async fn renew(mut guard: Guard, mut left: oneshot::Receiver<()>) -> Result<(), LockError> {
    tokio::select! {
        biased;
        // An error only says that the sender is gone, and so are all who were inside.
        _ = &mut left => guard.release().await,
        error = guard.keep() => Err(error),
    }
}
