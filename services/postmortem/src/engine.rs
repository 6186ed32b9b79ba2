//! The real engine as one more remedy: the `stockade` binary, on servers of the stage, bought from over HTTP.

mod counter;

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use reqwest::Client;
use serde_json::Value;
use testbed::{Daemon, Redis, free_port};
use tokio::time::{Instant, sleep};

pub use self::counter::{Answer, Audit, Counter, Ordered};
use crate::{
    stage::Stage,
    timeline::{Doing, During, Event, Lane},
};

/// Secrets of a shop that nobody else can reach.
const JWT_SECRET: &str = "a secret of a lab that ends in a minute";
const ADMIN_TOKEN: &str = "the admin of a lab that ends in a minute";
const PAYMENT_SECRET: &str = "the payment provider of a lab that ends in a minute";
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PORTS_TRIED: usize = 5;
/// What the program logs once it listens, and says when it cannot.
const SERVING: &str = "serving address=";
const CANNOT_LISTEN: &str = "cannot listen on";

/// Everything that `stockade serve` does.
pub const ALL_ROLES: &str = "order,recorder,reconciler";

/// A running `stockade serve`. Dropping it ends it.
pub struct Engine {
    /// Its process, to be stopped or killed.
    pub process: Daemon,
    /// How it is reached, if it has the order role.
    pub counter: Counter,
    run: Run,
    starts: usize,
}

/// How the program is run.
#[derive(Clone)]
struct Run {
    program: PathBuf,
    dir: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Run {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--dir")
            .arg(&self.dir)
            .args(arguments)
            .envs(self.variables.iter().cloned());
        command
    }
}

/// What an instance is started with.
#[derive(Debug, Clone)]
pub struct Instance {
    /// What its folder and its log are called.
    pub name: &'static str,
    /// Redis, perhaps through a proxy.
    pub redis_url: String,
    /// The ledger. Instances that share it and Redis are one shop.
    pub database_url: String,
    /// What it does.
    pub roles: &'static str,
    /// Variables that differ from their defaults.
    pub settings: Vec<(&'static str, String)>,
}

impl Engine {
    /// Starts one that does everything, on this Redis server, with an empty ledger in a file.
    pub async fn start(stage: &Stage, redis: &Redis) -> Result<Self> {
        let database_url = format!("sqlite://{}", stage.folder().join("engine.db").display());
        let settings = Vec::new();
        Self::start_instance(
            stage,
            Instance {
                name: "engine",
                redis_url: redis.url(),
                database_url,
                roles: ALL_ROLES,
                settings,
            },
        )
        .await
    }

    /// Starts one instance, and waits until it is ready. A port may be somebody else's by the time it is there: then it takes another.
    pub async fn start_instance(stage: &Stage, instance: Instance) -> Result<Self> {
        let mut tried = 1;
        loop {
            let mut engine = Self::start_somewhere(stage, &instance).await?;
            match engine.is_ready().await {
                Err(_) if tried < PORTS_TRIED && engine.found_the_port_taken()? => tried += 1,
                ready => return ready.map(|()| engine),
            }
        }
    }

