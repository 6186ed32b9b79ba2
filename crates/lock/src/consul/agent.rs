//! The requests to Consul, each with a timeout.
//!
//! A blocking query may return without a change. The index that it waits for can go backwards when
//! the servers are restored from a snapshot; the query then starts again at zero. Consul's
//! documentation of blocking queries describes both.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::error::Answer;

/// Consul documents that a lock-delay must be positive.
const LOCK_DELAY_MIN: Duration = Duration::from_millis(1);
/// Characters of a refusal that an error shows.
const REFUSAL_CHARS_MAX: usize = 200;

pub(crate) struct Agent {
    pub http: Client,
    /// Base URL up to the version of the API.
    pub url: String,
    pub label: String,
    /// Time limit of each answer.
    pub timeout: Duration,
}

#[derive(Debug, Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    lock_index: u64,
    session: Option<String>,
}

/// State of a key at some index.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    pub index: u64,
    /// How often the key was acquired.
    pub lock_index: u64,
    /// The session that holds the key.
    pub session: Option<String>,
}

impl Agent {
    /// Creates a session that ends only by its TTL. Old servers read `Checks` and new ones
    /// `NodeChecks`: both are empty, for no health checks.
    pub(crate) async fn create_session(
        &self,
        ttl: Duration,
        delay: Duration,
    ) -> Result<String, Answer> {
        let session = json!({
            "Name": "lock",
            "TTL": duration(ttl),
            "LockDelay": duration(delay.max(LOCK_DELAY_MIN)),
            "Behavior": "release",
            "Checks": [],
            "NodeChecks": [],
        });
        let created = self
            .send(
                self.http
                    .put(format!("{}/session/create", self.url))
                    .json(&session),
            )
            .await?;
        created
            .json::<Created>()
            .await
            .map(|created| created.id)
            .map_err(failed)
    }

    /// Restarts the TTL.
    pub(crate) async fn renew(&self, session: &str) -> Result<(), Answer> {
        self.send(
            self.http
                .put(format!("{}/session/renew/{session}", self.url)),
        )
        .await
        .map(drop)
    }

    pub(crate) async fn destroy(&self, session: &str) -> Result<(), Answer> {
        self.send(
            self.http
                .put(format!("{}/session/destroy/{session}", self.url)),
        )
        .await
        .map(drop)
    }

    /// Acquires the key for the session. Returns whether the session holds it now.
    pub(crate) async fn acquire(&self, key: &str, session: &str) -> Result<bool, Answer> {
        self.put(key, "acquire", session).await
    }

    /// Releases the key. Returns whether the session held it.
    pub(crate) async fn release(&self, key: &str, session: &str) -> Result<bool, Answer> {
        self.put(key, "release", session).await
    }

    /// Reads the key from a quorum of the servers.
    pub(crate) async fn read(&self, key: &str) -> Result<KeyState, Answer> {
        key_state(
            self.send(self.http.get(format!("{}/kv/{key}?consistent", self.url)))
                .await,
        )
        .await
    }

    /// Reads the key once it has changed since that index, or after `wait`.
    pub(crate) async fn changed(
        &self,
        key: &str,
        since: u64,
        wait: Duration,
    ) -> Result<KeyState, Answer> {
        let query = format!(
            "{}/kv/{key}?consistent&index={}&wait={}",
            self.url,
            since.max(1),
            duration(wait)
        );
        // Consul adds up to a sixteenth of the wait as jitter.
        let limit = wait + wait / 16 + self.timeout;
        let now = key_state(self.send_within(self.http.get(query), limit).await).await?;
        Ok(if now.index < since {
            KeyState { index: 0, ..now }
        } else {
            now
        })
    }

    async fn put(&self, key: &str, verb: &str, session: &str) -> Result<bool, Answer> {
        let done = self
            .send(
                self.http
                    .put(format!("{}/kv/{key}?{verb}={session}", self.url)),
            )
            .await?;
        done.json().await.map_err(failed)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Answer> {
        self.send_within(request, self.timeout).await
    }

    /// A missing key is a valid answer; a missing session has ended.
    async fn send_within(
        &self,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Response, Answer> {
        let response = request.timeout(limit).send().await.map_err(failed)?;
        let (status, path) = (response.status(), response.url().path());
        if status.is_success() || status == StatusCode::NOT_FOUND && path.starts_with("/v1/kv/") {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND {
            return Err(Answer::Gone);
        }
        let refusal = response.text().await.unwrap_or_default();
        if refusal.contains("invalid session") {
            return Err(Answer::Gone);
        }
        Err(Answer::Unreadable(format!(
            "{status}: {}",
            refusal.chars().take(REFUSAL_CHARS_MAX).collect::<String>()
        )))
    }
}

async fn key_state(response: Result<Response, Answer>) -> Result<KeyState, Answer> {
    let response = response?;
    let index = response
        .headers()
        .get("X-Consul-Index")
        .and_then(|index| index.to_str().ok()?.parse().ok());
    let index = index.ok_or_else(|| Answer::Unreadable("no X-Consul-Index".into()))?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(KeyState {
            index,
            ..KeyState::default()
        });
    }
    let mut entries: Vec<Entry> = response.json().await.map_err(failed)?;
    let Entry {
        lock_index,
        session,
    } = entries
        .pop()
        .ok_or_else(|| Answer::Unreadable("no entry".into()))?;
    Ok(KeyState {
        index,
        lock_index,
        session: session.filter(|session| !session.is_empty()),
    })
}

/// A duration in Consul's notation: seconds wherever that is exact.
fn duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn failed(error: reqwest::Error) -> Answer {
    if error.is_timeout() {
        return Answer::TimedOut;
    }
    if error.is_decode() {
        return Answer::Unreadable(error.to_string());
    }
    Answer::Failed(Arc::new(error))
}
