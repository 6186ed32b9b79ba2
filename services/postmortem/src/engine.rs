//! The real engine as one more remedy: the `stockade` binary, on servers of the stage, bought from over HTTP.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testbed::{Daemon, Redis, free_port};
use tokio::time::{Instant, sleep};

use crate::stage::Stage;

/// Secrets of a shop that nobody else can reach.
const JWT_SECRET: &str = "a secret of a lab that ends in a minute";
const ADMIN_TOKEN: &str = "the admin of a lab that ends in a minute";
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The engine's own bound on a buyer's request is five seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A running `stockade serve`, on a Redis server and an SQLite file. Dropping it ends it.
pub struct Engine {
    /// Its process, to be stopped or killed.
    pub process: Daemon,
    /// How it is reached.
    pub counter: Counter,
}

/// How buyers reach an engine. It can be handed to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counter {
    url: String,
}

/// What an order was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The buyer has it.
    Placed,
    /// Nothing is left, or not for this buyer.
    Refused,
    /// Nobody knows yet: the same key will tell.
    Unknown,
}

impl Engine {
    /// Starts it on this Redis server, with an empty ledger.
    pub async fn start(stage: &Stage, redis: &Redis) -> Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port().await);
        let (program, folder) = (stage.engine.clone(), stage.folder().to_owned());
        let variables = variables(&redis.url(), &listen, &folder);
        let dir = folder.join("engine");
        let command = move || {
            let mut command = Command::new(&program);
            command.arg("--dir").arg(&dir).arg("serve").envs(variables.iter().cloned());
            command
        };
        let process = Daemon::start("stockade", stage.folder().join("engine.log"), command).await?;
        let engine = Self { process, counter: Counter { url: format!("http://{listen}") } };
        engine.is_ready().await?;
        Ok(engine)
    }

    /// Offers an item, and returns its id.
    pub async fn offer(&self, item: Value) -> Result<String> {
        let request = Client::new().post(format!("{}/items", self.counter.url)).bearer_auth(ADMIN_TOKEN).json(&item);
        let item: Value = request.send().await?.error_for_status()?.json().await?;
        Ok(item["id"].as_str().context("an item has an id")?.to_owned())
    }

    /// What the ledger says of the item's units: held or confirmed, and free.
    pub async fn units(&self, item: &str) -> Result<(u64, u64)> {
        let request = Client::new().get(format!("{}/items/{item}/audit", self.counter.url)).bearer_auth(ADMIN_TOKEN);
        let audit: Value = request.send().await?.error_for_status()?.json().await?;
        let units = |name: &str| audit[name].as_u64().with_context(|| format!("the audit tells {name}: {audit}"));
        Ok((units("held")? + units("confirmed")?, units("available")?))
    }

    async fn is_ready(&self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let ready = format!("{}/readyz", self.counter.url);
        while !reqwest::get(&ready).await.is_ok_and(|answer| answer.status().is_success()) {
            ensure!(Instant::now() < deadline, "the engine was not ready: {}", std::fs::read_to_string(self.process.log())?);
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The file that holds the `stockade` binary: this one, the one that STOCKADE_BIN names, or the one beside this.
pub fn program() -> Result<PathBuf> {
    let named = std::env::var_os("STOCKADE_BIN").map(PathBuf::from);
    let this = std::env::current_exe()?;
    let program = named.unwrap_or_else(|| this.with_file_name("stockade"));
    program.canonicalize().with_context(|| format!("{}: build it with `cargo build -p stockade`, or set STOCKADE_BIN", program.display()))
}

fn variables(redis_url: &str, listen: &str, folder: &std::path::Path) -> Vec<(&'static str, String)> {
    vec![
        ("REDIS_URL", redis_url.into()),
        ("LOCK_URLS", String::new()),
        ("DATABASE_URL", format!("sqlite://{}", folder.join("engine.db").display())),
        ("STOCKADE_JWT_SECRET", JWT_SECRET.into()),
        ("STOCKADE_ADMIN_TOKEN", ADMIN_TOKEN.into()),
        ("STOCKADE_LISTEN", listen.into()),
        ("STOCKADE_ROLES", "order,recorder,reconciler".into()),
    ]
}

impl Counter {
    /// Buys a unit, under a key that makes every repeat the same order.
    pub async fn buy(&self, client: &Client, item: &str, buyer: &str, key: &str) -> Result<Answer> {
        let request = client.post(format!("{}/items/{item}/orders", self.url)).bearer_auth(token(buyer)?).header("Idempotency-Key", key);
        match request.timeout(ANSWER_WITHIN).json(&json!({ "quantity": 1 })).send().await.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => Ok(Answer::Placed),
            Ok(StatusCode::CONFLICT) => Ok(Answer::Refused),
            Ok(status) if status.is_server_error() => Ok(Answer::Unknown),
            Ok(status) => bail!("the engine answered {status}"),
            Err(_) => Ok(Answer::Unknown),
        }
    }
}

fn token(buyer: &str) -> Result<String> {
    // Until 2100.
    let claims = json!({ "sub": buyer, "exp": 4_102_444_800_u64 });
    Ok(jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(JWT_SECRET.as_bytes()))?)
}
