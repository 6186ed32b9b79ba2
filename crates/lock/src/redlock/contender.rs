//! One acquisition. The ballot: one round trip takes a lock on a quorum of nodes and agrees on its
//! token.
//!
//! # Why tokens rise
//!
//! Every node accepts a token only if it is above every token that it has accepted for the name.
//! Two quorums have a node in common. That node accepted token A for the first holder, so a second
//! holder that it votes for later has a token above A. No clock is in this argument. A node that
//! forgets would break it, which is why such a node does not vote (`monitor.rs`).
//!
//! # Why the obvious ways fail
//!
//! To let every node count and to take the highest count gives the same token twice without any
//! fault. To take the lock and then mint a token lets a client that lapsed in between fence out its
//! successor. To accept a token that is *not below* the fence lets a late message have it accepted
//! twice. To read the token later gives a stale holder its successor's. The model in
//! `lab/models/tests/it/lock` shows each.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::{
    Redlock,
    claim::{Claim, Question},
    held::Held,
    queue::Place,
};
use crate::{
    FencingToken, Grant, Guard, LockError, Mode, Sequencer,
    error::{Answer, Vote},
    redis_server::{Keys, Listener},
    retry::{Acquire, jittered, scattered},
};

/// Proposals of one attempt, before it gives way to other clients.
const PROPOSALS: u32 = 8;
/// How soon a second attempt follows the first: a release that was published before we subscribed
/// is lost.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Contender {
    redlock: Redlock,
    keys: Keys,
    mode: Mode,
    /// In the queue, if there is one.
    place: Option<Place>,
    /// From the first attempt that found another owner.
    listener: Option<Listener>,
    /// Number of subscribers that the last release was published to.
    crowd: u32,
    /// How long the last attempt took.
    attempt: Duration,
}

impl Contender {
    pub(crate) fn new(redlock: Redlock, keys: Keys, mode: Mode) -> Self {
        let queue = redlock.settings().queue;
        let place = queue.map(|timeout| Place::new(redlock.nodes().clone(), keys.clone(), timeout));
        Self {
            redlock,
            keys,
            mode,
            place,
            listener: None,
            crowd: 2,
            attempt: Duration::ZERO,
        }
    }

    /// One owner, and as many proposals as it takes to be above every fence.
    async fn attempt(&mut self) -> Result<Guard, LockError> {
        let nodes = self.redlock.nodes().clone();
        let mut claim = Claim::new(
            nodes.clone(),
            self.keys.clone(),
            self.mode,
            self.redlock.seen(),
        );
        let mut answers = Vec::new();
        for too_low in 0..PROPOSALS {
            let proposal = self.redlock.seen().proposal(&self.keys, too_low);
            let Some(token) = proposal else {
                return Err(LockError::NoTokenLeft {
                    votes: nodes.votes(&answers),
                });
            };
            let started = Instant::now();
            answers = claim
                .ask(Question::Acquire, self.redlock.ballot(&claim, token))
                .await;
            if nodes.agreed(&answers) {
                return self.admit(claim, token, started, &answers);
            }
            let only_too_low = !nodes.blocked_by(&answers, |answer| {
                answer.is_failure() || matches!(answer, Answer::Held { .. })
            });
            if !only_too_low {
                break;
            }
        }
        let votes = nodes.votes(&answers);
        Err(if nodes.blocked_by(&answers, Answer::is_failure) {
            LockError::NoQuorum { causes: votes }
        } else {
            LockError::Held { votes }
        })
    }

    fn admit(
        &self,
        mut claim: Claim,
        token: FencingToken,
        started: Instant,
        answers: &[Answer],
    ) -> Result<Guard, LockError> {
        self.redlock.seen().note(&self.keys, token);
        let lease = self.redlock.settings().timing.lease;
        let Some(deadline) = lease.deadline(started) else {
            return Err(LockError::TooLate {
                elapsed: started.elapsed(),
                votes: self.redlock.nodes().votes(answers),
            });
        };
        claim.tell = true;
        let sequencer = Sequencer {
            name: self.keys.lock().to_owned(),
            mode: self.mode,
            token,
        };
        let hold = Box::new(Held::new(self.redlock.clone(), claim, token));
        Ok(Guard::new(Grant {
            sequencer,
            deadline,
            lease: lease.length,
            lost: Default::default(),
            hold,
        }))
    }
}

