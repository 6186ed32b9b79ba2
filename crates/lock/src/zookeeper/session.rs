//! The session with the ensemble, made anew when it has ended.
//!
//! What a reader could get wrong: while the connection is lost, requests wait for the next one and are then carried out in their order, also
//! those that nobody waits for any more. Whatever undoes a request is therefore asked of the same session, after it.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error};

use crate::error::Answer;

pub(crate) struct Sessions {
    servers: String,
    /// That is asked for.
    length: Duration,
    /// For an answer.
    timeout: Duration,
    current: Mutex<Option<Session>>,
}

/// One session, and how long its servers are waited for.
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

    /// One that has not ended, as far as we know.
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
    /// Nothing that it has created is there any more, or will be for long.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// As the server has granted it.
    pub(crate) fn length(&self) -> Duration {
        self.client.session_timeout()
    }

    pub(crate) async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Answer> {
        timeout(self.timeout, asked)
            .await
            .map_err(|_| Answer::TimedOut)?
            .map_err(failed)
    }
}

/// A node that is not there, and a session that has ended, which comes to the same.
fn failed(error: Error) -> Answer {
    match error {
        Error::NoNode | Error::SessionExpired | Error::ClientClosed => Answer::Gone,
        error => Answer::Failed(Arc::new(error)),
    }
}
