//! Extends and releases the lock of the first node, and notices its loss.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::service::{Node, Service};
use crate::{
    error::{Answer, LockError},
    hold::Hold,
    lease::Lease,
};

pub(crate) struct Held<S: Service> {
    service: Arc<S>,
    /// Its drop releases the lock.
    node: S::Node,
}

/// The lease of a lock with this node.
pub(crate) fn lease<S: Service>(service: &S, node: &S::Node) -> Lease {
    service
        .timing()
        .lease
        .of_length(node.granted().saturating_sub(node.unreported()))
}

impl<S: Service> Held<S> {
    /// The background task cancels the returned token when the node is removed. It ends when the
    /// token is cancelled for any other reason.
    pub(crate) fn new(
        service: Arc<S>,
        node: S::Node,
        watch: <S::Node as Node>::Watch,
    ) -> (Self, CancellationToken) {
        let lost = CancellationToken::new();
        let removed = node.removed(watch, service.timing().failed_retry());
        let cancelled = lost.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cancelled.cancelled() => {}
                () = removed => cancelled.cancel(),
            }
        });
        (Self { service, node }, lost)
    }
}

fn refusal(service: &impl Service, answer: Answer) -> LockError {
    match answer {
        Answer::Gone => LockError::Lost {
            votes: service.votes(answer),
        },
        answer => LockError::NoQuorum {
            causes: service.votes(answer),
        },
    }
}

#[async_trait]
impl<S: Service> Hold for Held<S> {
    async fn extend(&mut self) -> Result<Instant, LockError> {
        self.node
            .extend()
            .await
            .map_err(|answer| refusal(&*self.service, answer))?;
        let sent = self.node.kept_alive_at();
        let late = || LockError::TooLate {
            elapsed: sent.elapsed(),
            votes: self.service.votes(Answer::Accepted),
        };
        lease(&*self.service, &self.node)
            .deadline(sent)
            .ok_or_else(late)
    }

    async fn release(self: Box<Self>) -> Result<(), LockError> {
        let Self { service, node } = *self;
        node.leave()
            .await
            .map_err(|answer| refusal(&*service, answer))
    }
}
