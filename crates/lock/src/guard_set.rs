//! Several locks that are held as one.

use std::{collections::BTreeSet, future::pending, pin::pin, time::Duration};

use futures::future::{join_all, select_all};

use crate::{
    error::{InvalidArgument, LockError},
    guard::{Guard, Scope},
    sequencer::Sequencer,
};

/// Several locks, all of them held. The set is lost as soon as one of them is lost.
#[must_use = "dropping the set releases its locks"]
#[derive(Debug)]
pub struct GuardSet {
    guards: Vec<Guard>,
}

/// The order in which several locks are acquired: sorted, each name once.
pub(crate) fn in_order<'n>(names: &[&'n str]) -> Result<BTreeSet<&'n str>, InvalidArgument> {
    let names: BTreeSet<_> = names.iter().copied().collect();
    if names.is_empty() {
        return Err(InvalidArgument::NoNames);
    }
    Ok(names)
}

impl GuardSet {
    pub(crate) fn with_capacity(locks: usize) -> Self {
        Self {
            guards: Vec::with_capacity(locks),
        }
    }

    pub(crate) fn push(&mut self, guard: Guard) {
        self.guards.push(guard);
    }

    /// Each lock with its token, by name.
    pub fn sequencers(&self) -> Vec<Sequencer> {
        self.guards.iter().map(Guard::sequencer).collect()
    }

    /// The views of the locks for the work under them, by name.
    pub fn scopes(&self) -> Vec<Scope> {
        self.guards.iter().map(Guard::scope).collect()
    }

    /// How much longer we certainly hold all of them; zero once one is lost.
    pub fn validity(&self) -> Duration {
        self.guards
            .iter()
            .map(Guard::validity)
            .min()
            .unwrap_or_default()
    }

    /// Whether we do not certainly hold all of them any more.
    pub fn is_lost(&self) -> bool {
        self.validity().is_zero()
    }

    /// Returns when the first of them is lost.
    pub async fn lost(&self) {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// Restarts every lease from now.
    ///
    /// # Errors
    ///
    /// The first error of [`Guard::extend`].
    pub async fn extend(&mut self) -> Result<(), LockError> {
        join_all(self.guards.iter_mut().map(Guard::extend))
            .await
            .into_iter()
            .collect()
    }

    /// Keeps extending all leases while `body` runs, and drops `body` at its current await when
    /// one of the locks is lost.
    ///
    /// # Errors
    ///
    /// `Lost`, also if a lock was lost just before `body` returned.
    pub async fn run<T, F>(&mut self, body: impl FnOnce(Vec<Scope>) -> F) -> Result<T, LockError>
    where
        F: Future<Output = T>,
    {
        let body = pin!(body(self.scopes()));
        let done = tokio::select! {
            biased;
            error = self.extend_until_lost() => return Err(error),
            done = body => done,
        };
        if self.is_lost() {
            Err(LockError::lost())
        } else {
            Ok(done)
        }
    }

    /// Extends the leases until an extension fails. An empty set never fails.
    pub(crate) async fn extend_until_lost(&mut self) -> LockError {
        if self.guards.is_empty() {
            return pending().await;
        }
        let guards = self.guards.iter_mut();
        let (error, ..) = select_all(guards.map(|guard| Box::pin(guard.extend_until_lost()))).await;
        error
    }

    /// Releases all of them and reports whether we held each until then.
    ///
    /// # Errors
    ///
    /// The first error of [`Guard::release`]. The other locks are released all the same.
    pub async fn release(self) -> Result<(), LockError> {
        join_all(self.guards.into_iter().map(Guard::release))
            .await
            .into_iter()
            .collect()
    }
}
