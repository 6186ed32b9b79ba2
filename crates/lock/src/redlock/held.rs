//! What a redlock does with a lock that it holds.

use std::time::Instant;

use async_trait::async_trait;

use super::{
    Redlock,
    claim::{Claim, Question},
};
use crate::{FencingToken, Hold, LockError};

pub(crate) struct Held {
    redlock: Redlock,
    /// Sweeps itself when it is dropped.
    claim: Claim,
    token: FencingToken,
}

impl Held {
    pub(crate) fn new(redlock: Redlock, claim: Claim, token: FencingToken) -> Self {
        Self {
            redlock,
            claim,
            token,
        }
    }
}

#[async_trait]
impl Hold for Held {
    /// A node that has lost the lock gets it back, unless there was a later owner.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let started = Instant::now();
        let ballot = self.redlock.ballot(&self.claim, self.token);
        let answers = self.claim.ask(Question::Extend, ballot).await;
        let (nodes, votes) = (self.redlock.nodes(), self.redlock.nodes().votes(&answers));
        if nodes.agreed(&answers) {
            let deadline = self.redlock.settings().timing.lease.deadline(started);
            return deadline.ok_or(LockError::TooLate {
                elapsed: started.elapsed(),
                votes,
            });
        }
        if nodes.blocked_by(&answers, |answer| answer.is_refusal()) {
            return Err(LockError::Lost { votes });
        }
        Err(LockError::NoQuorum { causes: votes })
    }

    fn lapse(&mut self) {
        if !self.redlock.settings().timing.lock_delay.is_zero() {
            self.claim.leave();
        }
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let nodes = self.redlock.nodes().clone();
        let answers = self.claim.release().await;
        let votes = nodes.votes(&answers);
        if nodes.agreed(&answers) {
            return Ok(());
        }
        if nodes.blocked_by(&answers, |answer| answer.is_refusal()) {
            return Err(LockError::Lost { votes });
        }
        Err(LockError::NoQuorum { causes: votes })
    }
}
