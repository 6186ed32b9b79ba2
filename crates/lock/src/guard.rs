//! A held lock, and how its holder learns of a loss.
//!
//! The deadline is local. It is counted from before the first request was sent, so it passes before
//! the lease ends at any quorum of nodes, and it needs no network to pass. Only an extension that a
//! quorum granted moves it.

use std::{
    fmt,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::LockError,
    hold::{Grant, Hold},
    sequencer::Sequencer,
    token::FencingToken,
};

/// A lease is extended once this fraction of it (a third) has passed.
const EXTEND_AFTER_FRACTION: u32 = 3;
/// After a failure the extension is retried at intervals of this fraction of the lease.
const EXTEND_RETRY_FRACTION: u32 = 30;

/// A held lock. Dropping it releases the lock in the background.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    hold: HeldLock,
    lease: Duration,
    deadline: watch::Sender<Instant>,
    scope: Scope,
    _end: CancelOnDrop,
}

/// The view of a lock for the work under it: token, validity and loss. It can be cloned and sent
/// anywhere; it does not hold the lock.
#[derive(Debug, Clone)]
pub struct Scope {
    sequencer: Arc<Sequencer>,
    deadline: watch::Receiver<Instant>,
    lost: CancellationToken,
}

/// The backend's part, until the lock is released.
struct HeldLock {
    hold: Option<Box<dyn Hold>>,
    deadline: watch::Receiver<Instant>,
}

/// Cancels the token of a guard that is released or dropped.
struct CancelOnDrop(CancellationToken);

impl Scope {
    /// The fencing token. Pass it to every store that is written to under the lock.
    pub fn token(&self) -> FencingToken {
        self.sequencer.token
    }

    /// What to present to a store that checks its callers.
    pub fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    /// How much longer we certainly hold the lock; zero once it is lost.
    pub fn validity(&self) -> Duration {
        if self.lost.is_cancelled() {
            return Duration::ZERO;
        }
        let validity = self
            .deadline
            .borrow()
            .saturating_duration_since(Instant::now());
        if validity.is_zero() {
            // Every observer learns of the loss now, before any consequence of it.
            self.lost.cancel();
        }
        validity
    }

    /// Whether we do not certainly hold the lock any more.
    pub fn is_lost(&self) -> bool {
        self.validity().is_zero()
    }

    /// Returns when the lock is lost: at the local deadline at the latest, whatever the network
    /// does. Returns immediately if the lock is lost already.
    pub async fn lost(&self) {
        if !self.is_lost() {
            self.lost.cancelled().await;
        }
    }

    /// A token that is cancelled when the lock is lost, released or dropped.
    pub fn cancellation(&self) -> CancellationToken {
        self.lost.clone()
    }
}

impl Guard {
    /// Called by a backend that has acquired a lock.
    pub fn new(grant: Grant) -> Self {
        let Grant {
            sequencer,
            deadline,
            lease,
            lost,
            hold,
        } = grant;
        let (sender, receiver) = watch::channel(deadline);
        let hold = HeldLock {
            hold: Some(hold),
            deadline: receiver.clone(),
        };
        let scope = Scope {
            sequencer: Arc::new(sequencer),
            deadline: receiver,
            lost: lost.clone(),
        };
        tokio::spawn(cancel_at_deadline(scope.clone()));
        Self {
            hold,
            lease,
            deadline: sender,
            scope,
            _end: CancelOnDrop(lost),
        }
    }

    /// The fencing token. Pass it to every store that is written to under the lock.
    pub fn token(&self) -> FencingToken {
        self.scope.token()
    }

