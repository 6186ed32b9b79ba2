//! Watches the nodes' guards, and admits nodes that may vote again.
//!
//! A node that restarted may have lost two things. A *lock*: so the node does not vote until the
//! longest lease has passed since the first look at this run of the server. That look marks the
//! node, with the time. If the mark is gone, the node has lost its data again, and the wait starts
//! from the beginning. A *token*: so it votes only above a floor, the highest token that its peers
//! remember. Peers are asked after the wait, because an acquisition that had the node's vote before
//! it forgot has finished or failed as too late after the wait. Of the q nodes of that acquisition
//! q - 1 are peers, so any N - q + 1 peers that vote have one of them; if there are not so many,
//! all N nodes must answer, and whatever can be known is known. Two kinds of nodes need not wait:
//! durable nodes that kept their votes (`durability.rs`), and nodes that are all new
//! (`fresh_start.rs`).

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Inner,
    claim::Nodes,
    durability::Durability,
    fresh_start::{self, Outcome},
    node::Probe,
    tokens::Seen,
};
use crate::{
    FencingToken,
    error::{Answer, Exclusion},
};

const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Between two looks while there is no quorum.
const PAUSE_FOR_QUORUM: Duration = Duration::from_millis(50);

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
        look(&inner).await;
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
pub(crate) async fn wait_for_a_quorum(inner: &Inner) {
    let nodes = &inner.nodes;
    let wait = async {
        let mut all_until = None;
        loop {
            look(inner).await;
            let voting = nodes
                .all
                .iter()
                .filter(|node| node.exclusion().is_none())
                .count();
            let left = waiting(nodes).max().unwrap_or_default();
            let is_quorum = voting >= nodes.quorum;
            let waits_for_others =
                !left.is_zero() && all_until.is_some_and(|until| Instant::now() < until);
            if is_quorum && !waits_for_others || voting + waiting(nodes).count() < nodes.quorum {
                return;
            }
            if !is_quorum {
                all_until = Some(Instant::now() + left);
            }
            // Another client may let them vote earlier.
            sleep(left.clamp(PAUSE_MIN, PAUSE_FOR_QUORUM)).await;
        }
    };
    // One node that never answers may keep all others from being admitted.
    let _ = timeout(inner.settings.longest_lease + 2 * PAUSE, wait).await;
}

/// Probes every node, and lets those vote that may.
pub(crate) async fn look(inner: &Inner) -> Vec<Result<Probe, Answer>> {
    let _one_look = inner.looking.lock().await;
    let nodes = &inner.nodes;
    let started = Instant::now();
    let mut probes = probe_all(nodes, &inner.seen).await;
    admit_kept(nodes, &mut probes).await;
    note_durability(nodes, &probes).await;
    let look = fresh_start::Look {
        nodes,
        deadline: started + inner.settings.longest_lease,
    };
    if look.start(&mut probes).await == Outcome::DoesNotApply {
        watch_new(nodes, &probes).await;
        admit_waited(nodes, &probes).await;
    }
    probes
}

async fn probe_all(nodes: &Nodes, seen: &Seen) -> Vec<Result<Probe, Answer>> {
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
    probes
}

/// Lets durable nodes vote that have restarted with their votes.
async fn admit_kept(nodes: &Nodes, probes: &mut [Result<Probe, Answer>]) {
    let admitted = nodes.all.iter().zip(probes).map(async |(node, probe)| {
        if let Ok(probe) = probe {
            match node.admit_kept(probe).await {
                Ok(admitted) => probe.admitted |= admitted,
                Err(answer) => node.log_failed_admission(&answer),
            }
        }
    });
    join_all(admitted).await;
}

/// Notes on a node that votes whether its votes survive a restart from now on.
async fn note_durability(nodes: &Nodes, probes: &[Result<Probe, Answer>]) {
    let noted = nodes.all.iter().zip(probes).map(async |(node, probe)| {
        let Ok(probe) = probe else { return };
        let is_new = match probe.durability {
            Durability::Confirmed => !probe.noted_durable,
            Durability::Refuted { .. } => probe.noted_durable,
            Durability::NotDeclared => false,
        };
        if probe.admitted
            && is_new
            && let Err(answer) = node.admit(probe, 0, "").await
        {
            tracing::debug!(node = node.label(), %answer, "durability could not be noted");
        }
    });
    join_all(noted).await;
}

/// Marks the nodes that do not vote and have no mark of this run.
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
        tracing::debug!(%answer, "a node could not be marked; its wait has not begun");
    }
}

/// Lets nodes vote that have waited, if enough is known of the tokens.
async fn admit_waited(nodes: &Nodes, probes: &[Result<Probe, Answer>]) {
    let found = || probes.iter().flatten();
    let voting = found().filter(|probe| probe.admitted).count();
    if voting < nodes.all.len() - nodes.quorum + 1 && found().count() < nodes.all.len() {
        return;
    }
    let floor = found().map(|probe| probe.mark).max().unwrap_or_default();
    for (node, probe) in nodes.all.iter().zip(probes) {
        let Ok(probe) = probe else { continue };
        if let (false, true, Some(watch)) = (probe.admitted, probe.waited, &probe.watch) {
            match node.admit(probe, floor, watch).await {
                Ok(true) => tracing::info!(
                    node = node.label(),
                    above = floor,
                    "a node that may have forgotten locks votes again"
                ),
                Ok(false) => {}
                Err(answer) => node.log_failed_admission(&answer),
            }
        }
    }
}
