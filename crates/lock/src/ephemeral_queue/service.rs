//! What a coordination service provides for a queue.
//!
//! A request that timed out is not undone: the service may carry it out later. A [`Node`] therefore
//! chooses an identifier before it sends anything, and its drop removes whatever exists under that
//! identifier, in a background task.

use std::time::{Duration, Instant};

use crate::{
    error::{Answer, Vote},
    options::Timing,
};

/// A coordination service, as one client sees it.
pub(crate) trait Service: Send + Sync + 'static {
    /// Name of the backend, for errors.
    const BACKEND: &'static str;

    type Node: Node;

    /// The servers, for errors. Any of them may have answered.
    fn label(&self) -> &str;

    /// Path of the node below which all queues are.
    fn root(&self) -> &str;

    fn timing(&self) -> &Timing;

    /// A node that can enter the queue. Nothing of it exists at the service yet.
    fn node(&self, queue: &str) -> impl Future<Output = Result<Self::Node, Answer>> + Send;

    /// The service as a whole has one vote.
    fn votes(&self, answer: Answer) -> Vec<Vote> {
        Vote::single(self.label(), answer)
    }
}

/// A position in the queue.
#[derive(Debug)]
pub(crate) enum Position<P> {
    First,
    /// Behind this node, which was created by this transaction if the service reports it.
    Behind(P, Option<i64>),
    /// The node is not in the queue any more.
    Gone,
}

/// An ephemeral node in the queue of a lock. Dropping it removes it in the background.
pub(crate) trait Node: Send + Sync + 'static {
    /// The node ahead, as the service identifies it.
    type Predecessor: Send + Sync;
    /// A watch on our own node.
    type Watch: Send;

    /// Whether another attempt may use this node. Otherwise the attempt starts with a new one.
    fn is_usable(&self) -> bool;

    /// Whether the node is known to be in the queue.
    fn is_queued(&self) -> bool;

    /// Creates the node at the end of the queue. With `only_if_first`, it is created only if the
    /// queue is empty.
    fn enter(
        &mut self,
        only_if_first: bool,
    ) -> impl Future<Output = Result<Position<Self::Predecessor>, Answer>> + Send;

    /// Reads the position of a node that is queued.
    fn position(&self) -> impl Future<Output = Result<Position<Self::Predecessor>, Answer>> + Send;

    /// The transaction that created the node, and a watch on the node.
    fn created(&self) -> impl Future<Output = Result<(i64, Self::Watch), Answer>> + Send;

    /// Proves to the service that the client lives, and restarts the time that the node has.
    /// `Gone` if there is no such node any more.
    fn keep_alive(&mut self) -> impl Future<Output = Result<(), Answer>> + Send;

    /// Like [`keep_alive`](Self::keep_alive), for a holder: success proves that the node still
    /// exists.
    fn extend(&mut self) -> impl Future<Output = Result<(), Answer>> + Send {
        self.keep_alive()
    }

    /// When the last successful [`keep_alive`](Self::keep_alive) was sent.
    fn kept_alive_at(&self) -> Instant;

    /// How long the service keeps the node without a sign of life, as it was granted.
    fn granted(&self) -> Duration;

    /// How much of the granted time the service may have used up before it learns of a sign of
    /// life.
    fn unreported(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns when the predecessor was removed, or our own node was lost. Until then the node is
    /// kept alive.
    fn wait_for(
        &mut self,
        predecessor: &Self::Predecessor,
    ) -> impl Future<Output = Result<(), Answer>> + Send;

    /// Returns when the node was removed, by whatever client. A failed watch is repeated after
    /// `retry`. The future does not borrow the node.
    fn removed(
        &self,
        watch: Self::Watch,
        retry: Duration,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Removes the node. `Gone` if it did not exist any more.
    fn leave(self) -> impl Future<Output = Result<(), Answer>> + Send;
}
