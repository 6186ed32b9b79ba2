//! Somebody who wants a lock of one server.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::{RedisLock, entry::Entry};
use crate::{
    FencingToken, Grant, Guard, LockError, Mode, Sequencer,
    error::{Answer, Vote},
    patience::{Ask, jittered},
    redis_server::{Keys, Listener},
};

/// How soon a second attempt follows the first: what was said before we listened is not heard.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Contender {
    lock: RedisLock,
    keys: Keys,
    /// Since the first time that somebody else had the lock.
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
        let votes = vec![Vote {
            node: self.lock.inner.server.label.clone(),
            answer,
        }];
        match &votes[0].answer {
            Answer::Held { .. } => LockError::Held { votes },
            answer if answer.is_failure() => LockError::NoQuorum { causes: votes },
            _ => LockError::NoTokenLeft { votes },
        }
    }
}

impl Ask for Contender {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        if let Some(listener) = &mut self.listener {
            listener.forget();
        }
        let lease = self.lock.inner.settings.lease;
        let floor = FencingToken::new(self.lock.inner.floor.load(Ordering::Relaxed));
        let mut entry = Entry::new(self.lock.clone(), self.keys.clone());
        let started = Instant::now();
        let token = entry
            .acquire(floor)
            .await
            .map_err(|answer| self.refusal(answer))?;
        let Some(deadline) = lease.deadline(started) else {
            let votes = vec![Vote {
                node: self.lock.inner.server.label.clone(),
                answer: Answer::Accepted,
            }];
            return Err(LockError::TooLate {
                elapsed: started.elapsed(),
                votes,
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
            hold: Box::new(entry),
        }))
    }

    async fn pause(&mut self, refusal: &LockError) {
        let retry = self.lock.inner.settings.retry;
        let LockError::Held { votes } = refusal else {
            return sleep(jittered(retry)).await;
        };
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
                sleep(jittered(FIRST_PAUSE)).await;
            }
            Some(listener) => {
                let _ = timeout(jittered(remaining.min(retry)), listener.woken(1)).await;
            }
        }
    }
}
