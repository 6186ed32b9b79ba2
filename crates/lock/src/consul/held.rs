//! Extends and releases a held lock, and notices its loss.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{ConsulLock, agent::KeyState, session::Session};
use crate::{
    error::{Answer, LockError},
    hold::Hold,
};

pub(crate) struct Held {
    lock: ConsulLock,
    key: Arc<str>,
    /// Its drop releases the lock.
    session: Session,
    /// Lock index of our acquisition.
    lock_index: u64,
}

impl ConsulLock {
    fn refusal(&self, answer: Answer) -> LockError {
        match answer {
            Answer::Gone => LockError::Lost {
                votes: self.votes(answer),
            },
            answer => LockError::NoQuorum {
                causes: self.votes(answer),
            },
        }
    }
}

impl Held {
    /// The background task cancels the returned token when the key is lost. It ends when the token
    /// is cancelled for any other reason.
    pub(crate) fn new(
        lock: ConsulLock,
        key: Arc<str>,
        session: Session,
        acquired: KeyState,
    ) -> (Self, CancellationToken) {
        let lost = CancellationToken::new();
        let held = Self {
            lock,
            key,
            session,
            lock_index: acquired.lock_index,
        };
        let (lock, key, cancelled) = (held.lock.clone(), Arc::clone(&held.key), lost.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = cancelled.cancelled() => {}
                () = lost_key(&lock, &key, acquired) => cancelled.cancel(),
            }
        });
        (held, lost)
    }

    fn is_ours(&self, state: &KeyState) -> bool {
        state.lock_index == self.lock_index && state.session.as_deref() == Some(self.session.id())
    }
}

/// Returns when another session holds the key, or none.
async fn lost_key(lock: &ConsulLock, key: &str, ours: KeyState) {
    let mut index = ours.index;
    loop {
        match lock
            .agent
            .changed(key, index, lock.settings.query_wait)
            .await
        {
            Ok(now) if now.session != ours.session || now.lock_index != ours.lock_index => return,
            Ok(now) => index = now.index,
            Err(_) => sleep(lock.settings.timing.failed_retry()).await,
        }
    }
}

#[async_trait]
impl Hold for Held {
    /// The key may have been taken from a session that still exists, so both are checked.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        self.session
            .renew()
            .await
            .map_err(|answer| self.lock.refusal(answer))?;
        let state = self
            .lock
            .agent
            .read(&self.key)
            .await
            .map_err(|answer| self.lock.refusal(answer))?;
        if !self.is_ours(&state) {
            return Err(self.lock.refusal(Answer::Gone));
        }
        let late = || LockError::TooLate {
            elapsed: self.session.renewed_at.elapsed(),
            votes: self.lock.votes(Answer::Accepted),
        };
        self.lock
            .settings
            .timing
            .lease
            .deadline(self.session.renewed_at)
            .ok_or_else(late)
    }

    fn lapse(&mut self) {
        if !self.lock.settings.timing.lock_delay.is_zero() {
            self.session.keep_lock_delay();
        }
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let Self { lock, session, .. } = *self;
        match session.release().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(lock.refusal(Answer::Gone)),
            Err(answer) => Err(lock.refusal(answer)),
        }
    }
}
