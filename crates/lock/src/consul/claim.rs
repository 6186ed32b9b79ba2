//! A session and what it has acquired, and the certainty that it goes away again.
//!
//! Consul chooses the names of sessions, so a caller that is cancelled could leave one behind that nobody knows. Sessions are therefore made,
//! and keys acquired, in tasks of their own. A claim that is dropped is swept by another: it waits for the acquire that is on its way,
//! releases, and only then destroys the session, which would start the lock-delay otherwise.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

use super::agent::Agent;
use crate::error::Answer;

/// How long a Consul that did not answer is left alone before it is told again.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
/// Of the TTL: after so much longer a session has ended by itself.
const GRACE: u32 = 2;

pub(crate) struct Claim {
    agent: Arc<Agent>,
    key: Arc<str>,
    session: String,
    ttl: Duration,
    /// When the last request was sent that has set the TTL anew.
    pub renewed: Instant,
    /// Whether the session may have the key.
    traces: bool,
    acquiring: Option<JoinHandle<Result<bool, Answer>>>,
}

impl Claim {
    /// With a session of its own.
    pub(crate) async fn open(
        agent: Arc<Agent>,
        key: Arc<str>,
        ttl: Duration,
        delay: Duration,
    ) -> Result<Self, Answer> {
        let open = async move {
            let renewed = Instant::now();
            let session = agent.create_session(ttl, delay).await?;
            Ok(Self {
                agent,
                key,
                session,
                ttl,
                renewed,
                traces: false,
                acquiring: None,
            })
        };
        // If nobody waits for it any more, it is dropped as soon as it is there.
        tokio::spawn(open)
            .await
            .map_err(|error| Answer::Failed(Arc::new(error)))?
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Sets the TTL anew.
    pub(crate) async fn renew(&mut self) -> Result<(), Answer> {
        let sent = Instant::now();
        self.agent.renew(&self.session).await?;
        self.renewed = sent;
        Ok(())
    }

    /// Whether the key is ours now.
    pub(crate) async fn acquire(&mut self) -> Result<bool, Answer> {
        let (agent, key, session) = (
            Arc::clone(&self.agent),
            Arc::clone(&self.key),
            self.session.clone(),
        );
        self.traces = true;
        let acquiring =
            self.acquiring.insert(tokio::spawn(
                async move { agent.acquire(&key, &session).await },
            ));
        let acquired = acquiring
            .await
            .map_err(|error| Answer::Failed(Arc::new(error)))?;
        self.acquiring = None;
        self.traces = !matches!(acquired, Ok(false));
        acquired
    }

    /// Leaves the key to the lock-delay, which the end of the session starts.
    pub(crate) fn leave(&mut self) {
        self.traces = false;
    }

    /// Whether the key was ours until now. The session is destroyed in the background.
    pub(crate) async fn release(mut self) -> Result<bool, Answer> {
        let released = self.agent.release(&self.key, &self.session).await;
        self.traces = released.is_err();
        released
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Without a runtime the session ends by itself.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (agent, key, session) = (
            Arc::clone(&self.agent),
            Arc::clone(&self.key),
            self.session.clone(),
        );
        let (traces, acquiring, until) = (
            self.traces,
            self.acquiring.take(),
            Instant::now() + GRACE * self.ttl,
        );
        runtime.spawn(async move {
            if let Some(acquiring) = acquiring {
                // Whatever it says, the key is released.
                let _ = acquiring.await;
            }
            while traces
                && is_failure(agent.release(&key, &session).await.err())
                && Instant::now() < until
            {
                sleep(SWEEP_PAUSE).await;
            }
            while is_failure(agent.destroy(&session).await.err()) && Instant::now() < until {
                sleep(SWEEP_PAUSE).await;
            }
        });
    }
}

fn is_failure(answer: Option<Answer>) -> bool {
    answer.is_some_and(|answer| !matches!(answer, Answer::Gone))
}
