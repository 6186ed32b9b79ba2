//! A lease and a key: one position in the queue, and its removal.
//!
//! The client chooses the number of the lease before it sends anything. A node that is dropped can
//! therefore be removed whatever part of it has arrived: a background task revokes the lease until
//! a server answers, or until the lease would have ended by itself. A lease that is granted after
//! that has no key, and a key that is put after that is refused.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::sleep};

use super::server::{Predecessor, Server};
use crate::{
    ephemeral_queue::{Node, Position},
    error::Answer,
};

/// Pause before a server that did not answer is sent the revocation again.
const REVOKE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A waiter keeps its lease alive once this fraction of it (a third) has passed.
const KEEP_ALIVE_FRACTION: u32 = 3;
/// After a failure the keep-alive is repeated at intervals of this fraction of the lease.
const KEEP_ALIVE_RETRY_FRACTION: u32 = 30;

pub(crate) struct EtcdNode {
    server: Arc<Server>,
    /// Prefix of all keys of the queue.
    queue: String,
    key: String,
    /// Number of the lease.
    lease: i64,
    /// Length of the lease, as the server granted it.
    granted: Duration,
    kept_alive_at: Instant,
    /// The revision at which the key was created, once it is known.
    created: Option<i64>,
}

impl EtcdNode {
    /// Chooses the number of the lease. Nothing is sent yet.
    pub(crate) fn new(server: Arc<Server>, queue: &str, length: Duration) -> Self {
        let lease = rand::random_range(1..=i64::MAX);
        let queue = format!("{queue}/");
        let key = format!("{queue}{lease:016x}");
        Self {
            server,
            queue,
            key,
            lease,
            granted: length,
            kept_alive_at: Instant::now(),
            created: None,
        }
    }

    /// Keeps the lease alive until that fails, and returns the failure.
    async fn keep_alive_until_failure(&mut self) -> Answer {
        let mut next = self.kept_alive_at + self.granted / KEEP_ALIVE_FRACTION;
        loop {
            sleep(next.saturating_duration_since(Instant::now())).await;
            next = match self.keep_alive().await {
                Ok(()) => self.kept_alive_at + self.granted / KEEP_ALIVE_FRACTION,
                Err(Answer::Gone) => return Answer::Gone,
                Err(answer) if self.kept_alive_at.elapsed() > self.granted => return answer,
                Err(_) => Instant::now() + self.granted / KEEP_ALIVE_RETRY_FRACTION,
            };
        }
    }
}

impl Node for EtcdNode {
    type Predecessor = Predecessor;
    type Watch = ();

    /// A lease without a key may belong to a request whose answer was lost, so another attempt
    /// starts with another lease.
    fn is_usable(&self) -> bool {
        self.is_queued()
    }

    fn is_queued(&self) -> bool {
        self.created.is_some()
    }

    async fn enter(&mut self, only_if_first: bool) -> Result<Position<Predecessor>, Answer> {
        self.kept_alive_at = Instant::now();
        self.granted = self.server.grant(self.lease, self.granted).await?;
        let (created, position) = if only_if_first {
            self.server
                .create_first(&self.queue, &self.key, self.lease)
                .await?
        } else {
            self.server
                .create_last(&self.queue, &self.key, self.lease)
                .await?
        };
        self.created = Some(created).filter(|created| *created > 0);
        Ok(position)
    }

    async fn position(&self) -> Result<Position<Predecessor>, Answer> {
        match self.created {
            Some(created) => self.server.position(&self.queue, created).await,
            None => Ok(Position::Gone),
        }
    }

    async fn created(&self) -> Result<(i64, ()), Answer> {
        self.created
            .map(|created| (created, ()))
            .ok_or(Answer::Gone)
    }

    async fn keep_alive(&mut self) -> Result<(), Answer> {
        let sent = Instant::now();
        self.server.keep_alive(self.lease).await?;
        self.kept_alive_at = sent;
        Ok(())
    }

    /// Another client may have deleted the key and left the lease, so both are checked.
    async fn extend(&mut self) -> Result<(), Answer> {
        self.keep_alive().await?;
        let created = self.created.ok_or(Answer::Gone)?;
        let exists = self.server.exists(&self.key, created).await?;
        exists.map(drop).ok_or(Answer::Gone)
    }

    fn kept_alive_at(&self) -> Instant {
        self.kept_alive_at
    }

    fn granted(&self) -> Duration {
        self.granted
    }

    async fn wait_for(&mut self, predecessor: &Predecessor) -> Result<(), Answer> {
        let server = Arc::clone(&self.server);
        tokio::select! {
            deleted = server.deleted(&predecessor.key, predecessor.as_of + 1) => deleted,
            answer = self.keep_alive_until_failure() => {
                tracing::debug!(%answer, key = self.key, "queue position lost");
                Ok(())
            }
        }
    }

    /// A watch that breaks is opened again at the revision after the last read, so no deletion is
    /// missed between the two.
    fn removed(&self, (): (), retry: Duration) -> impl Future<Output = ()> + Send + 'static {
        let (server, key) = (Arc::clone(&self.server), self.key.clone());
        let created = self.created.unwrap_or_default();
        async move {
            let mut since = created + 1;
            while server.deleted(&key, since).await.is_err() {
                sleep(retry).await;
                match server.exists(&key, created).await {
                    Ok(Some(revision)) => since = revision + 1,
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
        }
    }

    /// The drop revokes the lease in the background.
    async fn leave(self) -> Result<(), Answer> {
        let created = self.created.ok_or(Answer::Gone)?;
        let existed = self.server.delete(&self.key, created).await?;
        existed.then_some(()).ok_or(Answer::Gone)
    }
}

impl Drop for EtcdNode {
    fn drop(&mut self) {
        // Without a runtime the lease ends by itself.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (server, lease) = (Arc::clone(&self.server), self.lease);
        let until = Instant::now() + 2 * self.granted;
        runtime.spawn(async move {
            while !matches!(server.revoke(lease).await, Ok(()) | Err(Answer::Gone))
                && Instant::now() < until
            {
                sleep(REVOKE_RETRY_INTERVAL).await;
            }
        });
    }
}
