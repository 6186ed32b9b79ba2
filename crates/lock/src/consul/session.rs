//! A session and the key that it acquired, and their removal.
//!
//! Consul chooses the identifiers of sessions, so a caller that is cancelled could leave a session
//! behind whose identifier is unknown. Sessions are therefore created, and keys acquired, in tasks
//! of their own that no caller can cancel. The drop starts another task: it waits for an acquire
//! that is in flight, releases the key, and only then destroys the session, because destroying it
//! earlier would start the lock-delay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use super::agent::Agent;
use crate::error::Answer;

/// Pause before a Consul that did not answer is sent the request again.
const REMOVE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// After this multiple of its TTL a session has certainly ended by itself.
const TTL_GRACE: u32 = 2;

pub(crate) struct Session {
    agent: Arc<Agent>,
    key: Arc<str>,
    id: String,
    ttl: Duration,
    /// When the last successful renewal was sent.
    pub renewed_at: Instant,
    /// Whether the session may hold the key.
    may_hold: bool,
    acquiring: Option<JoinHandle<Result<bool, Answer>>>,
}

impl Session {
    /// Creates the session.
    pub(crate) async fn open(
        agent: Arc<Agent>,
        key: Arc<str>,
        ttl: Duration,
        delay: Duration,
    ) -> Result<Self, Answer> {
        let open = async move {
            let renewed_at = Instant::now();
            let id = agent.create_session(ttl, delay).await?;
            Ok(Self {
                agent,
                key,
                id,
                ttl,
                renewed_at,
                may_hold: false,
                acquiring: None,
            })
        };
        // If the caller has gone, the task drops the session as soon as it is created.
        tokio::spawn(open)
            .await
            .map_err(|error| Answer::Failed(Arc::new(error)))?
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Restarts the TTL.
    pub(crate) async fn renew(&mut self) -> Result<(), Answer> {
        let sent = Instant::now();
        self.agent.renew(&self.id).await?;
        self.renewed_at = sent;
        Ok(())
    }

    /// Acquires the key. Returns whether the session holds it now.
    pub(crate) async fn acquire(&mut self) -> Result<bool, Answer> {
        let (agent, key, session) = (
            Arc::clone(&self.agent),
            Arc::clone(&self.key),
            self.id.clone(),
        );
        self.may_hold = true;
        let acquiring =
            self.acquiring.insert(tokio::spawn(
                async move { agent.acquire(&key, &session).await },
            ));
        let acquired = acquiring
            .await
            .map_err(|error| Answer::Failed(Arc::new(error)))?;
        self.acquiring = None;
        self.may_hold = !matches!(acquired, Ok(false));
        acquired
    }

    /// Skips the release, so that the end of the session starts the lock-delay.
    pub(crate) fn keep_lock_delay(&mut self) {
        self.may_hold = false;
    }

    /// Releases the key and returns whether the session held it. The drop destroys the session in
    /// the background.
    pub(crate) async fn release(mut self) -> Result<bool, Answer> {
        let released = self.agent.release(&self.key, &self.id).await;
        self.may_hold = released.is_err();
        released
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without a runtime the session ends by itself.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (agent, key, session) = (
            Arc::clone(&self.agent),
            Arc::clone(&self.key),
            self.id.clone(),
        );
        let (may_hold, acquiring, until) = (
            self.may_hold,
            self.acquiring.take(),
            Instant::now() + TTL_GRACE * self.ttl,
        );
        runtime.spawn(async move {
            if let Some(acquiring) = acquiring {
                // The key is released whatever the answer is.
                let _ = acquiring.await;
            }
            while may_hold
                && is_failure(agent.release(&key, &session).await.err())
                && Instant::now() < until
            {
                sleep(REMOVE_RETRY_INTERVAL).await;
            }
            while is_failure(agent.destroy(&session).await.err()) && Instant::now() < until {
                sleep(REMOVE_RETRY_INTERVAL).await;
            }
        });
    }
}

fn is_failure(answer: Option<Answer>) -> bool {
    answer.is_some_and(|answer| !matches!(answer, Answer::Gone))
}
