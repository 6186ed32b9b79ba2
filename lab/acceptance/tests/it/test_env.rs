//! A test environment: a Redis, a ledger, and a folder whose settings name them.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use serde_json::{Value, json};
use testbed::{Redis, free_port};
use testkit::{eventually, eventually_some};

use crate::process::{
    Serving, audit, audit_becomes, create, is_settled, known, order, polling_client, token,
};

pub struct TestEnv {
    folder: tempfile::TempDir,
    pub redis: Redis,
    pub admin: String,
    pub ann: String,
}

impl TestEnv {
    /// An environment with a SQLite ledger in the folder.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = format!("sqlite://{}/ledger.db", folder.path().display());
        Self::with_ledger(folder, &ledger).await
    }

    pub async fn with_ledger(folder: tempfile::TempDir, database_url: &str) -> Self {
        let redis = Redis::start().await.unwrap();
        let settings = format!(
            "redis_url = \"{}\"\ndatabase_url = \"{database_url}\"\njwt_secret = \"a secret of the login\"\nadmin_token = \"a token of the admins\"\n",
            redis.url()
        );
        std::fs::write(folder.path().join("stockade.toml"), settings).unwrap();
        let (admin, ann) = (
            token(folder.path(), &["admin"]),
            token(folder.path(), &["buyer", "ann"]),
        );
        Self {
            folder,
            redis,
            admin,
            ann,
        }
    }

    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Adds lines to the settings.
    pub fn set(&self, lines: &str) {
        let settings = OpenOptions::new()
            .append(true)
            .open(self.dir().join("stockade.toml"));
        writeln!(settings.unwrap(), "{lines}").unwrap();
    }

    /// Starts roles, one of which serves HTTP, and waits until it serves.
    pub async fn serve(&self, options: &[&str]) -> Serving {
        Serving::serve(self.dir(), free_port().await, options).await
    }

    /// Creates an item at this address.
    pub async fn create(&self, url: &str, item: &Value) {
        create(url, &self.admin, item).await;
    }

    /// Creates an item of which nothing else matters.
    pub async fn sells(&self, url: &str, item: &str, stock: u64) {
        self.create(url, &json!({ "id": item, "stock": stock }))
            .await;
    }

    /// What an admin is answered.
    pub async fn gets(&self, address: &str) -> Value {
        let request = polling_client().get(address).bearer_auth(&self.admin);
        let response = request.send().await;
        response.unwrap().json().await.unwrap()
    }

    /// Changes Redis directly, unnoticed by the processes.
    pub async fn redis(&self, command: &[&str]) {
        run_redis(&self.redis.url(), command).await;
    }

    /// Every key of Redis, in order.
    pub async fn keys(&self) -> Vec<String> {
        let mut redis = testbed::patient_connection(&self.redis.url())
            .await
            .unwrap();
        let keys = redis::cmd("KEYS").arg("*").query_async(&mut redis).await;
        let mut keys: Vec<String> = keys.unwrap();
        keys.sort();
        keys
    }

    /// Places an order of ann's, which must be held, and returns its name.
    pub async fn hold(&self, url: &str, item: &str, key: &str) -> String {
        let request = || order(&polling_client(), url, item, &self.ann, key);
        let response = known(request).await;
        assert_eq!(response.status(), 201);
        response.json::<Value>().await.unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until the order is in this state.
    pub async fn becomes(&self, url: &str, order: &str, state: &str) {
        becomes(url, &self.admin, order, state).await;
    }

    /// Waits until the audit finds nothing, and everything is where it shall be.
    pub async fn heals(&self, item: &str) -> Value {
        eventually_some(&format!("a clean audit of {item}"), async || {
            let report = audit(self.dir(), item);
            has_healed(&report).then_some(report)
        })
        .await
    }

    /// The same while a service runs at this address, which is asked until it sees that.
    pub async fn heals_at(&self, url: &str, item: &str) -> Value {
        audit_becomes(url, &self.admin, item, has_healed).await;
        self.heals(item).await
    }
}

fn has_healed(report: &Value) -> bool {
    report["ok"] == json!(true) && is_settled(report)
}

pub async fn run_redis(url: &str, command: &[&str]) {
    let mut redis = testbed::patient_connection(url).await.unwrap();
    redis::cmd(command[0])
        .arg(&command[1..])
        .exec_async(&mut redis)
        .await
        .unwrap();
}

pub async fn becomes(url: &str, admin: &str, order: &str, state: &str) {
    let client = polling_client();
    eventually(&format!("the state {state} of {order}"), async || {
        let response = client
            .get(format!("{url}/v1/orders/{order}"))
            .bearer_auth(admin)
            .send()
            .await
            .unwrap();
        response.json::<Value>().await.unwrap()["state"] == state
    })
    .await;
}
