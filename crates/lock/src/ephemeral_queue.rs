//! The queue of ephemeral nodes: one lock algorithm for every coordination service that has nodes
//! which end with their client.
//!
//! A contender creates a node below the node of the lock. The service orders the nodes by their
//! creation and removes a node when its client has vanished. The first node holds the lock. Every
//! other contender watches the node ahead of its own and no other, so a release wakes one waiter.
//!
//! The number of the transaction that created the node is the fencing token: the service counts all
//! of its transactions, so tokens rise from holder to holder.
//!
//! The end of the node ahead does not make a contender the first. The owner of that node may have
//! given up while others ahead of it still wait, so the contender reads the queue again each time.
//!
//! | file | content |
//! |---|---|
//! | `service` | the traits that a coordination service implements |
//! | `contender` | enters the queue, watches the predecessor, acquires |
//! | `held` | extends and releases a lock, and notices a loss |

mod contender;
mod held;
mod service;

use std::sync::Arc;

use self::contender::Contender;
pub(crate) use self::service::{Node, Position, Service};
use crate::{
    error::LockError,
    guard::Guard,
    path_segment,
    request::{Capabilities, Request},
    retry,
};

/// What every lock of this kind offers.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    fenced: true,
    fair: true,
    shared: false,
    reentrant: false,
    push_loss: true,
    lock_delay: false,
    clock_free: true,
};

/// Acquires a lock whose queue is below `ROOT/NAME`.
pub(crate) async fn acquire<S: Service>(
    service: &Arc<S>,
    request: Request<'_>,
) -> Result<Guard, LockError> {
    request.require_exclusive(S::BACKEND)?;
    let queue = format!("{}/{}", service.root(), path_segment::encode(request.name)?);
    let mut contender = Contender::new(Arc::clone(service), request, queue);
    retry::acquire(request.wait, &mut contender).await
}
