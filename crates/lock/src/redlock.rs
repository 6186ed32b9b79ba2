//! The ballot: one round trip takes a lock on a quorum of nodes and agrees on its token.
//!
//! # Why tokens rise
//!
//! Every node accepts a token only if it is above every token that it has accepted for the name. Two quorums have a node in common. That
//! node accepted token A for the first holder, so a second holder that it votes for later has a token above A. No clock is in this argument.
//! A node that forgets would break it, which is why such a node does not vote (`monitor.rs`).
//!
//! # Why the obvious ways fail
//!
//! To let every node count and to take the highest count gives the same token twice without any fault. To take the lock and then mint a
//! token lets a client that lapsed in between fence out its successor. To accept a token that is *not below* the fence lets a late message
//! have it accepted twice. To read the token later gives a stale holder its successor's. The model in `tests/it/model` shows each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout_at},
};

use crate::{
    FencingToken, Guard, LockError,
    builder::Settings,
    claim::{Claim, Nodes, Question},
    clock::drift,
    error::{Answer, Exclusion, Vote},
    monitor,
    name::Name,
    node::{Ballot, Node, Probe},
};

/// How often a token is proposed anew before others are given way.
const PROPOSALS: usize = 8;
/// Names whose tokens are remembered, so that the first proposal is usually high enough.
const SEEN_MAX: usize = 10_000;
/// How long, at the most, contenders that got in each other's way stay apart.
const SCATTER: Duration = Duration::from_millis(20);

/// Locks on a quorum of independent Redis servers. Cheap to clone.
#[derive(Clone)]
pub struct Redlock(Arc<Inner>);

pub(crate) struct Inner {
    pub nodes: Nodes,
    settings: Settings,
    seen: Mutex<Seen>,
    /// Wakes the monitor.
    pub alarm: Arc<Notify>,
}

/// The highest tokens that nodes have told us of. Forgetting them costs a proposal, never a token.
#[derive(Default)]
struct Seen {
    by_name: HashMap<String, FencingToken>,
    /// Of any name: what a node has forgotten of an idle name is not above it.
    highest: Option<FencingToken>,
}

/// How long to wait between extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    pub after_success: Duration,
    pub after_failure: Duration,
}

/// What one node is like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// `HOST:PORT`.
    pub node: String,
    /// Whether its votes count, and if not, why.
    pub standing: Standing,
    /// The highest token that it remembers, of any name.
    pub high_water: Option<FencingToken>,
}

/// Whether a node's votes count.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Standing {
    /// They do.
    Voting,
    /// They do not.
    Excluded(Exclusion),
    /// It did not answer.
    Unreachable(Answer),
}

impl Redlock {
    pub(crate) async fn open(nodes: Vec<Arc<Node>>, settings: Settings, alarm: Arc<Notify>) -> Self {
        let nodes = Nodes::new(nodes);
        monitor::wait_for_a_quorum(&nodes, settings.longest_lease).await;
        let inner = Arc::new(Inner { nodes, settings, seen: Mutex::default(), alarm });
        tokio::spawn(monitor::watch(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// See [`LockError`]. Whatever single nodes granted is given back in the background.
    pub async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.attempt(Name::new(name)?).await
    }

    /// Waits for as long as somebody else has the lock. Cancelling it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// If too few nodes can vote: see [`LockError`].
    pub async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        let name = Name::new(name)?;
        loop {
            match self.attempt(name.clone()).await {
                Err(error @ (LockError::Held { .. } | LockError::TooLate { .. })) => sleep(self.pause_after(&error)).await,
                result => return result,
            }
        }
    }

    /// Waits for so long, also for nodes that can vote, and then says what stood in the way last.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn acquire_within(&self, name: &str, patience: Duration) -> Result<Guard, LockError> {
        let name = Name::new(name)?;
        let Some(until) = Instant::now().checked_add(patience) else { return self.acquire(name.lock()).await };
        let mut last = None;
        loop {
            // A first attempt is made in any case; it ends by itself, by the timeouts of the nodes.
            let attempt = self.attempt(name.clone());
            let result = match last.take() {
                None => attempt.await,
                Some(error) => timeout_at(until.into(), attempt).await.unwrap_or(Err(error)),
            };
            let error = match result {
                Err(error) if error.is_retryable() && Instant::now() < until => error,
                result => return result,
            };
            sleep(self.pause_after(&error).min(until.saturating_duration_since(Instant::now()))).await;
            last = Some(error);
        }
    }

