//! A lock that is held, and what its holder is told about losing it.
//!
//! What a reader could get wrong: the deadline is local. It is counted from before the first request was sent, so it is over before the
//! lease is over at any quorum of nodes, and it needs no network to pass. Only an extension that a quorum granted moves it.

use std::{
    fmt,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    FencingToken, LockError,
    claim::{Claim, Question},
    redlock::Redlock,
};

/// A lock that is held. Dropping it gives it back in the background.
#[must_use = "a lock is given back when its guard is dropped"]
pub struct Guard {
    redlock: Redlock,
    claim: Option<Claim>,
    deadline: watch::Sender<Instant>,
    scope: Scope,
}

/// What the work under a lock gets to know. It can be cloned and sent anywhere; it does not hold the lock.
#[derive(Debug, Clone)]
pub struct Scope {
    token: FencingToken,
    deadline: watch::Receiver<Instant>,
    lost: CancellationToken,
}

/// What a holder shows to a store that checks it: which lock, and under which token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    /// Of the lock.
    pub name: String,
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
        self.token
    }

    /// How much longer the lock is certainly ours; zero once it is lost.
    pub fn validity(&self) -> Duration {
        if self.lost.is_cancelled() {
            return Duration::ZERO;
        }
        self.deadline.borrow().saturating_duration_since(Instant::now())
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
    pub(crate) fn new(redlock: Redlock, claim: Claim, token: FencingToken, deadline: Instant) -> Self {
        let (sender, receiver) = watch::channel(deadline);
        let scope = Scope { token, deadline: receiver, lost: CancellationToken::new() };
        tokio::spawn(fire_at_the_deadline(scope.clone()));
        Self { redlock, claim: Some(claim), deadline: sender, scope }
    }

    /// Pass it to every store that is written to under the lock.
    pub fn token(&self) -> FencingToken {
        self.scope.token
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
        let name = self.claim.as_ref().map_or_else(String::new, |claim| claim.name().lock().to_owned());
        Sequencer { name, token: self.token() }
    }

    /// Sets the lease anew, from now; it never adds. A node that has lost the lock gets it back unless somebody came after us.
    ///
    /// # Errors
    ///
    /// `Lost` is final. After `NoQuorum` or `TooLate` the lock is still ours for [`validity`](Self::validity), and this may be tried again.
    pub async fn extend(&mut self) -> Result<(), LockError> {
        let Some(claim) = self.claim.as_mut().filter(|_| !self.scope.is_lost()) else {
            return Err(LockError::Lost { votes: Vec::new() });
        };
        let started = Instant::now();
        let ballot = self.redlock.ballot(claim, self.scope.token);
        let answers = claim.ask(Question::Extend, ballot).await;
        let (nodes, votes) = (self.redlock.nodes(), self.redlock.nodes().votes(&answers));
        if nodes.agreed(&answers) {
            return match self.redlock.deadline(started) {
                None => Err(LockError::TooLate { elapsed: started.elapsed(), votes }),
                Some(deadline) if self.move_deadline(deadline) => Ok(()),
                Some(_) => Err(LockError::Lost { votes }),
            };
        }
        if nodes.blocked_by(&answers, |answer| answer.is_refusal()) {
            self.scope.lost.cancel();
            return Err(LockError::Lost { votes });
        }
        Err(LockError::NoQuorum { causes: votes })
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
        if scope.is_lost() { Err(LockError::Lost { votes: Vec::new() }) } else { Ok(done) }
    }

    /// Extends the lease for as long as that succeeds.
    async fn keep(&mut self) -> LockError {
        let scope = self.scope();
        let pauses = self.redlock.renewal();
        let mut pause = pauses.after_success;
        loop {
            tokio::select! {
                () = scope.lost() => return LockError::Lost { votes: Vec::new() },
                () = sleep(pause) => {}
            }
            let extended = tokio::select! {
                () = scope.lost() => return LockError::Lost { votes: Vec::new() },
                extended = self.extend() => extended,
            };
            pause = match extended {
                Ok(()) => pauses.after_success,
                Err(lost @ LockError::Lost { .. }) => return lost,
                Err(error) => {
                    tracing::warn!(%error, "a lease was not extended; trying again until it ends");
                    pauses.after_failure
                }
            };
        }
    }

    /// Gives the lock back on every node, and says whether it was ours until then.
    ///
    /// # Errors
    ///
    /// `Lost` if it was not. `NoQuorum` if too few nodes answered: it was ours, and the others are told again until the lease ends there.
    /// A caller that does not wait for the answer leaves nothing behind.
    pub async fn release(mut self) -> Result<(), LockError> {
        let in_time = !self.is_lost();
        self.scope.lost.cancel();
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let answers = claim.release().await;
        let (nodes, votes) = (self.redlock.nodes(), self.redlock.nodes().votes(&answers));
        match in_time {
            true if nodes.agreed(&answers) => Ok(()),
            true if !nodes.blocked_by(&answers, |answer| answer.is_refusal()) => Err(LockError::NoQuorum { causes: votes }),
            _ => Err(LockError::Lost { votes }),
        }
    }
}

impl Drop for Guard {
    /// The claim sweeps itself.
    fn drop(&mut self) {
        self.scope.lost.cancel();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("sequencer", &self.sequencer().to_string()).field("validity", &self.validity()).finish()
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
