//! The key set of the issuer of buyers' tokens: a file, or an address that is asked again and
//! again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use lock::without_secrets;
use order::{Credentials, TokenPolicy};
use reqwest::Url;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::http;

/// How often the set is read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
/// The shortest time between two reads, however many tokens name unknown keys: anyone can send
/// those.
const REFRESH_PAUSE: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const BYTES_MAX: usize = 1024 * 1024;

/// Where the key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySetSource {
    File(PathBuf),
    Url(Url),
}

/// A key set, and which authorities may have signed the certificate of its address.
#[derive(Debug, Clone)]
pub struct KeySet {
    pub source: KeySetSource,
    /// PEM file of authorities that count besides those of the system.
    pub authority: Option<Vec<u8>>,
}

impl KeySetSource {
    /// Expected in a setting.
    pub const EXPECTED: &str = "a path, or an https:// URL (http:// only for this machine) of a JSON Web Key Set, without a password";

    /// Reads a setting. `None` if it is an address that anyone between could change.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.contains("://") {
            return Some(Self::File(text.into()));
        }
        let url = Url::parse(text).ok()?;
        let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        // It is shown in the log.
        let has_password = !url.username().is_empty() || url.password().is_some();
        if has_password {
            return None;
        }
        (url.scheme() == "https" || (url.scheme() == "http" && local)).then_some(Self::Url(url))
    }
}

impl KeySet {
    /// Reads the set.
    async fn read(&self) -> Result<String> {
        match &self.source {
            KeySetSource::File(path) => tokio::fs::read_to_string(path)
                .await
                .with_context(|| format!("cannot read {}", path.display())),
            KeySetSource::Url(url) => get(url, self.authority.as_deref())
                .await
                .with_context(|| format!("cannot get {}", without_secrets(url.as_str()))),
        }
    }
}

async fn get(url: &Url, authority: Option<&[u8]>) -> Result<String> {
    let client = http::client(authority)?
        .timeout(READ_TIMEOUT)
        .https_only(url.scheme() == "https")
        .build()?;
    // Errors have the URL, and a parameter of it may be a secret.
    let sent = client.get(url.clone()).send().await;
    let answer = sent.and_then(reqwest::Response::error_for_status);
    let mut response = answer.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(reqwest::Error::without_url)?
    {
        ensure!(
            body.len() + chunk.len() <= BYTES_MAX,
            "more than {BYTES_MAX} bytes"
        );
        body.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(body)?)
}

/// Credentials with the keys of the set as it is now.
pub async fn credentials(keys: &KeySet, policy: TokenPolicy) -> Result<Credentials> {
    let set = keys.read().await.context("STOCKADE_JWKS")?;
    Credentials::with_key_set(&set, policy).context("STOCKADE_JWKS")
}

/// Replaces the keys until `stop`: at intervals, and when a token names a key that is missing.
/// While the set cannot be read, the keys stay as they are.
pub async fn follow(keys: KeySet, credentials: Arc<Credentials>, stop: CancellationToken) {
    let rounds = async {
        let mut last = String::new();
        loop {
            let due = Instant::now() + REFRESH_INTERVAL;
            sleep(REFRESH_PAUSE).await;
            tokio::select! {
                () = sleep_until(due) => {}
                () = credentials.unknown_key() => {}
            }
            if let Err(error) = replace(&keys, &credentials, &mut last).await {
                tracing::warn!("cannot refresh the keys of buyers' tokens: {error:#}");
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = rounds => {}
    }
}

/// Replaces the keys, unless the set is the `last` one: that would only make every token be
/// verified again, and anyone can ask for it with a token that names an unknown key.
async fn replace(keys: &KeySet, credentials: &Credentials, last: &mut String) -> Result<()> {
    let set = keys.read().await?;
    if set != *last {
        credentials.replace_keys(&set)?;
        *last = set;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::KeySetSource;

    #[test]
    fn keys_come_from_a_file_or_over_a_connection_that_nobody_can_change() {
        for (text, good) in [
            ("keys.json", true),
            ("/etc/stockade/keys.json", true),
            ("https://login.example/jwks", true),
            ("http://127.0.0.1:8080/jwks", true),
            ("http://localhost/jwks", true),
            ("http://[::1]:1/jwks", true),
            ("http://login.example/jwks", false),
            ("http://127.0.0.1.example/jwks", false),
            ("ftp://login.example/jwks", false),
            ("https://user:password@login.example/jwks", false),
            ("https://", false),
        ] {
            assert_eq!(KeySetSource::parse(text).is_some(), good, "{text}");
        }
    }
}
