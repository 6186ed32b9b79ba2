//! A lease and a key: a place in the queue, and the certainty that it goes away again.
//!
//! The number of the lease is ours and is chosen before anything is sent, so a place that is dropped can be given back whatever has arrived of
//! it: a task of its own revokes the lease, again and again until somebody answers or the lease would have ended by itself. A lease that is
//! granted after that has no key; a key that is put after that is refused.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::sleep};

use super::server::Server;
use crate::error::Answer;

/// How long a server that did not answer is left alone before it is told again to revoke.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
/// A lease is kept alive when so much of it is over, and again soon after a failure.
const KEEP_AFTER: u32 = 3;
const KEEP_AGAIN_AFTER: u32 = 30;

pub(crate) struct Place {
    server: Arc<Server>,
    prefix: String,
    key: String,
    /// Its number.
    lease: i64,
    /// Of the lease, as it was granted.
    pub length: Duration,
    /// When the last request was sent that has set the lease anew.
    pub confirmed: Instant,
    /// The revision at which our key was created, once it is known.
    pub created: Option<i64>,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) enum Turn {
    Ours,
    Behind(Front),
    /// We have no place any more.
    Gone,
}

/// The key in front of us.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub key: String,
    pub created: i64,
    /// The revision at which it was there.
    pub as_of: i64,
}

impl Place {
    /// Nothing is sent yet.
    pub(crate) fn new(server: Arc<Server>, prefix: &str, length: Duration) -> Self {
        let lease = rand::random_range(1..=i64::MAX);
        let key = format!("{prefix}{lease:016x}");
        Self {
            server,
            prefix: prefix.to_owned(),
            key,
            lease,
            length,
            confirmed: Instant::now(),
            created: None,
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Takes the place: at the end of the queue, or only if nobody else has one.
    pub(crate) async fn take(&mut self, alone: bool) -> Result<Turn, Answer> {
        self.confirmed = Instant::now();
        self.length = self.server.grant(self.lease, self.length).await?;
        let (created, turn) = if alone {
            self.server
                .create_alone(&self.prefix, &self.key, self.lease)
                .await?
        } else {
            self.server
                .queue(&self.prefix, &self.key, self.lease)
                .await?
        };
        self.created = Some(created).filter(|created| *created > 0);
        Ok(turn)
    }

    pub(crate) async fn turn(&self) -> Result<Turn, Answer> {
        match self.created {
            Some(created) => self.server.turn(&self.prefix, created).await,
            None => Ok(Turn::Gone),
        }
    }

    /// Sets the lease anew.
    pub(crate) async fn confirm(&mut self) -> Result<(), Answer> {
        let sent = Instant::now();
        self.server.keep_alive(self.lease).await?;
        self.confirmed = sent;
        Ok(())
    }

    /// The same if much of the lease is over.
    pub(crate) async fn confirm_if_due(&mut self) -> Result<(), Answer> {
        if self.confirmed.elapsed() < self.length / KEEP_AFTER {
            Ok(())
        } else {
            self.confirm().await
        }
    }

    /// Keeps the place for as long as that can be done, and says why it cannot any more.
    pub(crate) async fn keep(&mut self) -> Answer {
        let mut next = self.confirmed + self.length / KEEP_AFTER;
        loop {
            sleep(next.saturating_duration_since(Instant::now())).await;
            next = match self.confirm().await {
                Ok(()) => self.confirmed + self.length / KEEP_AFTER,
                Err(Answer::Gone) => return Answer::Gone,
                Err(answer) if self.confirmed.elapsed() > self.length => return answer,
                Err(_) => Instant::now() + self.length / KEEP_AGAIN_AFTER,
            };
        }
    }

    /// Whether it was ours until then. The lease is revoked in the background.
    pub(crate) async fn leave(self) -> Result<bool, Answer> {
        match self.created {
            Some(created) => self.server.delete(&self.key, created).await,
            None => Ok(false),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without a runtime the lease ends by itself.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (server, lease, until) = (
            Arc::clone(&self.server),
            self.lease,
            Instant::now() + 2 * self.length,
        );
        runtime.spawn(async move {
            while !matches!(server.revoke(lease).await, Ok(()) | Err(Answer::Gone))
                && Instant::now() < until
            {
                sleep(SWEEP_PAUSE).await;
            }
        });
    }
}
