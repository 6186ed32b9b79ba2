//! A client of etcd is stopped for longer than its lease lasts.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::holder::{self, Check, Coordination, Service, Task};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    what_if::Knob,
};

/// In the story. etcd counts in whole seconds, whatever the speed.
const LEASE: Duration = Duration::from_secs(30);

/// The case.
pub struct EtcdLease;

const LOCK_SERVICE: &str = "etcd's lock";
const ASKS_FIRST: &str = "asks before it writes";
const REVISION: &str = "revision as fence";
const GUARDED: &str = "guarded transaction";

#[async_trait]
impl Case for EtcdLease {
    fn name(&self) -> &'static str {
        "etcd-lease"
    }

    fn story(&self) -> Story {
        Story {
            title: "An etcd client sleeps through the end of its lease",
            told: "etcd keeps its data with a consensus of servers, and its lock is as good as any: it hangs on a lease, and a client that stands \
                   still for longer loses it without knowing. Jepsen found nothing wrong with the data of etcd 3.4.3, and that its locks do \
                   not exclude: with pauses, updates under the lock were lost. Consensus among servers says nothing about a client that sleeps.",
            sources: &[
                (
                    "Jepsen: etcd 3.4.3",
                    "https://jepsen.io/analyses/etcd-3.4.3",
                ),
                (
                    "etcd: results of that analysis",
                    "https://etcd.io/blog/2020/jepsen-343-results/",
                ),
            ],
            schedule: "Seller A has the lock and has read that one unit is left. It is stopped (SIGSTOP). Its lease ends, seller B gets the lock, \
                       reads, sells and leaves. A resumes and writes what it had decided.",
            instead: "What is kept in etcd is written in a transaction that compares the create revision of the lock's key. What is kept \
                      elsewhere is claimed with that revision as a token, and written with token and version.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                LOCK_SERVICE,
                "a lease that is kept alive, and etcd's own lock on it",
                "the lease ends while its owner sleeps",
            ),
            Way::does_not_help(
                ASKS_FIRST,
                "the same, and asks etcd whether the lock's key is still there before it writes",
                "the pause comes between the answer and the write",
            ),
            Way::holds(
                REVISION,
                "the same; the row is claimed with the create revision of the lock's key, and written with it and a version",
                "the row knows who came later",
            ),
            Way::holds(
                GUARDED,
                "the stock is in etcd, and written in a transaction that compares the create revision of the lock's key",
                "etcd itself knows whose lock it is, in the same step",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let check = match way {
            LOCK_SERVICE => Check::Nothing,
            ASKS_FIRST => Check::Asked,
            REVISION => Check::Row,
            _ => Check::Service,
        };
        let lease = stage.pace.real(stage.what_if.lease.unwrap_or(LEASE));
        let lease_s = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
        let (url, name) = stage.etcd().await?;
        put(&Client::new(), &url, &format!("{name}/stock"), 1).await?;
        let service = Service::Etcd { url, name, lease_s };
        let lease = stage.pace.story(Duration::from_secs(lease_s)).as_secs_f64();
        holder::play(
            stage,
            Task {
                service,
                database: stage.database().await?,
                check,
                lease,
            },
        )
        .await
    }
}

/// The lock that etcd offers by itself, through its gateway for JSON.
pub(super) struct EtcdLock {
    client: Client,
    url: String,
    name: String,
    lease: String,
    /// Of the lock, and the revision that created it.
    key: Option<(String, i64)>,
    keeps_alive: JoinHandle<Result<()>>,
}

impl EtcdLock {
    pub(super) async fn connect(url: &str, name: &str, lease_s: u64) -> Result<Self> {
        let client = Client::new();
        let granted = ask(&client, url, "lease/grant", json!({ "TTL": lease_s })).await?;
        let lease = granted["ID"]
            .as_str()
            .context("a lease has a number")?
            .to_owned();
        let keeps_alive = tokio::spawn(keep_alive(
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
            keeps_alive,
        })
    }

    async fn ask(&self, what: &str, question: Value) -> Result<Value> {
        ask(&self.client, &self.url, what, question).await
    }

    async fn range(&self, key: &str) -> Result<Value> {
        let mut found = self.ask("kv/range", json!({ "key": key })).await?;
        Ok(found["kvs"][0].take())
    }

    fn stock_key(&self) -> String {
        STANDARD.encode(format!("{}/stock", self.name))
    }
}

impl Drop for EtcdLock {
    fn drop(&mut self) {
        self.keeps_alive.abort();
    }
}

#[async_trait]
impl Coordination for EtcdLock {
    /// etcd answers when it is our turn.
    async fn lock(&mut self) -> Result<i64> {
        let name = STANDARD.encode(format!("{}/lock", self.name));
        let locked = self
            .ask("lock/lock", json!({ "name": name, "lease": self.lease }))
            .await?;
        let key = locked["key"]
            .as_str()
            .context("a lock has a key")?
            .to_owned();
        let created = number(&self.range(&key).await?["create_revision"])?;
        self.key = Some((key, created));
        Ok(created)
    }

    async fn is_ours(&mut self) -> Result<bool> {
        let (key, created) = self.key.as_ref().context("there is no lock")?;
        let there = self.range(key).await?;
        Ok(number(&there["create_revision"]).is_ok_and(|revision| revision == *created))
    }

    async fn unlock(&mut self) -> Result<()> {
        self.keeps_alive.abort();
        // If the lease has ended, there is nothing to give back.
        let _ = self.ask("lease/revoke", json!({ "ID": self.lease })).await;
        Ok(())
    }

    async fn stock(&mut self) -> Result<i64> {
        let value = self.range(&self.stock_key()).await?;
        let value = STANDARD.decode(value["value"].as_str().context("there is a stock")?)?;
        Ok(String::from_utf8(value)?.parse()?)
    }

    async fn set_stock(&mut self, left: i64) -> Result<bool> {
        let (key, created) = self.key.as_ref().context("there is no lock")?;
        let ours = json!({ "target": "CREATE", "result": "EQUAL", "key": key, "create_revision": created.to_string() });
        let put = json!({ "request_put": { "key": self.stock_key(), "value": STANDARD.encode(left.to_string()) } });
        let done = self
            .ask("kv/txn", json!({ "compare": [ours], "success": [put] }))
            .await?;
        Ok(done["succeeded"].as_bool().unwrap_or(false))
    }
}

async fn put(client: &Client, url: &str, key: &str, value: i64) -> Result<()> {
    let put = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string()) });
    ask(client, url, "kv/put", put).await.map(drop)
}

/// As long as it is told to, whether etcd still knows the lease or not.
async fn keep_alive(client: Client, url: String, lease: String, every: Duration) -> Result<()> {
    loop {
        tokio::time::sleep(every).await;
        ask(&client, &url, "lease/keepalive", json!({ "ID": lease })).await?;
    }
}

async fn ask(client: &Client, url: &str, what: &str, question: Value) -> Result<Value> {
    let answer = client
        .post(format!("{url}/v3/{what}"))
        .json(&question)
        .send()
        .await?;
    Ok(answer
        .error_for_status()
        .with_context(|| format!("etcd refuses {what}"))?
        .json()
        .await?)
}

/// The gateway writes numbers of 64 bits as text.
fn number(value: &Value) -> Result<i64> {
    value
        .as_str()
        .context("a number is missing")?
        .parse()
        .context("a number")
}
