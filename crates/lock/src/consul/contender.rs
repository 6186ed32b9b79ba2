//! Acquires a free key and reads its token back.
//!
//! A successful acquire does not return the index. It is read afterwards from a quorum, together
//! with the session that holds the key: a holder whose session lapsed in between finds another
//! session there and never takes the index of its successor.

use std::sync::Arc;

use tokio::time::sleep;

use super::{ConsulLock, agent::KeyState, held::Held, session::Session};
use crate::{
    error::{Answer, LockError},
    guard::Guard,
    hold::Grant,
    request::Mode,
    retry::{Acquire, jittered},
    sequencer::Sequencer,
    token::FencingToken,
};

/// A session is renewed before an acquire if this fraction (a third) of its TTL has passed.
const RENEW_FRACTION: u32 = 3;

pub(crate) struct Contender {
    lock: ConsulLock,
    name: String,
    key: Arc<str>,
    session: Option<Session>,
    /// Last known state of the key, if another session held it.
    holder: Option<KeyState>,
}

/// Result of an attempt whose requests all succeeded.
enum Outcome {
    Acquired(KeyState),
    Held(KeyState),
}

impl Contender {
    pub(crate) fn new(lock: ConsulLock, name: String, key: Arc<str>) -> Self {
        Self {
            lock,
            name,
            key,
            session: None,
            holder: None,
        }
    }

    async fn attempt(&mut self) -> Result<Outcome, Answer> {
        let agent = Arc::clone(&self.lock.agent);
        let state = agent.read(&self.key).await?;
        // Our own session may hold the key, by an acquire whose answer was lost.
        if state.session.is_some()
            && state.session.as_deref() != self.session.as_ref().map(Session::id)
        {
            return Ok(Outcome::Held(state));
        }
        let session = self.live_session().await?;
        let acquired = session.acquire().await?;
        let id = session.id().to_owned();
        let state = agent.read(&self.key).await?;
        match acquired {
            true if state.session == Some(id) => Ok(Outcome::Acquired(state)),
            true => Err(Answer::Gone),
            false => Ok(Outcome::Held(state)),
        }
    }

    /// A session with enough of its TTL left.
    async fn live_session(&mut self) -> Result<&mut Session, Answer> {
        let settings = &self.lock.settings;
        if let Some(session) = &mut self.session
            && session.renewed_at.elapsed() > settings.timing.lease.length / RENEW_FRACTION
        {
            match session.renew().await {
                Err(Answer::Gone) => self.session = None,
                renewed => renewed?,
            }
        }
        if self.session.is_none() {
            let (agent, key) = (Arc::clone(&self.lock.agent), Arc::clone(&self.key));
            self.session = Some(
                Session::open(
                    agent,
                    key,
                    settings.timing.lease.length,
                    settings.timing.lock_delay,
                )
                .await?,
            );
        }
        self.session.as_mut().ok_or(Answer::Gone)
    }

    fn admit(&mut self, state: KeyState) -> Result<Guard, LockError> {
        let lock = &self.lock;
        let no_token = || LockError::NoTokenLeft {
            votes: lock.votes(Answer::Accepted),
        };
        let token = token(&state).ok_or_else(no_token)?;
        let session = self.session.take().ok_or_else(no_token)?;
        let lease = self.lock.settings.timing.lease;
        let Some(deadline) = lease.deadline(session.renewed_at) else {
            return Err(LockError::TooLate {
                elapsed: session.renewed_at.elapsed(),
                votes: lock.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token,
        };
        let (hold, lost) = Held::new(self.lock.clone(), Arc::clone(&self.key), session, state);
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost,
            hold: Box::new(hold),
        }))
    }
}

fn token(state: &KeyState) -> Option<FencingToken> {
    FencingToken::new(i64::try_from(state.lock_index).ok()?)
}

impl Acquire for Contender {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        self.holder = None;
        let answer = match self.attempt().await {
            Ok(Outcome::Acquired(state)) => return self.admit(state),
            Ok(Outcome::Held(state)) => {
                let fence = token(&state);
                self.holder = Some(state).filter(|state| state.session.is_some());
                Answer::Held {
                    remaining: None,
                    fence,
                }
            }
            Err(Answer::Gone) => {
                self.session = None;
                Answer::Gone
            }
            Err(answer) => {
                return Err(LockError::NoQuorum {
                    causes: self.lock.votes(answer),
                });
            }
        };
        Err(LockError::Held {
            votes: self.lock.votes(answer),
        })
    }

    /// Waits until the key has no holder. Consul does not report the end of a lock-delay, so the
    /// attempt is then repeated at intervals.
    async fn wait_for_retry(&mut self, _: &LockError) {
        let settings = &self.lock.settings;
        let Some(state) = &mut self.holder else {
            return sleep(jittered(settings.timing.failed_retry())).await;
        };
        while state.session.is_some() {
            match self
                .lock
                .agent
                .changed(&self.key, state.index, settings.query_wait)
                .await
            {
                Ok(now) => *state = now,
                Err(_) => return sleep(jittered(settings.timing.failed_retry())).await,
            }
        }
    }
}
