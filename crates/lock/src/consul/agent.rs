//! What is asked of Consul, each with a timeout.
//!
//! What a reader could get wrong: a question that waits for a change may return without one. And the index that it waits for can go
//! backwards, when servers are restored from a snapshot; then it begins anew. Both are in Consul's documentation of blocking queries.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::error::{Answer, Vote};

/// Consul documents that a lock-delay must be more than nothing.
const LOCK_DELAY_MIN: Duration = Duration::from_millis(1);
/// How much of a refusal is kept.
const REFUSAL_MAX: usize = 200;

pub(crate) struct Agent {
    pub http: Client,
    /// Up to the version of the API.
    pub url: String,
    pub label: String,
    /// For an answer.
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

/// A key as it was at some index.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub index: u64,
    /// How often it has been acquired.
    pub lock_index: u64,
    /// That has it.
    pub session: Option<String>,
}

impl Agent {
    /// There is one vote, that of the datacenter.
    pub(crate) fn votes(&self, answer: Answer) -> Vec<Vote> {
        vec![Vote {
            node: self.label.clone(),
            answer,
        }]
    }

    /// A session that nothing but its TTL ends. Old servers know one way to say that there are no checks, new ones the other.
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
            .ask(
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

    /// Sets the TTL anew.
    pub(crate) async fn renew(&self, session: &str) -> Result<(), Answer> {
        self.ask(
            self.http
                .put(format!("{}/session/renew/{session}", self.url)),
        )
        .await
        .map(drop)
    }

    pub(crate) async fn destroy(&self, session: &str) -> Result<(), Answer> {
        self.ask(
            self.http
                .put(format!("{}/session/destroy/{session}", self.url)),
        )
        .await
        .map(drop)
    }

    /// Whether the key is the session's now.
    pub(crate) async fn acquire(&self, key: &str, session: &str) -> Result<bool, Answer> {
        self.put(key, "acquire", session).await
    }

    /// Whether the key was the session's until now.
    pub(crate) async fn release(&self, key: &str, session: &str) -> Result<bool, Answer> {
        self.put(key, "release", session).await
    }

    /// As a quorum of the servers knows it.
    pub(crate) async fn read(&self, key: &str) -> Result<Seen, Answer> {
        seen(
            self.ask(self.http.get(format!("{}/kv/{key}?consistent", self.url)))
                .await,
        )
        .await
    }

    /// The same, once it has changed since that index, or after a while.
    pub(crate) async fn changed(
        &self,
        key: &str,
        since: u64,
        wait: Duration,
    ) -> Result<Seen, Answer> {
        let question = format!(
            "{}/kv/{key}?consistent&index={}&wait={}",
            self.url,
            since.max(1),
            duration(wait)
        );
        // Consul waits for up to a sixteenth more.
        let patience = wait + wait / 16 + self.timeout;
        let now = seen(self.ask_for(self.http.get(question), patience).await).await?;
        Ok(if now.index < since {
            Seen { index: 0, ..now }
        } else {
            now
        })
    }

    async fn put(&self, key: &str, verb: &str, session: &str) -> Result<bool, Answer> {
        let done = self
            .ask(
                self.http
                    .put(format!("{}/kv/{key}?{verb}={session}", self.url)),
            )
            .await?;
        done.json().await.map_err(failed)
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Response, Answer> {
        self.ask_for(request, self.timeout).await
    }

    /// A key that is not there is an answer to be read; a session that is not there has ended.
    async fn ask_for(
        &self,
        request: RequestBuilder,
        patience: Duration,
    ) -> Result<Response, Answer> {
        let response = request.timeout(patience).send().await.map_err(failed)?;
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
            refusal.chars().take(REFUSAL_MAX).collect::<String>()
        )))
    }
}

async fn seen(response: Result<Response, Answer>) -> Result<Seen, Answer> {
    let response = response?;
    let index = response
        .headers()
        .get("X-Consul-Index")
        .and_then(|index| index.to_str().ok()?.parse().ok());
    let index = index.ok_or_else(|| Answer::Unreadable("no X-Consul-Index".into()))?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(Seen {
            index,
            ..Seen::default()
        });
    }
    let mut entries: Vec<Entry> = response.json().await.map_err(failed)?;
    let Entry {
        lock_index,
        session,
    } = entries
        .pop()
        .ok_or_else(|| Answer::Unreadable("no entry".into()))?;
    Ok(Seen {
        index,
        lock_index,
        session: session.filter(|session| !session.is_empty()),
    })
}

/// As Consul wants it: in seconds wherever that is exact.
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
