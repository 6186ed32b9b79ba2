//! Somebody who wants a lock: takes a place in the queue, and waits for the key in front of it and for no other.
//!
//! What a reader could get wrong: that the key in front is gone does not make it our turn. Its owner may have given up while others in
//! front of it still wait, so the queue is looked at again each time.

use tokio::time::sleep;

use super::{
    EtcdLock,
    held::Held,
    place::{Front, Place, Turn},
};
use crate::{
    FencingToken, Grant, Guard, LockError, Patience, Request, Sequencer,
    error::Answer,
    patience::{Ask, jittered},
};

pub(crate) struct Contender {
    lock: EtcdLock,
    name: String,
    prefix: String,
    /// Whether a place is taken only if it is the first: nobody else ever sees one who does not wait.
    alone: bool,
    place: Option<Place>,
    front: Option<Front>,
}

impl Contender {
    pub(crate) fn new(lock: EtcdLock, request: Request<'_>, prefix: String) -> Self {
        let alone = request.patience == Patience::None;
        Self {
            lock,
            name: request.name.to_owned(),
            prefix,
            alone,
            place: None,
            front: None,
        }
    }

    /// Takes a place or looks at the queue from the one that we have.
    async fn turn(&mut self) -> Result<Turn, Answer> {
        if let Some(place) = &self.place
            && place.created.is_some()
        {
            return place.turn().await;
        }
        // It is in `self` before anything is sent: if we are cancelled, it is swept.
        let place = Place::new(
            self.lock.server.clone(),
            &self.prefix,
            self.lock.settings.lease.length,
        );
        self.place.insert(place).take(self.alone).await
    }

    async fn attempt(&mut self) -> Result<Turn, Answer> {
        let turn = self.turn().await?;
        if let (Turn::Ours, Some(place)) = (&turn, &mut self.place) {
            place.confirm_if_due().await?;
        }
        Ok(turn)
    }

    fn admit(&mut self) -> Result<Guard, LockError> {
        let server = &self.lock.server;
        let no_token = || LockError::NoTokenLeft {
            votes: server.votes(Answer::Accepted),
        };
        let place = self.place.take().ok_or_else(no_token)?;
        let token = place
            .created
            .and_then(FencingToken::new)
            .ok_or_else(no_token)?;
        let lease = self.lock.settings.lease.of_length(place.length);
        let Some(deadline) = lease.deadline(place.confirmed) else {
            return Err(LockError::TooLate {
                elapsed: place.confirmed.elapsed(),
                votes: server.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: crate::Mode::Exclusive,
            token,
        };
        let (hold, lost) = Held::new(self.lock.clone(), place, token);
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost,
            hold: Box::new(hold),
        }))
    }

    fn held(&self, answer: Answer) -> LockError {
        LockError::Held {
            votes: self.lock.server.votes(answer),
        }
    }
}

impl Ask for Contender {
    async fn ask(&mut self) -> Result<Guard, LockError> {
        self.front = None;
        match self.attempt().await {
            Ok(Turn::Ours) => self.admit(),
            Ok(Turn::Behind(front)) => {
                // Of those who wait, one knows only who is in front.
                let fence = FencingToken::new(front.created).filter(|_| self.alone);
                self.front = Some(front);
                Err(self.held(Answer::Held {
                    remaining: None,
                    fence,
                }))
            }
            Ok(Turn::Gone) | Err(Answer::Gone) => {
                self.place = None;
                Err(self.held(Answer::Gone))
            }
            Err(answer) => Err(LockError::NoQuorum {
                causes: self.lock.server.votes(answer),
            }),
        }
    }

    async fn pause(&mut self, _: &LockError) {
        let retry = self.lock.settings.retry;
        let (Some(place), Some(front)) = (&mut self.place, &self.front) else {
            return sleep(jittered(retry)).await;
        };
        tokio::select! {
            deleted = self.lock.server.deleted(&front.key, front.as_of + 1) => {
                if deleted.is_err() {
                    sleep(jittered(retry)).await;
                }
            }
            answer = place.keep() => tracing::debug!(%answer, "a place in the queue was not kept"),
        }
    }
}
