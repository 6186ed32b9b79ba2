//! Several locks that are held as one.

use std::{
    collections::BTreeSet,
    future::pending,
    pin::pin,
    time::{Duration, Instant},
};

use futures::future::{join_all, select_all};

use crate::{Guard, InvalidArgument, Lock, LockError, Patience, Request, Scope, Sequencer};

/// Several locks, all of them held. Lost is the first that is lost.
#[must_use = "locks are given back when their guards are dropped"]
#[derive(Debug)]
pub struct GuardSet {
    guards: Vec<Guard>,
}

impl GuardSet {
    /// In the order of the names. What is held already is extended while the next is waited for, and given back if it cannot be had.
    pub(crate) async fn acquire(
        lock: &(impl Lock + ?Sized),
        names: &[&str],
        patience: Patience,
    ) -> Result<Self, LockError> {
        let names: BTreeSet<_> = names.iter().copied().collect();
        if names.is_empty() {
            return Err(InvalidArgument::NoNames.into());
        }
        let started = Instant::now();
        let mut set = Self {
            guards: Vec::with_capacity(names.len()),
        };
        for name in names {
            let request = Request::new(name).patience(rest(patience, started));
            let guard = tokio::select! {
                guard = lock.request(request) => guard?,
                error = set.keep() => return Err(error),
            };
            set.guards.push(guard);
        }
        Ok(set)
    }

    /// Each lock with its token, by name.
    pub fn sequencers(&self) -> Vec<Sequencer> {
        self.guards.iter().map(Guard::sequencer).collect()
    }

    /// What the work under the locks gets to know, by name.
    pub fn scopes(&self) -> Vec<Scope> {
        self.guards.iter().map(Guard::scope).collect()
    }

    /// How much longer all of them are certainly ours; zero once one is lost.
    pub fn validity(&self) -> Duration {
        self.guards
            .iter()
            .map(Guard::validity)
            .min()
            .unwrap_or_default()
    }

    /// Whether one of them is not certainly ours any more.
    pub fn is_lost(&self) -> bool {
        self.validity().is_zero()
    }

    /// Returns when the first of them is lost.
    pub async fn lost(&self) {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// Sets every lease anew, from now.
    ///
    /// # Errors
    ///
    /// The first that there is; see [`Guard::extend`].
    pub async fn extend(&mut self) -> Result<(), LockError> {
        join_all(self.guards.iter_mut().map(Guard::extend))
            .await
            .into_iter()
            .collect()
    }

    /// Keeps extending all leases while `body` runs, and drops `body` where it stands when one of the locks is lost.
    ///
    /// # Errors
    ///
    /// `Lost`, also if one was lost just before `body` returned.
    pub async fn run<T, F>(&mut self, body: impl FnOnce(Vec<Scope>) -> F) -> Result<T, LockError>
    where
        F: Future<Output = T>,
    {
        let body = pin!(body(self.scopes()));
        let done = tokio::select! {
            biased;
            error = self.keep() => return Err(error),
            done = body => done,
        };
        if self.is_lost() {
            Err(LockError::lost())
        } else {
            Ok(done)
        }
    }

    /// Extends the leases for as long as that succeeds; of no locks, for ever.
    async fn keep(&mut self) -> LockError {
        if self.guards.is_empty() {
            return pending().await;
        }
        let (error, ..) =
            select_all(self.guards.iter_mut().map(|guard| Box::pin(guard.keep()))).await;
        error
    }

    /// Gives all of them back, and says whether all were ours until then.
    ///
    /// # Errors
    ///
    /// The first that there is; see [`Guard::release`]. The others are given back all the same.
    pub async fn release(self) -> Result<(), LockError> {
        join_all(self.guards.into_iter().map(Guard::release))
            .await
            .into_iter()
            .collect()
    }
}

/// What is left of a patience.
fn rest(patience: Patience, since: Instant) -> Patience {
    match patience {
        Patience::For(patience) => Patience::For(patience.saturating_sub(since.elapsed())),
        other => other,
    }
}
