//! Somebody who wants a lock: looks whether it is free, acquires it, and reads the token back.
//!
//! What a reader could get wrong: that the acquire succeeded does not say under which index. It is read afterwards, from a quorum and together with
//! the session that has the key, so a holder that lapsed in between sees that it has, instead of its successor's index.

use std::sync::Arc;

use tokio::time::sleep;

use super::{ConsulLock, agent::Seen, claim::Claim, held::Held};
use crate::{
    FencingToken, Grant, Guard, LockError, Mode, Sequencer,
    error::Answer,
    patience::{Ask, jittered},
};

/// A session is renewed before it acquires if so much of its TTL is over.
const RENEW_AFTER: u32 = 3;

pub(crate) struct Contender {
    lock: ConsulLock,
    name: String,
    key: Arc<str>,
    claim: Option<Claim>,
    /// The key, when it was seen last, if somebody else had it then.
    seen: Option<Seen>,
}

/// What an attempt has come to.
enum Outcome {
    Ours(Seen),
    Held(Seen),
}

impl Contender {
    pub(crate) fn new(lock: ConsulLock, name: String, key: Arc<str>) -> Self {
        Self {
            lock,
            name,
            key,
            claim: None,
            seen: None,
        }
    }

    async fn attempt(&mut self) -> Result<Outcome, Answer> {
        let agent = Arc::clone(&self.lock.agent);
        let seen = agent.read(&self.key).await?;
        // It may be ours: by an acquire whose answer was lost.
        if seen.session.is_some()
            && seen.session.as_deref() != self.claim.as_ref().map(Claim::session)
        {
            return Ok(Outcome::Held(seen));
        }
        let claim = self.claim().await?;
        let acquired = claim.acquire().await?;
        let session = claim.session().to_owned();
        let seen = agent.read(&self.key).await?;
        match acquired {
            true if seen.session == Some(session) => Ok(Outcome::Ours(seen)),
            true => Err(Answer::Gone),
            false => Ok(Outcome::Held(seen)),
        }
    }

    /// With enough left of its session.
    async fn claim(&mut self) -> Result<&mut Claim, Answer> {
        let settings = &self.lock.settings;
        if let Some(claim) = &mut self.claim
            && claim.renewed.elapsed() > settings.lease.length / RENEW_AFTER
        {
            match claim.renew().await {
                Err(Answer::Gone) => self.claim = None,
                renewed => renewed?,
            }
        }
        if self.claim.is_none() {
            let (agent, key) = (Arc::clone(&self.lock.agent), Arc::clone(&self.key));
            self.claim =
                Some(Claim::open(agent, key, settings.lease.length, settings.lock_delay).await?);
        }
        self.claim.as_mut().ok_or(Answer::Gone)
    }

    fn admit(&mut self, seen: Seen) -> Result<Guard, LockError> {
        let agent = &self.lock.agent;
        let no_token = || LockError::NoTokenLeft {
            votes: agent.votes(Answer::Accepted),
        };
        let token = token(&seen).ok_or_else(no_token)?;
        let claim = self.claim.take().ok_or_else(no_token)?;
        let lease = self.lock.settings.lease;
        let Some(deadline) = lease.deadline(claim.renewed) else {
            return Err(LockError::TooLate {
                elapsed: claim.renewed.elapsed(),
                votes: agent.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token,
        };
        let (hold, lost) = Held::new(self.lock.clone(), Arc::clone(&self.key), claim, seen);
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost,
            hold: Box::new(hold),
        }))
    }
}

fn token(seen: &Seen) -> Option<FencingToken> {
    FencingToken::new(i64::try_from(seen.lock_index).ok()?)
}

impl Ask for Contender {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        self.seen = None;
        let answer = match self.attempt().await {
            Ok(Outcome::Ours(seen)) => return self.admit(seen),
            Ok(Outcome::Held(seen)) => {
                let fence = token(&seen);
                self.seen = Some(seen).filter(|seen| seen.session.is_some());
                Answer::Held {
                    remaining: None,
                    fence,
                }
            }
            Err(Answer::Gone) => {
                self.claim = None;
                Answer::Gone
            }
            Err(answer) => {
                return Err(LockError::NoQuorum {
                    causes: self.lock.agent.votes(answer),
                });
            }
        };
        Err(LockError::Held {
            votes: self.lock.agent.votes(answer),
        })
    }

    /// Until nobody has it. A lock-delay has no end that Consul would tell of.
    async fn pause(&mut self, _: &LockError) {
        let settings = &self.lock.settings;
        let Some(seen) = &mut self.seen else {
            return sleep(jittered(settings.retry)).await;
        };
        while seen.session.is_some() {
            match self
                .lock
                .agent
                .changed(&self.key, seen.index, settings.wait)
                .await
            {
                Ok(now) => *seen = now,
                Err(_) => return sleep(jittered(settings.retry)).await,
            }
        }
    }
}
