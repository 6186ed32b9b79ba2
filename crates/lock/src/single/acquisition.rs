//! An acquisition on the server, and its removal.
//!
//! A request whose caller has gone may still be carried out. The release that follows it uses the
//! same connection, so the server carries it out afterwards.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::{runtime::Handle, time::sleep};

use super::RedisLock;
use crate::{
    error::{Answer, LockError},
    hold::Hold,
    owner::unique,
    redis_server::{COUNTER, Keys, Reply, script},
    token::FencingToken,
};

/// Pause before a server that did not answer is sent the release again.
const RELEASE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Acquisition {
    request: Request,
    /// When everything that was requested has expired. `None` if nothing was requested, or if it
    /// was released.
    expires_at: Option<Instant>,
}

/// The arguments of the scripts.
#[derive(Clone)]
struct Request {
    lock: RedisLock,
    keys: Keys,
    id: String,
}

impl Acquisition {
    pub(crate) fn new(lock: RedisLock, keys: Keys) -> Self {
        Self {
            request: Request {
                lock,
                keys,
                id: unique(),
            },
            expires_at: None,
        }
    }

    pub(crate) async fn acquire(
        &mut self,
        floor: Option<FencingToken>,
    ) -> Result<FencingToken, Answer> {
        self.expires_at = Some(Instant::now() + 2 * self.request.lock.inner.timing.ttl());
        let reply = self.request.acquire(floor).await?;
        match (
            reply.status.as_str(),
            reply.number(0).and_then(FencingToken::new),
        ) {
            ("accepted", Some(token)) => Ok(token),
            ("accepted", None) => Err(Answer::Unreadable(format!("token {:?}", reply.word(0)))),
            ("spent", _) => Err(Answer::TooLow {
                fence: FencingToken::LAST,
            }),
            _ => Err(reply.answer()),
        }
    }

    fn refusal(&self, answer: Answer) -> LockError {
        match answer {
            Answer::Held { .. } | Answer::Gone => LockError::Lost {
                votes: self.request.lock.votes(answer),
            },
            _ => LockError::NoQuorum {
                causes: self.request.lock.votes(answer),
            },
        }
    }
}

impl Request {
    async fn acquire(&self, floor: Option<FencingToken>) -> Result<Reply, Answer> {
        let (inner, floor) = (
            &self.lock.inner,
            floor.map_or(0, FencingToken::get).to_string(),
        );
        let keys = [self.keys.lock(), COUNTER, self.keys.fence()];
        let ttl_ms = inner.timing.ttl().as_millis().to_string();
        let reply = match &self.lock.owner {
            None => {
                inner
                    .server
                    .run(&script::ACQUIRE_SINGLE, &keys, &[&self.id, &ttl_ms, &floor])
                    .await
            }
            Some(owner) => {
                inner
                    .server
                    .run(&script::ENTER, &keys, &[owner, &ttl_ms, &floor, &self.id])
                    .await
            }
        };
        reply.map(|(_, reply)| reply)
    }

    async fn extend(&self) -> Answer {
        let (inner, keys) = (&self.lock.inner, [self.keys.lock(), self.keys.fence()]);
        let ttl_ms = inner.timing.ttl().as_millis().to_string();
        let reply = match &self.lock.owner {
            None => {
                inner
                    .server
                    .run(&script::EXTEND_SINGLE, &keys, &[&self.id, &ttl_ms])
                    .await
            }
            Some(owner) => {
                inner
                    .server
                    .run(&script::EXTEND_ENTERED, &keys, &[owner, &ttl_ms, &self.id])
                    .await
            }
        };
        reply.map_or_else(|answer| answer, |(_, reply)| reply.answer())
    }

    async fn release(&self) -> Answer {
        let (server, name) = (&self.lock.inner.server, self.keys.lock());
        let reply = match &self.lock.owner {
            None => {
                server
                    .run(&script::RELEASE, &[name], &[&self.id, self.keys.released()])
                    .await
            }
            Some(owner) => {
                let redisson_channel = format!("redisson_lock__channel:{{{name}}}");
                server
                    .run(
                        &script::EXIT,
                        &[name, self.keys.fence()],
                        &[owner, &self.id, self.keys.released(), &redisson_channel],
                    )
                    .await
            }
        };
        reply.map_or_else(|answer| answer, |(_, reply)| reply.answer())
    }

    /// Repeats the release until the server has answered or the lease has ended there.
    async fn release_until(self, until: Instant) {
        while self.release().await.is_failure() && Instant::now() < until {
            sleep(RELEASE_RETRY_INTERVAL).await;
        }
    }
}

#[async_trait]
impl Hold for Acquisition {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let lease = self.request.lock.inner.timing.lease;
        let started = Instant::now();
        self.expires_at = Some(started + 2 * self.request.lock.inner.timing.ttl());
        match self.request.extend().await {
            Answer::Accepted => lease.deadline(started).ok_or_else(|| LockError::TooLate {
                elapsed: started.elapsed(),
                votes: self.request.lock.votes(Answer::Accepted),
            }),
            answer => Err(self.refusal(answer)),
        }
    }

    fn lapse(&mut self) {
        if !self.request.lock.inner.timing.lock_delay.is_zero() {
            self.expires_at = None;
        }
    }

    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        match self.request.release().await {
            Answer::Accepted => {
                self.expires_at = None;
                Ok(())
            }
            answer => Err(self.refusal(answer)),
        }
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        // Without a runtime the lease ends by itself.
        if let (Some(until), Ok(runtime)) = (self.expires_at, Handle::try_current()) {
            runtime.spawn(self.request.clone().release_until(until));
        }
    }
}
