//! Somebody who wants a lock: takes a place in the queue, and waits for the node in front of it and for no other.
//!
//! What a reader could get wrong: that the node in front is gone does not make it our turn. Its owner may have given up while others in
//! front of it still wait, so the queue is looked at again each time.

use tokio::time::sleep;
use zookeeper_client::OneshotWatcher;

use super::{
    ZooKeeperLock,
    held::Held,
    place::{Place, Turn},
};
use crate::{
    FencingToken, Grant, Guard, LockError, Mode, Patience, Request, Sequencer,
    error::Answer,
    patience::{Ask, jittered},
};

pub(crate) struct Contender {
    lock: ZooKeeperLock,
    name: String,
    parent: String,
    /// Whether a place is taken only if it is the first.
    alone: bool,
    place: Option<Place>,
    /// The path of the node in front of us.
    front: Option<String>,
}

/// What an attempt has come to.
enum Outcome {
    Ours(i64, OneshotWatcher),
    Behind(String),
}

impl Contender {
    pub(crate) fn new(lock: ZooKeeperLock, request: Request<'_>, parent: String) -> Self {
        let alone = request.patience == Patience::None;
        Self {
            lock,
            name: request.name.to_owned(),
            parent,
            alone,
            place: None,
            front: None,
        }
    }

    async fn attempt(&mut self) -> Result<Outcome, Answer> {
        let place = match self.place.take().filter(|place| !place.session.has_ended()) {
            Some(place) => place,
            None => Place::new(self.lock.0.sessions.current().await?, &self.parent),
        };
        // It is in `self` before anything is sent: if we are cancelled, it is swept.
        let place = self.place.insert(place);
        let turn = if place.is_taken() {
            place.turn().await?
        } else {
            place.take(self.alone).await?
        };
        match turn {
            Turn::Gone => Err(Answer::Gone),
            Turn::Behind(front) => Ok(Outcome::Behind(front)),
            Turn::Ours => {
                let (czxid, watch) = place.czxid().await?;
                place.confirm_if_due().await?;
                Ok(Outcome::Ours(czxid, watch))
            }
        }
    }

    fn admit(&mut self, czxid: i64, watch: OneshotWatcher) -> Result<Guard, LockError> {
        let no_token = || LockError::NoTokenLeft {
            votes: self.lock.votes(Answer::Accepted),
        };
        let token = FencingToken::new(czxid).ok_or_else(no_token)?;
        let place = self.place.take().ok_or_else(no_token)?;
        let lease = self.lock.lease(&place.session);
        let Some(deadline) = lease.deadline(place.confirmed) else {
            return Err(LockError::TooLate {
                elapsed: place.confirmed.elapsed(),
                votes: self.lock.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token,
        };
        let (hold, lost) = Held::new(self.lock.clone(), place, watch);
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost,
            hold: Box::new(hold),
        }))
    }
}

impl Ask for Contender {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        self.front = None;
        let answer = match self.attempt().await {
            Ok(Outcome::Ours(czxid, watch)) => return self.admit(czxid, watch),
            Err(answer @ (Answer::TimedOut | Answer::Failed(_))) => {
                return Err(LockError::NoQuorum {
                    causes: self.lock.votes(answer),
                });
            }
            Ok(Outcome::Behind(front)) => {
                self.front = Some(front);
                Answer::Held {
                    remaining: None,
                    fence: None,
                }
            }
            Err(answer) => {
                self.place = None;
                answer
            }
        };
        Err(LockError::Held {
            votes: self.lock.votes(answer),
        })
    }

    /// The watch also ends with the session.
    async fn pause(&mut self, _: &LockError) {
        let retry = self.lock.0.settings.retry;
        let (Some(place), Some(front)) = (&self.place, &self.front) else {
            return sleep(jittered(retry)).await;
        };
        match place
            .session
            .ask(place.session.client.get_and_watch_data(front))
            .await
        {
            Ok((_, _, watch)) => _ = watch.changed().await,
            Err(Answer::Gone) => {}
            Err(_) => sleep(jittered(retry)).await,
        }
    }
}