    /// Makes every later token of this lock be above one that is known from elsewhere, usually the fence of a row that the lock protects.
    ///
    /// # Errors
    ///
    /// For a name that no lock may have.
    pub fn observe(&self, name: &str, token: FencingToken) -> Result<(), LockError> {
        self.seen().note(&Name::new(name)?, token);
        Ok(())
    }

    /// Asks every node, and says whether its votes count.
    pub async fn status(&self) -> Vec<NodeStatus> {
        let probes = monitor::look(self.nodes()).await;
        self.nodes().all.iter().zip(probes).map(|(node, probe)| status(node, probe)).collect()
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal { after_success: self.0.settings.lease / 3, after_failure: self.0.settings.lease / 30 }
    }

    pub(crate) fn ballot(&self, claim: &Claim, token: FencingToken) -> Ballot {
        let Settings { ttl, keep_tokens: keep, .. } = self.0.settings;
        Ballot { name: claim.name().clone(), owner: Arc::clone(claim.owner()), token, ttl, keep }
    }

    /// When a lease that was asked for at `started` is over by our clock, unless too little of it is left.
    pub(crate) fn deadline(&self, started: Instant) -> Option<Instant> {
        let Settings { lease, min_validity, .. } = self.0.settings;
        let deadline = started + lease - drift(lease);
        (deadline.saturating_duration_since(Instant::now()) >= min_validity).then_some(deadline)
    }

    /// One owner, and as many proposals as it takes to be above every fence.
    async fn attempt(&self, name: Name) -> Result<Guard, LockError> {
        let mut claim = Claim::new(self.nodes().clone(), name.clone());
        let mut answers = Vec::new();
        for _ in 0..PROPOSALS {
            let proposal = self.seen().proposal(&name);
            let Some(token) = proposal else { return Err(LockError::NoTokenLeft { votes: self.nodes().votes(&answers) }) };
            let started = Instant::now();
            answers = claim.ask(Question::Acquire, self.ballot(&claim, token)).await;
            self.note(&name, &answers);
            if self.nodes().agreed(&answers) {
                return self.admit(claim, token, started, &answers);
            }
            let only_too_low = !self.nodes().blocked_by(&answers, |answer| answer.is_failure() || matches!(answer, Answer::Held { .. }));
            if !only_too_low {
                break;
            }
        }
        Err(self.refusal(&answers))
    }

    fn admit(&self, claim: Claim, token: FencingToken, started: Instant, answers: &[Answer]) -> Result<Guard, LockError> {
        self.seen().note(claim.name(), token);
        match self.deadline(started) {
            Some(deadline) => Ok(Guard::new(self.clone(), claim, token, deadline)),
            None => Err(LockError::TooLate { elapsed: started.elapsed(), votes: self.nodes().votes(answers) }),
        }
    }

    fn refusal(&self, answers: &[Answer]) -> LockError {
        let votes = self.nodes().votes(answers);
        if self.nodes().blocked_by(answers, Answer::is_failure) { LockError::NoQuorum { causes: votes } } else { LockError::Held { votes } }
    }

