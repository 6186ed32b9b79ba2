//! Enters the queue, watches the node ahead and acquires the lock as the first.

use std::sync::Arc;

use tokio::time::sleep;

use super::{
    held::{Held, lease},
    service::{Node, Position, Service},
};
use crate::{
    error::{Answer, LockError},
    guard::Guard,
    hold::Grant,
    request::{Mode, Request, Wait},
    retry::{Acquire, jittered},
    sequencer::Sequencer,
    token::FencingToken,
};

/// A node that becomes a lock is kept alive first if this fraction (a third) of its time has
/// passed.
const KEEP_ALIVE_FRACTION: u32 = 3;

type Predecessor<S> = <<S as Service>::Node as Node>::Predecessor;
type Watch<S> = <<S as Service>::Node as Node>::Watch;

pub(crate) struct Contender<S: Service> {
    service: Arc<S>,
    name: String,
    /// Path of the lock's queue.
    queue: String,
    /// A caller that does not wait enters the queue only as the first, so no waiter is ever behind
    /// it.
    only_if_first: bool,
    node: Option<S::Node>,
    predecessor: Option<Predecessor<S>>,
}

/// Result of an attempt whose requests all succeeded.
enum Outcome<S: Service> {
    Acquired(i64, Watch<S>),
    Behind(Predecessor<S>, Option<i64>),
}

impl<S: Service> Contender<S> {
    pub(crate) fn new(service: Arc<S>, request: Request<'_>, queue: String) -> Self {
        Self {
            service,
            name: request.name.to_owned(),
            queue,
            only_if_first: request.wait == Wait::Never,
            node: None,
            predecessor: None,
        }
    }

    async fn attempt(&mut self) -> Result<Outcome<S>, Answer> {
        let node = match self.node.take().filter(S::Node::is_usable) {
            Some(node) => node,
            None => self.service.node(&self.queue).await?,
        };
        // The node is stored before anything is sent: if this future is dropped, the node is
        // removed.
        let node = self.node.insert(node);
        let position = if node.is_queued() {
            node.position().await?
        } else {
            node.enter(self.only_if_first).await?
        };
        match position {
            Position::Gone => Err(Answer::Gone),
            Position::Behind(predecessor, created) => Ok(Outcome::Behind(predecessor, created)),
            Position::First => {
                let (created, watch) = node.created().await?;
                if node.kept_alive_at().elapsed() >= node.granted() / KEEP_ALIVE_FRACTION {
                    node.keep_alive().await?;
                }
                Ok(Outcome::Acquired(created, watch))
            }
        }
    }

    fn admit(&mut self, created: i64, watch: Watch<S>) -> Result<Guard, LockError> {
        let service = &self.service;
        let no_token = || LockError::NoTokenLeft {
            votes: service.votes(Answer::Accepted),
        };
        let node = self.node.take().ok_or_else(no_token)?;
        let token = FencingToken::new(created).ok_or_else(no_token)?;
        let lease = lease(&**service, &node);
        let Some(deadline) = lease.deadline(node.kept_alive_at()) else {
            return Err(LockError::TooLate {
                elapsed: node.kept_alive_at().elapsed(),
                votes: service.votes(Answer::Accepted),
            });
        };
        let sequencer = Sequencer {
            name: self.name.clone(),
            mode: Mode::Exclusive,
            token,
        };
        let (hold, lost) = Held::new(Arc::clone(service), node, watch);
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost,
            hold: Box::new(hold),
        }))
    }
}

impl<S: Service> Acquire for Contender<S> {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        self.predecessor = None;
        let answer = match self.attempt().await {
            Ok(Outcome::Acquired(created, watch)) => return self.admit(created, watch),
            Ok(Outcome::Behind(predecessor, created)) => {
                self.predecessor = Some(predecessor);
                Answer::Held {
                    remaining: None,
                    // A waiter sees the node ahead of its own, which need not be the holder's.
                    fence: created
                        .and_then(FencingToken::new)
                        .filter(|_| self.only_if_first),
                }
            }
            Err(Answer::Gone) => {
                self.node = None;
                Answer::Gone
            }
            Err(answer) => {
                return Err(LockError::NoQuorum {
                    causes: self.service.votes(answer),
                });
            }
        };
        Err(LockError::Held {
            votes: self.service.votes(answer),
        })
    }

    async fn wait_for_retry(&mut self, _: &LockError) {
        let retry = self.service.timing().failed_retry();
        let (Some(node), Some(predecessor)) = (&mut self.node, &self.predecessor) else {
            return sleep(jittered(retry)).await;
        };
        if node.wait_for(predecessor).await.is_err() {
            sleep(jittered(retry)).await;
        }
    }
}
