//! What an owner may have on the nodes, and the certainty that it goes away again.
//!
//! A caller that is cancelled cannot leave a request half sent: the connection's own task sends it,
//! whole or not at all. A claim that is dropped is swept by a separate task: first its requests
//! are stopped, then every node gets a release, also those whose answer is still on the way.
//! A node that does not answer gets it again until the lease would have ended there anyway.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    future::join_all,
    stream::{FuturesUnordered, Stream, StreamExt, poll_fn},
};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout_at},
};

use super::{
    node::{Ballot, Node, Release},
    tokens::Seen,
};
use crate::{
    Mode,
    error::{Answer, Vote},
    owner::unique,
    redis_server::Keys,
};

/// Pause before a node that did not answer gets another release.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// How long the others are waited for at the least when a higher token would do without them.
const GRACE_MIN: Duration = Duration::from_millis(2);

/// Answers as they come in, each with the index of its node.
type Incoming = mpsc::UnboundedReceiver<(usize, Answer)>;

/// The nodes, and how many of them decide.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub all: Arc<[Arc<Node>]>,
    /// Of the configured nodes, never of the live ones.
    pub quorum: usize,
}

impl Nodes {
    pub(crate) fn new(all: Vec<Arc<Node>>) -> Self {
        let quorum = all.len() / 2 + 1;
        Self {
            all: all.into(),
            quorum,
        }
    }

    /// Every node's answer, under its name.
    pub(crate) fn votes(&self, answers: &[Answer]) -> Vec<Vote> {
        self.all
            .iter()
            .zip(answers)
            .map(|(node, answer)| Vote {
                node: node.label().to_owned(),
                answer: answer.clone(),
            })
            .collect()
    }

    /// Asks all nodes concurrently and returns as soon as the matter is decided. Later answers
    /// still come in, in a task of `rest`.
    pub(crate) async fn ask<F>(
        &self,
        rest: &mut JoinSet<()>,
        if_low: IfLow,
        question: impl Fn(Arc<Node>) -> F,
    ) -> Vec<Answer>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let ask = |(index, node)| {
            let asked = question(Arc::clone(node));
            async move { (index, asked.await) }
        };
        let mut asked: FuturesUnordered<_> = self.all.iter().enumerate().map(ask).collect();
        let answers = self.decide(&mut asked, if_low).await;
        if !asked.is_empty() {
            rest.spawn(asked.for_each(async |_| {}));
        }
        answers
    }

    /// Waits until a quorum has accepted, or cannot any more. If it could with a higher token that
    /// will be proposed, those who have not answered yet are given as long again as the others
    /// took, and not their whole timeout.
    async fn decide(
        &self,
        mut incoming: impl Stream<Item = (usize, Answer)> + Unpin,
        if_low: IfLow,
    ) -> Vec<Answer> {
        let started = Instant::now();
        let mut answers = vec![Answer::NotNeeded; self.all.len()];
        let (mut accepted, mut low, mut pending) = (0, 0, self.all.len());
        while accepted < self.quorum && accepted + pending >= self.quorum {
            let next = incoming.next();
            let next = match if_low == IfLow::Higher && low > 0 && accepted + low >= self.quorum {
                true => timeout_at(
                    (Instant::now() + started.elapsed().max(GRACE_MIN)).into(),
                    next,
                )
                .await
                .unwrap_or(None),
                false => next.await,
            };
            let Some((index, answer)) = next else { break };
            accepted += usize::from(answer.is_accepted());
            low += usize::from(matches!(answer, Answer::TooLow { .. }));
            pending -= 1;
            answers[index] = answer;
        }
        answers
    }

    pub(crate) fn agreed(&self, answers: &[Answer]) -> bool {
        answers.iter().filter(|answer| answer.is_accepted()).count() >= self.quorum
    }

    /// Whether so many nodes are of this kind that the others are no quorum.
    pub(crate) fn blocked_by(&self, answers: &[Answer], kind: impl Fn(&Answer) -> bool) -> bool {
        answers.iter().filter(|answer| !kind(answer)).count() < self.quorum
    }
}

/// What a node that finds a token too low means to who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfLow {
    /// A higher one will be proposed.
    Higher,
    /// Its vote is gone, and each of the others counts.
    Over,
}

