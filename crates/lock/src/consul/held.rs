//! What a Consul lock does with a lock that it holds.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{ConsulLock, agent::Seen, claim::Claim};
use crate::{Hold, LockError, error::Answer};

pub(crate) struct Held {
    lock: ConsulLock,
    key: Arc<str>,
    /// Gives itself back when it is dropped.
    claim: Claim,
    /// The index of our acquisition.
    lock_index: u64,
}

impl ConsulLock {
    fn refusal(&self, answer: Answer) -> LockError {
        match answer {
            Answer::Gone => LockError::Lost {
                votes: self.agent.votes(answer),
            },
            answer => LockError::NoQuorum {
                causes: self.agent.votes(answer),
            },
        }
    }
}

impl Held {
    /// The token of the task is cancelled when the key is not ours any more, and ends the task when somebody else cancels it.
    pub(crate) fn new(
        lock: ConsulLock,
        key: Arc<str>,
        claim: Claim,
        seen: Seen,
    ) -> (Self, CancellationToken) {
        let lost = CancellationToken::new();
        let held = Self {
            lock,
            key,
            claim,
            lock_index: seen.lock_index,
        };
        let (lock, key, told) = (held.lock.clone(), Arc::clone(&held.key), lost.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = told.cancelled() => {}
                () = is_gone(&lock, &key, seen) => told.cancel(),
            }
        });
        (held, lost)
    }

    fn is_ours(&self, seen: &Seen) -> bool {
        seen.lock_index == self.lock_index && seen.session.as_deref() == Some(self.claim.session())
    }
}

/// Returns when the key is not as it was any more.
async fn is_gone(lock: &ConsulLock, key: &str, ours: Seen) {
    let mut index = ours.index;
    loop {
        match lock.agent.changed(key, index, lock.settings.wait).await {
            Ok(now) if now.session != ours.session || now.lock_index != ours.lock_index => return,
            Ok(now) => index = now.index,
            Err(_) => sleep(lock.settings.retry).await,
        }
    }
}

#[async_trait]
impl Hold for Held {
    /// Somebody may have taken the key and left the session, so both are asked for.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        self.claim
            .renew()
            .await
            .map_err(|answer| self.lock.refusal(answer))?;
        let seen = self
            .lock
            .agent
            .read(&self.key)
            .await
            .map_err(|answer| self.lock.refusal(answer))?;
        if !self.is_ours(&seen) {
            return Err(self.lock.refusal(Answer::Gone));
        }
        let late = || LockError::TooLate {
            elapsed: self.claim.renewed.elapsed(),
            votes: self.lock.agent.votes(Answer::Accepted),
        };
        self.lock
            .settings
            .lease
            .deadline(self.claim.renewed)
            .ok_or_else(late)
    }

    fn lapse(&mut self) {
        if !self.lock.settings.lock_delay.is_zero() {
            self.claim.leave();
        }
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let Self { lock, claim, .. } = *self;
        match claim.release().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(lock.refusal(Answer::Gone)),
            Err(answer) => Err(lock.refusal(answer)),
        }
    }
}
