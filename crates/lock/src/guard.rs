//! A lock that is held, and what its holder is told about losing it.
//!
//! What a reader could get wrong: the deadline is local. It is counted from before the first request was sent, so it is over before the
//! lease is over at any quorum of nodes, and it needs no network to pass. Only an extension that a quorum granted moves it.

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

use crate::{FencingToken, Grant, Hold, LockError, Mode};

/// An extension is asked for when so much of the lease is over, and again soon after one that failed.
const RENEW_AFTER: u32 = 3;
const RENEW_AGAIN_AFTER: u32 = 30;

/// A lock that is held. Dropping it gives it back in the background.
#[must_use = "a lock is given back when its guard is dropped"]
pub struct Guard {
    hold: Holding,
    lease: Duration,
    deadline: watch::Sender<Instant>,
    scope: Scope,
    _end: End,
}

/// What the work under a lock gets to know. It can be cloned and sent anywhere; it does not hold the lock.
#[derive(Debug, Clone)]
pub struct Scope {
    sequencer: Arc<Sequencer>,
    deadline: watch::Receiver<Instant>,
    lost: CancellationToken,
}

/// What the backend does with the lock, until it is released.
struct Holding {
    hold: Option<Box<dyn Hold>>,
    deadline: watch::Receiver<Instant>,
}

/// Cancels the token of a guard that is released or dropped.
struct End(CancellationToken);

/// What a holder shows to a store that checks it: which lock, how it is held, and under which token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    /// Of the lock.
    pub name: String,
    /// Alone, or with others.
    pub mode: Mode,
    /// Of the holder.
    pub token: FencingToken,
}

impl fmt::Display for Sequencer {
    /// `TOKEN:NAME`, because a name may contain anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.token, self.name)
    }
}

impl Scope {
    /// Pass it to every store that is written to under the lock.
    pub fn token(&self) -> FencingToken {
        self.sequencer.token
    }

    /// What to show to a store that checks its callers.
    pub fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    /// How much longer the lock is certainly ours; zero once it is lost.
    pub fn validity(&self) -> Duration {
        if self.lost.is_cancelled() {
            return Duration::ZERO;
        }
        let validity = self
            .deadline
            .borrow()
            .saturating_duration_since(Instant::now());
        if validity.is_zero() {
            // Whoever finds it lost tells everybody, and nobody hears of it later than of its consequences.
            self.lost.cancel();
        }
        validity
    }

    /// Whether the lock is not certainly ours any more.
    pub fn is_lost(&self) -> bool {
        self.validity().is_zero()
    }

    /// Returns when the lock is lost: at the local deadline at the latest, whatever the network does, and at once if that was earlier.
    pub async fn lost(&self) {
        if !self.is_lost() {
            self.lost.cancelled().await;
        }
    }

    /// Is cancelled when the lock is lost, released or dropped.
    pub fn cancellation(&self) -> CancellationToken {
        self.lost.clone()
    }
}

impl Guard {
    /// For a backend that has acquired a lock.
    pub fn new(grant: Grant) -> Self {
        let Grant {
            sequencer,
            deadline,
            lease,
            lost,
            hold,
        } = grant;
        let (sender, receiver) = watch::channel(deadline);
        let hold = Holding {
            hold: Some(hold),
            deadline: receiver.clone(),
        };
        let scope = Scope {
            sequencer: Arc::new(sequencer),
            deadline: receiver,
            lost: lost.clone(),
        };
        tokio::spawn(fire_at_the_deadline(scope.clone()));
        Self {
            hold,
            lease,
            deadline: sender,
            scope,
            _end: End(lost),
        }
    }

    /// Pass it to every store that is written to under the lock.
    pub fn token(&self) -> FencingToken {
        self.scope.token()
    }

    /// How much longer the lock is certainly ours; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.scope.validity()
    }

    /// Whether the lock is not certainly ours any more.
    pub fn is_lost(&self) -> bool {
        self.scope.is_lost()
    }

    /// Returns when the lock is lost: at the local deadline at the latest, whatever the network does, and at once if that was earlier.
    pub async fn lost(&self) {
        self.scope.lost().await;
    }

    /// Is cancelled when the lock is lost, released or dropped.
    pub fn cancellation(&self) -> CancellationToken {
        self.scope.cancellation()
    }

    /// What the work under the lock gets to know.
    pub fn scope(&self) -> Scope {
        self.scope.clone()
    }

    /// What to show to a store that checks its callers.
    pub fn sequencer(&self) -> Sequencer {
        self.scope.sequencer().clone()
    }

    /// Sets the lease anew, from now; it never adds.
    ///
    /// # Errors
    ///
    /// `Lost` is final. After anything else the lock is still ours for [`validity`](Self::validity), and this may be tried again.
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

    /// Nobody may be told that a lock is lost and see it come back.
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

    /// Keeps extending the lease while `body` runs, and drops `body` where it stands when the lock is lost.
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
            error = self.keep() => return Err(error),
            done = body => done,
        };
        if scope.is_lost() {
            Err(LockError::lost())
        } else {
            Ok(done)
        }
    }

    /// Extends the lease for as long as that succeeds.
    pub(crate) async fn keep(&mut self) -> LockError {
        let scope = self.scope();
        let mut pause = self.lease / RENEW_AFTER;
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
                Ok(()) => self.lease / RENEW_AFTER,
                Err(lost @ LockError::Lost { .. }) => return lost,
                Err(error) => {
                    tracing::warn!(%error, "a lease was not extended; trying again until it ends");
                    self.lease / RENEW_AGAIN_AFTER
                }
            };
        }
    }

    /// Gives the lock back, and says whether it was ours until then.
    ///
    /// # Errors
    ///
    /// `Lost` if it was not. Anything else if too few servers answered: it was ours, and they are told again until the lease ends there.
    /// A caller that does not wait for the answer leaves nothing behind.
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

impl Drop for Holding {
    /// Who is told to release has done with the lock. Who loses it may have requests on their way.
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold
            && *self.deadline.borrow() <= Instant::now()
        {
            hold.lapse();
        }
    }
}

impl Drop for End {
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

/// Ends with the guard, or at its deadline.
async fn fire_at_the_deadline(scope: Scope) {
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
