//! The lock service of etcd, through its JSON gateway.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::coordination::Coordination;

/// The lock service of etcd, through its JSON gateway.
pub(super) struct EtcdLock {
    client: Client,
    url: String,
    name: String,
    lease: String,
    /// Key of the lock, and the revision that created it.
    key: Option<(String, i64)>,
    keep_alive_task: JoinHandle<Result<()>>,
}

impl EtcdLock {
    pub(super) async fn connect(url: &str, name: &str, lease_s: u64) -> Result<Self> {
        let client = Client::new();
        let granted = call(&client, url, "lease/grant", json!({ "TTL": lease_s })).await?;
        let lease = granted["ID"]
            .as_str()
            .context("lease/grant returned no ID")?
            .to_owned();
        let keep_alive_task = tokio::spawn(keep_alive(
            client.clone(),
            url.to_owned(),
            lease.clone(),
            Duration::from_secs(lease_s) / 5,
        ));
        Ok(Self {
            client,
            url: url.into(),
            name: name.into(),
            lease,
            key: None,
            keep_alive_task,
        })
    }

    async fn call(&self, path: &str, body: Value) -> Result<Value> {
        call(&self.client, &self.url, path, body).await
    }

    async fn range(&self, key: &str) -> Result<Value> {
        let mut found = self.call("kv/range", json!({ "key": key })).await?;
        Ok(found["kvs"][0].take())
    }

    fn stock_key(&self) -> String {
        STANDARD.encode(format!("{}/stock", self.name))
    }
}

impl Drop for EtcdLock {
    fn drop(&mut self) {
        self.keep_alive_task.abort();
    }
}

#[async_trait]
impl Coordination for EtcdLock {
    /// Waits for the answer of etcd, which arrives when the lock is granted.
    async fn lock(&mut self) -> Result<i64> {
        let name = STANDARD.encode(format!("{}/lock", self.name));
        let locked = self
            .call("lock/lock", json!({ "name": name, "lease": self.lease }))
            .await?;
        let key = locked["key"]
            .as_str()
            .context("lock/lock returned no key")?
            .to_owned();
        let created = number(&self.range(&key).await?["create_revision"])?;
        self.key = Some((key, created));
        Ok(created)
    }

    async fn is_ours(&mut self) -> Result<bool> {
        let (key, created) = self.key.as_ref().context("the lock has no key")?;
        let there = self.range(key).await?;
        Ok(number(&there["create_revision"]).is_ok_and(|revision| revision == *created))
    }

    async fn unlock(&mut self) -> Result<()> {
        self.keep_alive_task.abort();
        // If the lease has expired, there is nothing to release.
        let _ = self.call("lease/revoke", json!({ "ID": self.lease })).await;
        Ok(())
    }

    async fn stock(&mut self) -> Result<i64> {
        let value = self.range(&self.stock_key()).await?;
        let value = STANDARD.decode(value["value"].as_str().context("etcd has no stock")?)?;
        Ok(String::from_utf8(value)?.parse()?)
    }

    async fn set_stock(&mut self, left: i64) -> Result<bool> {
        let (key, created) = self.key.as_ref().context("the lock has no key")?;
        let ours = json!({ "target": "CREATE", "result": "EQUAL", "key": key, "create_revision": created.to_string() });
        let put = json!({ "request_put": { "key": self.stock_key(), "value": STANDARD.encode(left.to_string()) } });
        let done = self
            .call("kv/txn", json!({ "compare": [ours], "success": [put] }))
            .await?;
        Ok(done["succeeded"].as_bool().unwrap_or(false))
    }
}

/// Sends keep-alives until it is aborted, whether or not etcd still has the lease.
async fn keep_alive(client: Client, url: String, lease: String, every: Duration) -> Result<()> {
    loop {
        tokio::time::sleep(every).await;
        call(&client, &url, "lease/keepalive", json!({ "ID": lease })).await?;
    }
}

async fn call(client: &Client, url: &str, path: &str, body: Value) -> Result<Value> {
    let answer = client
        .post(format!("{url}/v3/{path}"))
        .json(&body)
        .send()
        .await?;
    Ok(answer
        .error_for_status()
        .with_context(|| format!("etcd refused {path}"))?
        .json()
        .await?)
}

/// Parses a number of 64 bits, which the gateway writes as text.
fn number(value: &Value) -> Result<i64> {
    value
        .as_str()
        .context("expected a number as text")?
        .parse()
        .context("expected a number of 64 bits")
}

/// Writes a number under a key.
pub(super) async fn put(url: &str, key: &str, value: i64) -> Result<()> {
    let put = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string()) });
    call(&Client::new(), url, "kv/put", put).await.map(drop)
}