    fn note(&self, name: &Name, answers: &[Answer]) {
        for answer in answers {
            if let Answer::TooLow { fence } | Answer::Held { fence: Some(fence), .. } = answer {
                self.seen().note(name, *fence);
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the lock may be free on a quorum, but not too long: it may be given back earlier.
    fn pause_after(&self, error: &LockError) -> Duration {
        let retry = self.0.settings.retry;
        let pause = match error {
            LockError::Held { votes } => free_in(votes, self.nodes().quorum).unwrap_or(SCATTER).min(retry),
            _ => retry,
        };
        pause.mul_f64(rand::random_range(0.5..1.0))
    }
}

/// When a quorum of nodes will be free if nobody gives anything back. `None`: it is, and contenders have only got in each other's way.
fn free_in(votes: &[Vote], quorum: usize) -> Option<Duration> {
    let held = |vote: &Vote| match vote.answer {
        Answer::Held { remaining, .. } => Some(remaining.unwrap_or(Duration::MAX)),
        _ => None,
    };
    let mut remaining: Vec<_> = votes.iter().filter_map(held).collect();
    remaining.sort_unstable();
    let free = votes.len() - remaining.len();
    remaining.get(quorum.checked_sub(free + 1)?).copied()
}

fn status(node: &Node, probe: Result<Probe, Answer>) -> NodeStatus {
    let high_water = probe.as_ref().ok().and_then(|probe| FencingToken::new(probe.mark));
    let standing = match (probe, node.exclusion()) {
        (Err(answer), _) => Standing::Unreachable(answer),
        (Ok(_), None) => Standing::Voting,
        (Ok(_), Some(exclusion)) => Standing::Excluded(exclusion),
    };
    NodeStatus { node: node.label.clone(), standing, high_water }
}

impl Seen {
    fn note(&mut self, name: &Name, token: FencingToken) {
        // The last token of one name must not be the last one of all.
        self.highest = self.highest.max(Some(token).filter(|token| *token < FencingToken::LAST));
        if self.by_name.len() >= SEEN_MAX && !self.by_name.contains_key(name.lock()) {
            self.by_name.clear();
        }
        let seen = self.by_name.entry(name.lock().to_owned()).or_insert(token);
        *seen = token.max(*seen);
    }

    fn proposal(&self, name: &Name) -> Option<FencingToken> {
        match self.by_name.get(name.lock()).copied().or(self.highest) {
            None => Some(FencingToken::FIRST),
            Some(seen) => seen.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answer, FencingToken, Name, SEEN_MAX, Seen, Vote, free_in};

    #[test]
    fn one_waits_until_a_quorum_may_be_free() {
        let held = |ms: &[u64]| -> Vec<Vote> {
            let answer = |ms: &u64| match ms {
                0 => Answer::TimedOut,
                ms => Answer::Held { remaining: Some(Duration::from_millis(*ms)), fence: None },
            };
            ms.iter().map(|ms| Vote { node: String::new(), answer: answer(ms) }).collect()
        };
        assert_eq!(free_in(&held(&[30, 10, 20, 50, 40]), 3), Some(Duration::from_millis(30)));
        assert_eq!(free_in(&held(&[30, 10, 20, 0, 0]), 3), Some(Duration::from_millis(10)));
        assert_eq!(free_in(&held(&[30, 0, 20, 0, 0]), 3), None);
    }

    #[test]
    fn forgetting_what_was_seen_never_lowers_a_proposal() {
        let mut seen = Seen::default();
        let name = |name: usize| Name::new(&name.to_string()).unwrap();
        assert_eq!(seen.proposal(&name(0)), Some(FencingToken::FIRST));
        seen.note(&name(0), FencingToken::new(1000).unwrap());
        for other in 1..=SEEN_MAX {
            seen.note(&name(other), FencingToken::FIRST);
        }
        assert!(seen.by_name.len() < SEEN_MAX);
        assert_eq!(seen.proposal(&name(0)), FencingToken::new(1001));
        seen.note(&name(0), FencingToken::LAST);
        assert_eq!(seen.proposal(&name(0)), None);
    }
}
