//! Watches the nodes' guards, and lets nodes vote again that may have forgotten locks.
//!
//! Two things may be forgotten. A *lock*: so the node is left out until the longest lease is over since anybody saw this
//! start of the server first. It is marked then, with the time; if the mark is gone it has forgotten again, and the wait begins anew. A
//! *token*: so it votes only above a floor, the highest token that its peers remember. Peers are asked after the wait, because an acquisition that had the node's vote before it forgot is finished by then, or has failed as too late.
//! Of the q nodes of that acquisition q - 1 are peers, so any N - q + 1 peers that vote have one of them; if there are not so many, all N
//! nodes must answer, and whatever can be known is known.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Inner,
    claim::Nodes,
    node::{Node, Probe},
    tokens::Seen,
};
use crate::{
    FencingToken,
    error::{Answer, Exclusion},
};

const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Watches until the lock is dropped.
pub(crate) async fn watch(redlock: Weak<Inner>) {
    loop {
        let Some(inner) = redlock.upgrade() else {
            return;
        };
        let (pause, alarm) = (pause(&inner.nodes), Arc::clone(&inner.alarm));
        drop(inner);
        let _ = timeout(pause, alarm.notified()).await;
        let Some(inner) = redlock.upgrade() else {
            return;
        };
        look(&inner.nodes, &inner.seen).await;
    }
}

/// Until the next node may be admitted, and never longer than a second.
fn pause(nodes: &Nodes) -> Duration {
    waiting(nodes)
        .min()
        .map_or(PAUSE, |votes_in| votes_in.clamp(PAUSE_MIN, PAUSE))
}

/// How long the nodes that will vote are still left out.
fn waiting(nodes: &Nodes) -> impl Iterator<Item = Duration> {
    nodes.all.iter().filter_map(|node| match node.exclusion() {
        Some(Exclusion::Forgot { votes_in }) => Some(votes_in),
        _ => None,
    })
}

/// Waits for nodes without which there is no quorum, and then for all that wait with them.
pub(crate) async fn wait_for_a_quorum(nodes: &Nodes, longest_lease: Duration, seen: &Seen) {
    let wait = async {
        loop {
            look(nodes, seen).await;
            let voting = nodes
                .all
                .iter()
                .filter(|node| node.exclusion().is_none())
                .count();
            if voting >= nodes.quorum || voting + waiting(nodes).count() < nodes.quorum {
                return;
            }
            sleep(waiting(nodes).max().unwrap_or_default().max(PAUSE_MIN)).await;
        }
    };
    // One node that never answers may keep all others from being admitted.
    let _ = timeout(longest_lease + 2 * PAUSE, wait).await;
}

/// Probes every node, and admits those that have waited if enough is known of the tokens.
pub(crate) async fn look(nodes: &Nodes, seen: &Seen) -> Vec<Result<Probe, Answer>> {
    let mut probing = JoinSet::new();
    for (index, node) in nodes.all.iter().cloned().enumerate() {
        probing.spawn(async move { (index, node.probe().await) });
    }
    let mut probes: Vec<_> = nodes.all.iter().map(|_| Err(Answer::NotNeeded)).collect();
    while let Some(Ok((index, probe))) = probing.join_next().await {
        // A proposal that is below a node's mark does not get its vote.
        if let Some(mark) = probe
            .as_ref()
            .ok()
            .and_then(|probe| FencingToken::new(probe.mark))
        {
            seen.note_any(mark);
        }
        probes[index] = probe;
    }
    watch_new(nodes, &probes).await;
    admit(nodes, &probes).await;
    probes
}

/// Marks those that nobody has seen since they may have forgotten.
async fn watch_new(nodes: &Nodes, probes: &[Result<Probe, Answer>]) {
    let found = nodes
        .all
        .iter()
        .zip(probes)
        .filter_map(|(node, probe)| Some((node, probe.as_ref().ok()?)));
    let marked = found
        .filter(|(_, probe)| !probe.admitted && probe.watch.is_none())
        .map(|(node, probe)| node.watch(probe));
    for answer in join_all(marked).await.into_iter().filter_map(Result::err) {
        tracing::debug!(%answer, "a node could not be marked; its wait begins anew");
    }
}

async fn admit(nodes: &Nodes, probes: &[Result<Probe, Answer>]) {
    let found = || probes.iter().flatten();
    let voting = found().filter(|probe| probe.admitted).count();
    if voting < nodes.all.len() - nodes.quorum + 1 && found().count() < nodes.all.len() {
        return;
    }
    let mark = found().map(|probe| probe.mark).max().unwrap_or_default();
    for (node, probe) in nodes.all.iter().zip(probes) {
        if let Ok(Probe {
            run_id,
            waited: true,
            watch: Some(watch),
            ..
        }) = probe
        {
            admit_one(node, run_id, mark, watch).await;
        }
    }
}

async fn admit_one(node: &Node, run_id: &str, mark: i64, watch: &str) {
    if let Err(answer) = node.admit(run_id, mark, watch).await {
        tracing::warn!(node = node.label(), %answer, "a node could not be admitted");
    }
}
