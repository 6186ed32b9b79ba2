//! What a ZooKeeper lock does with a lock that it holds.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, OneshotWatcher};

use super::{ZooKeeperLock, place::Place, session::Session};
use crate::{Hold, LockError, error::Answer, lease::Lease};

pub(crate) struct Held {
    lock: ZooKeeperLock,
    /// Gives itself back when it is dropped.
    place: Place,
}

impl ZooKeeperLock {
    /// Of a lock under this session.
    pub(crate) fn lease(&self, session: &Session) -> Lease {
        self.0
            .settings
            .lease
            .of_length(session.length().saturating_sub(self.0.settings.unreported))
    }

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
    /// The token of the task is cancelled when the node is gone or the session has ended, and ends the task when somebody else cancels it.
    pub(crate) fn new(
        lock: ZooKeeperLock,
        place: Place,
        watch: OneshotWatcher,
    ) -> (Self, CancellationToken) {
        let lost = CancellationToken::new();
        if let Ok(path) = place.own_path() {
            let (session, retry, told) =
                (place.session.clone(), lock.0.settings.retry, lost.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = told.cancelled() => {}
                    () = is_gone(&session, &path, watch, retry) => told.cancel(),
                }
            });
        }
        (Self { lock, place }, lost)
    }
}

/// Returns when the node is not there any more, or the session has ended.
async fn is_gone(session: &Session, path: &str, mut watch: OneshotWatcher, retry: Duration) {
    loop {
        let event = watch.changed().await;
        if event.event_type == EventType::NodeDeleted {
            return;
        }
        watch = loop {
            match session.ask(session.client.get_and_watch_data(path)).await {
                Ok((_, _, watch)) => break watch,
                Err(Answer::Gone) => return,
                Err(_) if session.has_ended() => return,
                Err(_) => sleep(retry).await,
            }
        };
    }
}

#[async_trait]
impl Hold for Held {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        self.place
            .confirm()
            .await
            .map_err(|answer| self.lock.refusal(answer))?;
        let late = || LockError::TooLate {
            elapsed: self.place.confirmed.elapsed(),
            votes: self.lock.votes(Answer::Accepted),
        };
        self.lock
            .lease(&self.place.session)
            .deadline(self.place.confirmed)
            .ok_or_else(late)
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let Self { lock, place } = *self;
        place.leave().await.map_err(|answer| lock.refusal(answer))
    }
}
