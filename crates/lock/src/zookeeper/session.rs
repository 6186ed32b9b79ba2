//! The session with the ensemble, opened again when it has ended.
//!
//! While the connection is lost, requests wait for the next one and are then carried out in their
//! order, also requests whose caller has gone. A request is therefore undone by a later request on
//! the same session.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error};

use crate::error::Answer;

pub(crate) struct Sessions {
    servers: String,
    /// The session timeout that is requested.
    length: Duration,
    /// Time limit of each answer.
    timeout: Duration,
    current: Mutex<Option<Session>>,
}

/// One session, and the time limit of its answers.
#[derive(Clone)]
pub(crate) struct Session {
    pub client: Client,
    timeout: Duration,
}

impl Sessions {
    pub(crate) fn new(servers: String, length: Duration, timeout: Duration) -> Self {
        Self {
            servers,
            length,
            timeout,
            current: Mutex::default(),
        }
    }

    pub(crate) fn servers(&self) -> &str {
        &self.servers
    }

    /// A session that has not ended as far as the client knows.
    pub(crate) async fn current(&self) -> Result<Session, Answer> {
        timeout(self.timeout, self.current_or_new())
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }

    async fn current_or_new(&self) -> Result<Session, Error> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.has_ended()) {
            return Ok(session.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(self.length)
            .with_fail_eagerly();
        let client = connector.connect(&self.servers).await?;
        Ok(current
            .insert(Session {
                client,
                timeout: self.timeout,
            })
            .clone())
    }
}

impl Session {
    /// Whether the session has ended. The ensemble removes every node that it created.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// The session timeout that the server granted.
    pub(crate) fn length(&self) -> Duration {
        self.client.session_timeout()
    }

    pub(crate) async fn send<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Answer> {
        timeout(self.timeout, request)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

/// A session that has ended counts as a missing node, because its nodes end with it.
fn failed(error: Error) -> Answer {
    match error {
        Error::NoNode | Error::SessionExpired | Error::ClientClosed => Answer::Gone,
        error => Answer::Failed(Arc::new(error)),
    }
}
