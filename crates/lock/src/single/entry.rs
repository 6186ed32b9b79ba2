//! What somebody may have on the server, and the certainty that it goes away again.
//!
//! A request that is dropped half-way may still be carried out. The release that follows goes over the same connection, so it comes after it.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::{runtime::Handle, time::sleep};

use super::RedisLock;
use crate::{
    FencingToken, Hold, LockError,
    error::{Answer, Vote},
    owner::unique,
    redis_server::{COUNTER, Keys, Reply, script},
};

/// How long a server that did not answer is left alone before it is told again to release.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Entry {
    request: Request,
    /// When what was asked for is over by itself. `None`: nothing was asked for, or it has been given back.
    traces_until: Option<Instant>,
}

/// What the scripts need to know.
#[derive(Clone)]
struct Request {
    lock: RedisLock,
    keys: Keys,
    id: String,
}

impl Entry {
    pub(crate) fn new(lock: RedisLock, keys: Keys) -> Self {
        Self {
            request: Request {
                lock,
                keys,
                id: unique(),
            },
            traces_until: None,
        }
    }

    pub(crate) async fn acquire(
        &mut self,
        floor: Option<FencingToken>,
    ) -> Result<FencingToken, Answer> {
        self.traces_until = Some(Instant::now() + 2 * self.request.lock.inner.settings.ttl);
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

    fn votes(&self, answer: Answer) -> Vec<Vote> {
        vec![Vote {
            node: self.request.lock.inner.server.label.clone(),
            answer,
        }]
    }

    fn refusal(&self, answer: Answer) -> LockError {
        match answer {
            Answer::Held { .. } | Answer::Gone => LockError::Lost {
                votes: self.votes(answer),
            },
            _ => LockError::NoQuorum {
                causes: self.votes(answer),
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
        let ttl_ms = inner.settings.ttl.as_millis().to_string();
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
        let ttl_ms = inner.settings.ttl.as_millis().to_string();
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
                let of_redisson = format!("redisson_lock__channel:{{{name}}}");
                server
                    .run(
                        &script::EXIT,
                        &[name, self.keys.fence()],
                        &[owner, &self.id, self.keys.released(), &of_redisson],
                    )
                    .await
            }
        };
        reply.map_or_else(|answer| answer, |(_, reply)| reply.answer())
    }

    /// Until the server has done it, or the lease is over there.
    async fn sweep(self, until: Instant) {
        while self.release().await.is_failure() && Instant::now() < until {
            sleep(SWEEP_PAUSE).await;
        }
    }
}

#[async_trait]
impl Hold for Entry {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        let lease = self.request.lock.inner.settings.lease;
        let started = Instant::now();
        self.traces_until = Some(started + 2 * self.request.lock.inner.settings.ttl);
        match self.request.extend().await {
            Answer::Accepted => lease.deadline(started).ok_or_else(|| LockError::TooLate {
                elapsed: started.elapsed(),
                votes: self.votes(Answer::Accepted),
            }),
            answer => Err(self.refusal(answer)),
        }
    }

    fn lapse(&mut self) {
        let settings = &self.request.lock.inner.settings;
        if settings.ttl > settings.lease.length {
            self.traces_until = None;
        }
    }

    async fn release(mut self: Box<Self>) -> Result<(), LockError> {
        match self.request.release().await {
            Answer::Accepted => {
                self.traces_until = None;
                Ok(())
            }
            answer => Err(self.refusal(answer)),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Without a runtime the lease ends by itself.
        if let (Some(until), Ok(runtime)) = (self.traces_until, Handle::try_current()) {
            runtime.spawn(self.request.clone().sweep(until));
        }
    }
}