    /// How much longer we certainly hold the lock; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.scope.validity()
    }

    /// Whether we do not certainly hold the lock any more.
    pub fn is_lost(&self) -> bool {
        self.scope.is_lost()
    }

    /// Returns when the lock is lost: at the local deadline at the latest, whatever the network
    /// does. Returns immediately if the lock is lost already.
    pub async fn lost(&self) {
        self.scope.lost().await;
    }

    /// A token that is cancelled when the lock is lost, released or dropped.
    pub fn cancellation(&self) -> CancellationToken {
        self.scope.cancellation()
    }

    /// The view of the lock for the work under it.
    pub fn scope(&self) -> Scope {
        self.scope.clone()
    }

    /// What to present to a store that checks its callers.
    pub fn sequencer(&self) -> Sequencer {
        self.scope.sequencer().clone()
    }

    /// Restarts the lease from now. The remaining time is replaced, never added to.
    ///
    /// # Errors
    ///
    /// `Lost` is final. After any other error we still hold the lock for
    /// [`validity`](Self::validity), and the call may be repeated.
    pub async fn extend(&mut self) -> Result<(), LockError> {
        if self.scope.is_lost() {
            return Err(LockError::lost());
        }
        let Some(hold) = &mut self.hold.hold else {
            return Err(LockError::lost());
        };
        match hold.extend().await {
            Ok(deadline) if self.move_deadline(deadline) => Ok(()),
            Ok(_) => Err(LockError::lost()),
            Err(error) => {
                if matches!(error, LockError::Lost { .. }) {
                    self.scope.lost.cancel();
                }
                Err(error)
            }
        }
    }

    /// A lock that was reported as lost must not come back, so a late extension is ignored.
    fn move_deadline(&self, to: Instant) -> bool {
        let lost = &self.scope.lost;
        self.deadline.send_if_modified(|deadline| {
            let in_time = !lost.is_cancelled() && Instant::now() < *deadline;
            if in_time {
                *deadline = to;
            }
            in_time
        })
    }

    /// Keeps extending the lease while `body` runs, and drops `body` at its current await when the
    /// lock is lost.
    ///
    /// # Errors
    ///
    /// `Lost`, also if the lock was lost just before `body` returned.
    pub async fn run<T, F>(&mut self, body: impl FnOnce(Scope) -> F) -> Result<T, LockError>
    where
        F: Future<Output = T>,
    {
        let scope = self.scope();
        let body = pin!(body(self.scope()));
        let done = tokio::select! {
            biased;
            error = self.extend_until_lost() => return Err(error),
            done = body => done,
        };
        if scope.is_lost() {
            Err(LockError::lost())
        } else {
            Ok(done)
        }
    }

    /// Extends the lease until the lock is lost.
    pub(crate) async fn extend_until_lost(&mut self) -> LockError {
        let scope = self.scope();
        let mut pause = self.lease / EXTEND_AFTER_FRACTION;
        loop {
            tokio::select! {
                () = scope.lost() => return LockError::lost(),
                () = sleep(pause) => {}
            }
            let extended = tokio::select! {
                () = scope.lost() => return LockError::lost(),
                extended = self.extend() => extended,
            };
            pause = match extended {
                Ok(()) => self.lease / EXTEND_AFTER_FRACTION,
                Err(lost @ LockError::Lost { .. }) => return lost,
                Err(error) => {
                    tracing::warn!(%error, "lease extension failed, retrying until the lease ends");
                    self.lease / EXTEND_RETRY_FRACTION
                }
            };
        }
    }

    /// Releases the lock and reports whether we held it until then.
    ///
    /// # Errors
    ///
    /// `Lost` if we did not. Any other error if too few servers answered: we held the lock, and the
    /// release is retried in the background until the lease ends there. A caller that drops the
    /// future leaves nothing behind.
    pub async fn release(self) -> Result<(), LockError> {
        let in_time = !self.is_lost();
        let Self {
            mut hold,
            _end: end,
            ..
        } = self;
        drop(end);
        let Some(hold) = hold.hold.take() else {
            return Err(LockError::lost());
        };
        match hold.release().await {
            Ok(()) if !in_time => Err(LockError::lost()),
            Err(error) if !in_time => Err(LockError::Lost {
                votes: error.votes().to_vec(),
            }),
            result => result,
        }
    }
}

impl Drop for HeldLock {
    /// A holder that drops a valid guard is done with the lock. A holder whose lease ended may
    /// still have requests in flight, so the lock-delay applies.
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold
            && *self.deadline.borrow() <= Instant::now()
        {
            hold.lapse();
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("sequencer", &self.sequencer().to_string())
            .field("validity", &self.validity())
            .finish()
    }
}

/// Cancels the scope at its deadline. Ends when the guard is released or dropped.
async fn cancel_at_deadline(scope: Scope) {
    loop {
        let deadline = *scope.deadline.borrow();
        if deadline <= Instant::now() {
            return scope.lost.cancel();
        }
        tokio::select! {
            () = sleep_until(deadline.into()) => {}
            () = scope.lost.cancelled() => return,
        }
    }
}
