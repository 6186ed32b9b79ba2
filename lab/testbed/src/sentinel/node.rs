//! One sentinel of a group.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use local::{
    Instance, Kind, LocalError, Readiness,
    redis::{connect, url},
};
use nix::sys::signal::Signal;
use redis::{InfoDict, RedisResult, Value, cmd};

use super::{MASTER_NAME, QUORUM};
use crate::{Redis, Result, TestbedError, folder::Folder, patient_connection, server, timeout};

const CONFIG_FILE: &str = "sentinel.conf";

/// One sentinel, a direct child of this process.
#[derive(Debug)]
pub struct Sentinel {
    // The sentinel must end before its folder is removed.
    instance: Instance<SentinelKind>,
    _folder: Folder,
}

impl Sentinel {
    /// Starts a sentinel on `port` that watches `servers` together with the sentinels on the ports
    /// `all`.
    pub(super) async fn start(port: u16, all: &[u16], servers: &[Redis]) -> Result<Self> {
        let folder = Folder::new(None)?;
        let kind = SentinelKind {
            program: local::redis::find_program()?,
            config: config(port, all, servers),
        };
        let sentinel = Self {
            instance: Instance::start(kind, folder.path(), Some(port), timeout()).await?,
            _folder: folder,
        };
        sentinel.shorten_periods().await?;
        Ok(sentinel)
    }

    /// Port for clients. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Sends SIGKILL, and waits until the sentinel is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.instance.process_mut().kill().await;
        Ok(())
    }

    /// Starts it again with its former state, which it writes into its configuration file itself.
    pub async fn restart(&mut self) -> Result<()> {
        self.instance.restart().await?;
        self.shorten_periods().await
    }

    /// Sends SIGSTOP, and waits until the sentinel has stopped.
    pub async fn pause(&self) -> Result<()> {
        server::pause(self.instance.process()).await
    }

    /// Sends SIGCONT.
    pub async fn resume(&self) -> Result<()> {
        Ok(self.instance.process().signal(Signal::SIGCONT)?)
    }

    /// With the sentinels' default periods a failover takes a second more, and an old master that
    /// resumes keeps its role for ten seconds.
    ///
    /// While the master is down they query replicas once a second, and elect none whose last reply
    /// is older than five pings. With a ping each 100 ms they found "no good slave" every other
    /// time, and waited twice the timeout before the next attempt.
    async fn shorten_periods(&self) -> Result<()> {
        let mut periods = cmd("SENTINEL");
        periods.arg("DEBUG").arg(&[
            "info-period",
            "500",
            "publish-period",
            "200",
            "ping-period",
            "250",
            "ask-period",
            "100",
        ]);
        let shortened = async {
            let mut connection = patient_connection(&url(self.port())).await?;
            periods.query_async(&mut connection).await
        };
        shortened.await.map_err(|source| TestbedError::Redis {
            port: self.port(),
            source,
        })
    }

    pub(super) async fn query<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> RedisResult<T> {
        query(self.port(), command).await
    }

    /// Port of the server that it considers the master.
    pub(super) async fn named_port(&self) -> Option<u16> {
        let address = self
            .query::<(String, u16)>(
                cmd("SENTINEL")
                    .arg("GET-MASTER-ADDR-BY-NAME")
                    .arg(MASTER_NAME),
            )
            .await;
        address.ok().map(|(_, port)| port)
    }

    /// Whether it knows this many replicas and other sentinels, and could fail over now.
    pub(super) async fn knows(&self, replicas: usize, sentinels: usize) -> bool {
        let master = self
            .query::<std::collections::HashMap<String, String>>(
                cmd("SENTINEL").arg("MASTER").arg(MASTER_NAME),
            )
            .await;
        let Ok(master) = master else { return false };
        let number = |field: &str| {
            master
                .get(field)
                .and_then(|text| text.parse::<usize>().ok())
        };
        let known = number("num-slaves") == Some(replicas)
            && number("num-other-sentinels") == Some(sentinels);
        let healthy = master.get("flags").is_some_and(|flags| flags == "master");
        known
            && healthy
            && self
                .query::<Value>(cmd("SENTINEL").arg("CKQUORUM").arg(MASTER_NAME))
                .await
                .is_ok()
    }
}

/// How a sentinel is configured, run and checked.
#[derive(Debug)]
struct SentinelKind {
    program: PathBuf,
    config: String,
}

impl Kind for SentinelKind {
    const PROGRAM: &'static str = "redis-sentinel";
    const LOG: &'static str = "sentinel.log";

    fn configure(&self, dir: &Path, _port: u16) -> local::Result<()> {
        let path = dir.join(CONFIG_FILE);
        fs::write(&path, &self.config).map_err(LocalError::folder(&path))
    }

    fn command(&mut self, dir: &Path, _port: u16) -> local::Result<Command> {
        let mut command = Command::new(&self.program);
        command
            .args([CONFIG_FILE, "--sentinel"])
            .current_dir(dir)
            .env("LC_ALL", "C");
        Ok(command)
    }

    async fn readiness(&self, _dir: &Path, port: u16, pid: u32) -> Readiness {
        let info: RedisResult<InfoDict> = query(port, cmd("INFO").arg("server")).await;
        match info.ok().and_then(|info| info.get::<u32>("process_id")) {
            Some(process) if process == pid => Readiness::Ready,
            Some(_) => Readiness::Stranger,
            None => Readiness::Silent,
        }
    }
}

async fn query<T: redis::FromRedisValue>(port: u16, command: &redis::Cmd) -> RedisResult<T> {
    command.query_async(&mut connect(port).await?).await
}

fn config(port: u16, all: &[u16], servers: &[Redis]) -> String {
    let mut lines = vec![
        format!("port {port}"),
        "bind 127.0.0.1".into(),
        "daemonize no".into(),
        format!("sentinel myid {}", id(port)),
        format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {} {QUORUM}",
            servers[0].port()
        ),
        // On a busy machine, a disk that is slow to flush delays a server by half a second.
        format!("sentinel down-after-milliseconds {MASTER_NAME} 1000"),
        // After a failed election the sentinels wait for twice this time.
        format!("sentinel failover-timeout {MASTER_NAME} 3000"),
        format!("sentinel parallel-syncs {MASTER_NAME} {}", servers.len()),
    ];
    let replicas = servers[1..].iter().map(|replica| {
        format!(
            "sentinel known-replica {MASTER_NAME} 127.0.0.1 {}",
            replica.port()
        )
    });
    lines.extend(replicas);
    let others = all.iter().filter(|other| **other != port);
    lines.extend(others.map(|other| {
        format!(
            "sentinel known-sentinel {MASTER_NAME} 127.0.0.1 {other} {}",
            id(*other)
        )
    }));
    lines.join("\n") + "\n"
}

/// Sentinel id of forty digits, derived from the port.
fn id(port: u16) -> String {
    format!("{port:040x}")
}