    async fn start_somewhere(stage: &Stage, instance: &Instance) -> Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port().await);
        let run = Run {
            program: stage.engine.clone(),
            dir: stage.folder().join(instance.name),
            variables: variables(instance, &listen),
        };
        let (serve, log) = (
            run.clone(),
            stage
                .folder()
                .join(format!("{}-{listen}.log", instance.name)),
        );
        let process = Daemon::start("stockade", log, move || serve.command(&["serve"])).await?;
        Ok(Self {
            process,
            counter: Counter::at(format!("http://{listen}")),
            run,
            starts: 1,
        })
    }

    /// Offers an item, and returns its id.
    pub async fn offer(&self, item: Value) -> Result<String> {
        let request = Client::new()
            .post(self.counter.address("/items"))
            .bearer_auth(ADMIN_TOKEN)
            .json(&item);
        let item: Value = request.send().await?.error_for_status()?.json().await?;
        Ok(item["id"].as_str().context("an item has an id")?.to_owned())
    }

    /// What the audit says of an item.
    pub async fn audit(&self, item: &str) -> Result<Audit> {
        let request = Client::new()
            .get(self.counter.address(&format!("/items/{item}/audit")))
            .bearer_auth(ADMIN_TOKEN);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Waits until the audit says so.
    pub async fn audit_says(&self, item: &str, so: impl Fn(&Audit) -> bool) -> Result<Audit> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let audit = self.audit(item).await?;
            if so(&audit) {
                return Ok(audit);
            }
            ensure!(
                Instant::now() < deadline,
                "the engine did not come to it: {audit:?}"
            );
            sleep(LOOK_EVERY).await;
        }
    }

    /// `stockade reconcile`: what it said. Its status is 1 if something is left to do.
    pub async fn reconcile(&self, item: &str) -> Result<String> {
        let output = tokio::process::Command::from(self.run.command(&["reconcile", item]))
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "reconcile: {said}"
        );
        Ok(said)
    }

    /// What the ledger says of the item's units: held or confirmed, and free.
    pub async fn units(&self, item: &str) -> Result<(u64, u64)> {
        let audit = self.audit(item).await?;
        Ok((audit.promised(), audit.available))
    }

    /// SIGSTOP, as it is shown in this lane.
    pub async fn pause(&self, lane: &Lane) -> Result<During> {
        lane.notes(Event::Fault, "stopped (SIGSTOP)");
        let during = lane.is(Doing::Stalled, "stopped");
        self.process.pause().await?;
        Ok(during)
    }

    /// SIGCONT.
    pub async fn resume(&self, lane: &Lane, stopped: During) -> Result<()> {
        drop(stopped);
        lane.notes(Event::Note, "resumes (SIGCONT)");
        Ok(self.process.resume().await?)
    }

    /// SIGKILL. It is down until what this returns is dropped.
    pub async fn kill(&mut self, lane: &Lane) -> Result<During> {
        lane.notes(Event::Fault, "killed (SIGKILL)");
        self.process.kill().await?;
        Ok(lane.is(Doing::Down, "killed"))
    }

    /// Starts it again after it was killed.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart().await?;
        self.starts += 1;
        self.is_ready().await
    }

    /// It says itself that it serves: at a port that somebody else has taken, somebody else would answer.
    async fn is_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let ready = self.counter.address("/readyz");
        while !(self.serves()?
            && reqwest::get(&ready)
                .await
                .is_ok_and(|answer| answer.status().is_success()))
        {
            ensure!(
                !self.process.has_ended(),
                "the engine has ended: {}",
                self.log()?
            );
            ensure!(
                Instant::now() < deadline,
                "the engine was not ready: {}",
                self.log()?
            );
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    fn serves(&self) -> Result<bool> {
        Ok(self.log()?.matches(SERVING).count() >= self.starts)
    }

    fn found_the_port_taken(&mut self) -> Result<bool> {
        Ok(self.process.has_ended() && self.log()?.contains(CANNOT_LISTEN))
    }

    fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.process.log())?)
    }
}

/// The file that holds the `stockade` binary: this one, the one that STOCKADE_BIN names, or the one beside this.
pub fn program() -> Result<PathBuf> {
    let named = std::env::var_os("STOCKADE_BIN").map(PathBuf::from);
    let this = std::env::current_exe()?;
    let program = named.unwrap_or_else(|| this.with_file_name("stockade"));
    program.canonicalize().with_context(|| {
        format!(
            "{}: build it with `cargo build -p stockade`, or set STOCKADE_BIN",
            program.display()
        )
    })
}

fn variables(instance: &Instance, listen: &str) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("REDIS_URL", instance.redis_url.clone()),
        ("LOCK_URLS", String::new()),
        ("DATABASE_URL", instance.database_url.clone()),
        ("STOCKADE_JWT_SECRET", JWT_SECRET.into()),
        ("STOCKADE_ADMIN_TOKEN", ADMIN_TOKEN.into()),
        ("STOCKADE_PAYMENT_SECRET", PAYMENT_SECRET.into()),
        ("STOCKADE_LISTEN", listen.into()),
        ("STOCKADE_ROLES", instance.roles.into()),
        ("STOCKADE_LOG", "info".into()),
    ];
    variables.extend(instance.settings.iter().cloned());
    variables
}
