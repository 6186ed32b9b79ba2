//! Acquires a lock on one server and waits while it is held.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::{RedisLock, acquisition::Acquisition};
use crate::{
    error::{Answer, LockError},
    guard::Guard,
    hold::Grant,
    redis_server::{Keys, Listener},
    request::Mode,
    retry::{Acquire, jittered},
    sequencer::Sequencer,
    token::FencingToken,
};

/// Pause before the second attempt. A release before the subscription took effect is not notified.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Contender {
    lock: RedisLock,
    keys: Keys,
    /// Subscribed once the first attempt has found the lock held.
    listener: Option<Listener>,
}

impl Contender {
    pub(crate) fn new(lock: RedisLock, keys: Keys) -> Self {
        Self {
            lock,
            keys,
            listener: None,
        }
    }

    fn refusal(&self, answer: Answer) -> LockError {
        let votes = self.lock.votes(answer);
        match &votes[0].answer {
            Answer::Held { .. } => LockError::Held { votes },
            answer if answer.is_failure() => LockError::NoQuorum { causes: votes },
            _ => LockError::NoTokenLeft { votes },
        }
    }
}

impl Acquire for Contender {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        if let Some(listener) = &mut self.listener {
            listener.forget();
        }
        let lease = self.lock.inner.timing.lease;
        let floor = FencingToken::new(self.lock.inner.floor.load(Ordering::Relaxed));
        let mut acquisition = Acquisition::new(self.lock.clone(), self.keys.clone());
        let started = Instant::now();
        let token = acquisition
            .acquire(floor)
            .await
            .map_err(|answer| self.refusal(answer))?;
        let Some(deadline) = lease.deadline(started) else {
            return Err(LockError::TooLate {
                elapsed: started.elapsed(),
                votes: self.lock.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.keys.lock().to_owned(),
            mode: Mode::Exclusive,
            token,
        };
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost: Default::default(),
            hold: Box::new(acquisition),
        }))
    }

    async fn wait_for_retry(&mut self, refusal: &LockError) {
        let timing = &self.lock.inner.timing;
        let LockError::Held { votes } = refusal else {
            return sleep(jittered(timing.failed_retry())).await;
        };
        let retry = timing.retry;
        let remaining = match votes[0].answer {
            Answer::Held {
                remaining: Some(remaining),
                ..
            } => remaining,
            _ => retry,
        };
        match &mut self.listener {
            None => {
                self.listener = Some(self.lock.inner.wakeups.listen(self.keys.released()));
                sleep(jittered(FIRST_RETRY_PAUSE)).await;
            }
            Some(listener) => {
                let _ = timeout(jittered(remaining.min(retry)), listener.woken(1)).await;
            }
        }
    }
}