/// Whether a ballot is put to the nodes for the first time or again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question {
    Acquire,
    Extend,
}

/// An owner, and what it has asked for.
pub(crate) struct Claim {
    nodes: Nodes,
    keys: Keys,
    mode: Mode,
    owner: Arc<str>,
    /// Late answers are noted as well: the next proposal is higher for them.
    seen: Arc<Seen>,
    /// Whether those who wait shall know when it is given back: they need not know of what was
    /// never a lock.
    pub tell: bool,
    requests: JoinSet<()>,
    /// When all leases that were asked for have ended. `None`: nothing was asked for, or it
    /// is being swept.
    traces_until: Option<Instant>,
}

impl Claim {
    /// For a new owner with a random name.
    pub(crate) fn new(nodes: Nodes, keys: Keys, mode: Mode, seen: Arc<Seen>) -> Self {
        Self {
            nodes,
            keys,
            mode,
            owner: unique().into(),
            seen,
            tell: false,
            requests: JoinSet::new(),
            traces_until: None,
        }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Puts a ballot to all nodes concurrently. Answers that come in after the decision do so until
    /// the next question.
    pub(crate) async fn ask(&mut self, question: Question, ballot: Ballot) -> Vec<Answer> {
        self.requests.shutdown().await;
        self.traces_until = Some(Instant::now() + 2 * ballot.ttl);
        let ballot = Arc::new(ballot);
        let put = |node: Arc<Node>| {
            let (ballot, seen) = (Arc::clone(&ballot), Arc::clone(&self.seen));
            async move {
                let answer = match question {
                    Question::Acquire => node.acquire(&ballot).await,
                    Question::Extend => node.extend(&ballot).await,
                };
                match answer {
                    // Also if the others refuse: proposed again, it would be too low here.
                    Answer::Accepted => seen.note(&ballot.keys, ballot.token),
                    Answer::TooLow { fence }
                    | Answer::Held {
                        fence: Some(fence), ..
                    } => seen.note(&ballot.keys, fence),
                    _ => {}
                }
                answer
            }
        };
        let if_low = match question {
            Question::Acquire => IfLow::Higher,
            Question::Extend => IfLow::Over,
        };
        self.nodes.ask(&mut self.requests, if_low, put).await
    }

    /// Gives back whatever the nodes have, and returns as soon as a quorum has done so, or cannot
    /// any more.
    pub(crate) async fn release(mut self) -> Vec<Answer> {
        match self.sweep() {
            Some(mut incoming) => {
                self.nodes
                    .decide(
                        poll_fn(move |context| incoming.poll_recv(context)),
                        IfLow::Over,
                    )
                    .await
            }
            None => Vec::new(),
        }
    }

    /// Leaves what there is to its end.
    pub(crate) fn leave(&mut self) {
        self.traces_until = None;
    }

    /// Starts the task that gives everything back. It ends by itself, and nothing else ends it but
    /// the runtime.
    fn sweep(&mut self) -> Option<Incoming> {
        let until = self.traces_until.take()?;
        // Without a runtime the leases end by themselves.
        let runtime = Handle::try_current().ok()?;
        let (sender, incoming) = mpsc::unbounded_channel();
        let mut requests = mem::take(&mut self.requests);
        let nodes = Arc::clone(&self.nodes.all);
        let release = Release {
            keys: self.keys.clone(),
            mode: self.mode,
            owner: Arc::clone(&self.owner),
            tell: self.tell,
        };
        runtime.spawn(async move {
            requests.shutdown().await;
            let release = |(index, node): (usize, &Arc<Node>)| {
                let (node, release, sender) = (Arc::clone(node), release.clone(), sender.clone());
                async move {
                    let mut answer = node.release(&release).await;
                    // The receiver is gone once the matter is decided.
                    let _ = sender.send((index, answer.clone()));
                    while answer.is_failure() && Instant::now() < until {
                        sleep(SWEEP_PAUSE).await;
                        answer = node.release(&release).await;
                    }
                }
            };
            join_all(nodes.iter().enumerate().map(release)).await;
        });
        Some(incoming)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.sweep();
    }
}
