//! The engine as one more remedy: the `stockade` binary on servers of the test environment, used
//! over HTTP.

mod client;

use std::{path::PathBuf, process::Command, time::Duration};

use ::client::{Audit, NewItem};
use anyhow::{Context, Result, ensure};
use testbed::{Daemon, Redis, free_port, timeout};
use tokio::time::{Instant, sleep};

pub use self::client::{EngineClient, Outcome};
use crate::{
    test_env::TestEnv,
    timeline::{Doing, During, Event, Lane},
};

/// Secrets of private test instances.
const JWT_SECRET: &str = "secret of a private test instance";
const ADMIN_TOKEN: &str = "admin token of a private test instance";
const PAYMENT_SECRET: &str = "payment secret of a private test instance";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS_MAX: usize = 5;
/// Log line of a serving process, and its error when the port is taken.
const SERVING: &str = "serving address=";
const CANNOT_LISTEN: &str = "cannot listen on";

/// All roles of `stockade serve`.
pub const ALL_ROLES: &str = "order,recorder,reconciler";

/// A running `stockade serve`. Dropping it stops it.
pub struct Engine {
    /// Its process, to be stopped or killed.
    pub process: Daemon,
    /// Client of its HTTP API, if it has the order role.
    pub client: EngineClient,
    command_line: CommandLine,
    starts: usize,
}

/// Command line and environment of the program.
#[derive(Clone)]
struct CommandLine {
    program: PathBuf,
    dir: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl CommandLine {
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

/// Settings of an instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Name of its folder and its log.
    pub name: &'static str,
    /// Address of Redis, which may be a proxy's.
    pub redis_url: String,
    /// Address of the ledger. Instances that share it and Redis form one deployment.
    pub database_url: String,
    /// Roles of the instance.
    pub roles: &'static str,
    /// Environment variables that differ from their defaults.
    pub settings: Vec<(&'static str, String)>,
}

impl Engine {
    /// Starts an instance with all roles on this Redis server, with an empty ledger in a file.
    pub async fn start(env: &TestEnv, redis: &Redis) -> Result<Self> {
        let database_url = format!("sqlite://{}", env.folder().join("engine.db").display());
        let settings = Vec::new();
        Self::start_instance(
            env,
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

    /// Starts an instance, and waits until it is ready. Another process may take the port first;
    /// the instance then tries another port.
    pub async fn start_instance(env: &TestEnv, instance: Instance) -> Result<Self> {
        let mut tried = 1;
        loop {
            let mut engine = Self::start_somewhere(env, &instance).await?;
            match engine.is_ready().await {
                Err(_) if tried < PORT_ATTEMPTS_MAX && engine.is_port_taken()? => tried += 1,
                ready => return ready.map(|()| engine),
            }
        }
    }

    async fn start_somewhere(env: &TestEnv, instance: &Instance) -> Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port().await);
        let command_line = CommandLine {
            program: env.engine.clone(),
            dir: env.folder().join(instance.name),
            variables: variables(instance, &listen),
        };
        let (serve, log) = (
            command_line.clone(),
            env.folder().join(format!("{}-{listen}.log", instance.name)),
        );
        let process = Daemon::start("stockade", log, move || serve.command(&["serve"])).await?;
        Ok(Self {
            process,
            client: EngineClient::at(format!("http://{listen}"))?,
            command_line,
            starts: 1,
        })
    }

    /// Offers an item, and returns its id.
    pub async fn offer(&self, item: &NewItem) -> Result<String> {
        self.client.offer(item).await
    }

    /// Returns the audit of an item.
    pub async fn audit(&self, item: &str) -> Result<Audit> {
        self.client.audit(item).await
    }

    /// Waits until the audit satisfies the condition.
    pub async fn wait_for_audit(
        &self,
        item: &str,
        condition: impl Fn(&Audit) -> bool,
    ) -> Result<Audit> {
        let limit = timeout();
        let deadline = Instant::now() + limit;
        loop {
            let audit = self.audit(item).await?;
            if condition(&audit) {
                return Ok(audit);
            }
            ensure!(
                Instant::now() < deadline,
                "the audit did not satisfy the condition within {limit:?}: {audit:?}"
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Runs `stockade reconcile`, and returns its output. Exit status 1 means that anomalies are
    /// left.
    pub async fn reconcile(&self, item: &str) -> Result<String> {
        let output = tokio::process::Command::from(self.command_line.command(&["reconcile", item]))
            .output()
            .await?;
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "stockade reconcile failed: {output_text}"
        );
        Ok(output_text)
    }

    /// Returns the item's units according to the ledger: held or confirmed, and free.
    pub async fn units(&self, item: &str) -> Result<(u64, u64)> {
        let audit = self.audit(item).await?;
        Ok((audit.promised(), audit.available))
    }

    /// Sends SIGSTOP, and draws it in this lane.
    pub async fn pause(&self, lane: &Lane) -> Result<During> {
        lane.notes(Event::Fault, "stopped (SIGSTOP)");
        let during = lane.is(Doing::Stalled, "stopped");
        self.process.pause().await?;
        Ok(during)
    }

    /// Sends SIGCONT.
    pub async fn resume(&self, lane: &Lane, stopped: During) -> Result<()> {
        drop(stopped);
        lane.notes(Event::Note, "resumes (SIGCONT)");
        Ok(self.process.resume().await?)
    }

    /// Sends SIGKILL. The lane shows the process as down until the returned value is dropped.
    pub async fn kill(&mut self, lane: &Lane) -> Result<During> {
        lane.notes(Event::Fault, "killed (SIGKILL)");
        self.process.kill().await?;
        Ok(lane.is(Doing::Down, "killed"))
    }

    /// Starts the process again after it was killed.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart().await?;
        self.starts += 1;
        self.is_ready().await
    }

    /// Waits until the process has logged that it serves. If another process had taken the port,
    /// that process would answer instead.
    async fn is_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + timeout();
        while !(self.serves()? && self.client.is_ready().await) {
            ensure!(
                !self.process.has_ended(),
                "the engine process has ended: {}",
                self.log()?
            );
            ensure!(
                Instant::now() < deadline,
                "the engine was not ready: {}",
                self.log()?
            );
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn serves(&self) -> Result<bool> {
        Ok(self.log()?.matches(SERVING).count() >= self.starts)
    }

    fn is_port_taken(&mut self) -> Result<bool> {
        Ok(self.process.has_ended() && self.log()?.contains(CANNOT_LISTEN))
    }

    fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.process.log())?)
    }
}

/// Returns the path of the `stockade` binary: the value of STOCKADE_BIN, or the file in the folder
/// of this program.
pub fn program() -> Result<PathBuf> {
    let configured = std::env::var_os("STOCKADE_BIN").map(PathBuf::from);
    let this = std::env::current_exe()?;
    let program = configured.unwrap_or_else(|| this.with_file_name("stockade"));
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
        ("STOCKADE_MIGRATE", "on".into()),
    ];
    variables.extend(instance.settings.iter().cloned());
    variables
}
