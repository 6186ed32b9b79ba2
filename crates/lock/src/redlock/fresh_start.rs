//! Lets nodes vote that are all new, without waiting for leases that no client can have.
//!
//! A new node and a node that was wiped look the same. One wiped node among others is recognised by
//! the others: they remember. So a client may let blank nodes vote at once if all N configured
//! nodes answer and all are blank. The nodes must be declared durable, because nodes that were
//! *all* wiped look new as well; only the operator can exclude that.
//!
//! The obvious way is wrong: a look that finds every node blank, each at its own moment, is no
//! proof. Another client may have let the first nodes vote and have taken a lock before the last
//! node is asked, and that one may have been wiped just before. So a client leaves its own mark on
//! each node, in a step that fails unless the node is blank and has no mark. Only if all N nodes
//! have the client's mark does it admit them, each only if the mark is still there. Before any vote
//! is given this way, all nodes have one client's mark; for a second client to succeed, every
//! single node must have been wiped in between. `lab/models/tests/it/lock/memory.rs` checks that in
//! every interleaving, and shows which condition is needed for what:
//!
//! * A mark names one attempt and is sent once.
//! * An attempt that takes as long as the longest lease is given up: a node may have been admitted
//!   after waiting for so long.
//!
//! Of clients that start at the same time one must win, or none has all the marks. All mark the
//! same node first; a client that finds another's mark there leaves the other nodes alone, unless
//! the mark is so old that its client has probably died.

use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};

use super::{
    claim::Nodes,
    durability::Durability,
    node::{Node, Probe},
};
use crate::{error::Answer, owner::unique};

/// How long another client is left to finish what it has begun.
const RIVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Some node votes already, has a mark, is not durable or does not answer.
    DoesNotApply,
    /// All nodes are blank, and another client has begun to mark them.
    LeftToAnother,
    /// All of them have been asked to vote.
    Started,
}

/// An attempt.
pub(super) struct Look<'a> {
    pub nodes: &'a Nodes,
    /// The attempt is given up then.
    pub deadline: Instant,
}

impl Look<'_> {
    /// Marks every node and admits it, if all of them are new.
    pub(super) async fn start(&self, probes: &mut [Result<Probe, Answer>]) -> Outcome {
        let Some(mut nodes) = self.blank(probes) else {
            return Outcome::DoesNotApply;
        };
        // The order that all clients have in common.
        nodes.sort_by(|(a, _), (b, _)| a.label().cmp(b.label()));
        let marked_for = nodes[0].1.marked_for();
        if marked_for.is_some_and(|marked_for| marked_for < RIVAL_TIMEOUT) {
            return Outcome::LeftToAnother;
        }
        if nodes.iter().any(|(_, probe)| probe.is_marked()) {
            return Outcome::DoesNotApply;
        }
        self.mark_and_admit(&mut nodes).await
    }

    /// All nodes, if they are blank and declared durable with reason.
    fn blank<'p>(
        &self,
        probes: &'p mut [Result<Probe, Answer>],
    ) -> Option<Vec<(&Node, &'p mut Probe)>> {
        let is_blank = |probe: &Probe| probe.blank && probe.durability == Durability::Confirmed;
        let found = self.nodes.all.iter().zip(probes);
        found
            .map(|(node, probe)| {
                let probe = probe.as_mut().ok().filter(|probe| is_blank(probe))?;
                Some((&**node, probe))
            })
            .collect()
    }

    async fn mark_and_admit(&self, nodes: &mut [(&Node, &mut Probe)]) -> Outcome {
        let attempt = unique();
        let marks: Vec<_> = nodes
            .iter()
            .map(|(_, probe)| probe.mark_with(&attempt))
            .collect();
        let first = match nodes[0].0.watch_blank(&marks[0]).await {
            Ok(Some(mark)) => mark,
            Ok(None) => return Outcome::LeftToAnother,
            Err(_) => return Outcome::DoesNotApply,
        };
        let others = nodes.iter().zip(&marks).skip(1);
        let others = try_join_all(others.map(|((node, _), mark)| node.watch_blank(mark))).await;
        let others: Option<Vec<String>> = others.ok().and_then(|marks| marks.into_iter().collect());
        let Some(others) = others.filter(|_| Instant::now() < self.deadline) else {
            return Outcome::DoesNotApply;
        };
        let marks: Vec<String> = [first].into_iter().chain(others).collect();
        let admitted = nodes
            .iter_mut()
            .zip(&marks)
            .map(
                async |((node, probe), mark)| match node.admit(probe, 0, mark).await {
                    Ok(is_admitted) => probe.admitted = is_admitted,
                    Err(answer) => node.log_failed_admission(&answer),
                },
            );
        join_all(admitted).await;
        tracing::info!(nodes = nodes.len(), "all nodes are new; they vote at once");
        Outcome::Started
    }
}
