//! Locks in etcd: a lease for each contender, a queue in the order of create revisions, and the
//! create revision as the token.
//!
//! The [queue](crate::ephemeral_queue) consists of keys below the lock's prefix. Each key hangs on
//! the lease of its contender and ends with it. Revisions count all writes of the cluster, so
//! tokens rise from holder to holder. They start again only if the cluster itself does: a restore
//! from an older backup loses the tokens that were given since.
//!
//! The server decides how long a lease is. It counts in whole seconds and grants none that is
//! shorter than one and a half elections, so the guard uses the granted length. A waiter's lease
//! runs while it waits: the waiter keeps it alive, or it loses its position in the queue.
//!
//! | file | content |
//! |---|---|
//! | `builder` | every setting and its validation |
//! | `node` | a lease and a key: one position in the queue, and its removal |
//! | `server` | the requests to etcd, each with a timeout |

mod builder;
mod node;
mod server;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::builder::EtcdBuilder;
use self::{node::EtcdNode, server::Server};
use crate::{
    backend::Lock,
    ephemeral_queue::{self, Service},
    error::{Answer, LockError},
    guard::Guard,
    options::Timing,
    request::{Capabilities, Request},
};

/// Locks in etcd. Cheap to clone.
#[derive(Clone)]
pub struct EtcdLock(Arc<EtcdService>);

struct EtcdService {
    server: Arc<Server>,
    prefix: String,
    timing: Timing,
}

#[async_trait]
impl Lock for EtcdLock {
    fn capabilities(&self) -> Capabilities {
        ephemeral_queue::CAPABILITIES
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        ephemeral_queue::acquire(&self.0, request).await
    }
}

impl Service for EtcdService {
    const BACKEND: &'static str = "etcd";

    type Node = EtcdNode;

    fn label(&self) -> &str {
        &self.server.label
    }

    fn root(&self) -> &str {
        &self.prefix
    }

    fn timing(&self) -> &Timing {
        &self.timing
    }

    async fn node(&self, queue: &str) -> Result<EtcdNode, Answer> {
        let server = Arc::clone(&self.server);
        Ok(EtcdNode::new(server, queue, self.timing.lease.length))
    }
}
