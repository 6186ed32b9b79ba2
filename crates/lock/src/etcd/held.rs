//! What an etcd lock does with a lock that it holds.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{EtcdLock, place::Place, server::Server};
use crate::{FencingToken, Hold, LockError, error::Answer};

pub(crate) struct Held {
    lock: EtcdLock,
    /// Gives itself back when it is dropped.
    place: Place,
    token: FencingToken,
}

impl Held {
    /// The token of the task is cancelled when the key is deleted, and ends the task when it is cancelled by somebody else.
    pub(crate) fn new(
        lock: EtcdLock,
        place: Place,
        token: FencingToken,
    ) -> (Self, CancellationToken) {
        let lost = CancellationToken::new();
        let (server, key, retry, told) = (
            lock.server.clone(),
            place.key().to_owned(),
            lock.settings.retry,
            lost.clone(),
        );
        tokio::spawn(async move {
            tokio::select! {
                () = told.cancelled() => {}
                () = is_gone(&server, &key, token, retry) => told.cancel(),
            }
        });
        (Self { lock, place, token }, lost)
    }

    fn no_quorum(&self, answer: Answer) -> LockError {
        LockError::NoQuorum {
            causes: self.lock.server.votes(answer),
        }
    }

    fn lost(&self) -> LockError {
        LockError::Lost {
            votes: self.lock.server.votes(Answer::Gone),
        }
    }
}

/// Returns when the key is not there any more. Watches end; what happened between two of them is read.
async fn is_gone(server: &Server, key: &str, token: FencingToken, retry: Duration) {
    let mut since = token.get() + 1;
    while server.deleted(key, since).await.is_err() {
        sleep(retry).await;
        match server.has(key, token.get()).await {
            Ok(Some(now)) => since = now + 1,
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

#[async_trait]
impl Hold for Held {
    /// Somebody may have deleted the key and left the lease, so both are asked for.
    async fn extend(&mut self) -> Result<Instant, LockError> {
        match self.place.confirm().await {
            Ok(()) => {}
            Err(Answer::Gone) => return Err(self.lost()),
            Err(answer) => return Err(self.no_quorum(answer)),
        }
        match self
            .lock
            .server
            .has(self.place.key(), self.token.get())
            .await
        {
            Ok(Some(_)) => {}
            Ok(None) => return Err(self.lost()),
            Err(answer) => return Err(self.no_quorum(answer)),
        }
        let lease = self.lock.settings.lease.of_length(self.place.length);
        let late = || LockError::TooLate {
            elapsed: self.place.confirmed.elapsed(),
            votes: self.lock.server.votes(Answer::Accepted),
        };
        lease.deadline(self.place.confirmed).ok_or_else(late)
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let Self { lock, place, .. } = *self;
        match place.leave().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(LockError::Lost {
                votes: lock.server.votes(Answer::Gone),
            }),
            Err(answer) => Err(LockError::NoQuorum {
                causes: lock.server.votes(answer),
            }),
        }
    }
}