impl Acquire for Contender {
    async fn try_once(&mut self) -> Result<Guard, LockError> {
        if let Some(listener) = &mut self.listener {
            listener.forget();
        }
        if let Some(place) = &mut self.place {
            place.turn().await?;
        }
        let started = Instant::now();
        let result = self.attempt().await;
        self.attempt = started.elapsed();
        result
    }

    /// Until the lock may be free on a quorum, but not too long: it may be released earlier, and
    /// the message may be lost.
    async fn wait_for_retry(&mut self, refusal: &LockError) {
        let timing = &self.redlock.settings().timing;
        let LockError::Held { votes } = refusal else {
            return sleep(jittered(timing.failed_retry())).await;
        };
        let (retry, quorum) = (timing.retry, self.redlock.nodes().quorum);
        let Some(listener) = &mut self.listener else {
            self.listener = Some(self.redlock.listen(&self.keys));
            return sleep(jittered(FIRST_PAUSE)).await;
        };
        let Some(free_in) = free_in(votes, quorum) else {
            return sleep(scattered(self.crowd, self.attempt)).await;
        };
        // The waiters in front get it first. The first of them may have it already, and not have
        // left the queue yet.
        let releases = held(votes).clamp(1, quorum) * ahead(votes).max(1);
        let Ok(crowd) = timeout(jittered(free_in.min(retry)), listener.woken(releases)).await
        else {
            return;
        };
        self.crowd = crowd.max(2);
        if self.place.is_none() {
            sleep(scattered(crowd, self.attempt)).await;
        }
    }
}

/// Number of nodes on which another client has the lock, or is in front.
fn held(votes: &[Vote]) -> usize {
    votes
        .iter()
        .filter(|vote| matches!(vote.answer, Answer::Held { .. } | Answer::Queued { .. }))
        .count()
}

/// How many are in front at the least.
fn ahead(votes: &[Vote]) -> usize {
    let ahead = |vote: &Vote| {
        if let Answer::Queued { ahead } = vote.answer {
            Some(ahead)
        } else {
            None
        }
    };
    votes.iter().filter_map(ahead).min().unwrap_or_default()
}

/// When a quorum of nodes will be free if no lock is released. `None`: it is, and contenders
/// have only got in each other's way.
fn free_in(votes: &[Vote], quorum: usize) -> Option<Duration> {
    let held = |vote: &Vote| match vote.answer {
        Answer::Held { remaining, .. } => Some(remaining.unwrap_or(Duration::MAX)),
        Answer::Queued { .. } => Some(Duration::MAX),
        _ => None,
    };
    let mut remaining: Vec<_> = votes.iter().filter_map(held).collect();
    remaining.sort_unstable();
    let free = votes.len() - remaining.len();
    remaining.get(quorum.checked_sub(free + 1)?).copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answer, Vote, free_in};

    #[test]
    fn one_waits_until_a_quorum_may_be_free() {
        let held = |ms: &[u64]| -> Vec<Vote> {
            let answer = |ms: &u64| match ms {
                0 => Answer::TimedOut,
                ms => Answer::Held {
                    remaining: Some(Duration::from_millis(*ms)),
                    fence: None,
                },
            };
            ms.iter()
                .map(|ms| Vote {
                    node: String::new(),
                    answer: answer(ms),
                })
                .collect()
        };
        assert_eq!(
            free_in(&held(&[30, 10, 20, 50, 40]), 3),
            Some(Duration::from_millis(30))
        );
        assert_eq!(
            free_in(&held(&[30, 10, 20, 0, 0]), 3),
            Some(Duration::from_millis(10))
        );
        assert_eq!(free_in(&held(&[30, 0, 20, 0, 0]), 3), None);
    }
}
