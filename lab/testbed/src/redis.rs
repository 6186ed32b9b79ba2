//! One Redis server.
//!
//! Defaults: the server writes every acknowledged write to its append-only file, evicts nothing,
//! and lets the first replica begin immediately, where Redis by default waits five seconds for
//! others.
//!
//! SIGKILL alone does not lose a write that Redis has handed to the system, whatever `appendfsync`
//! says, because the page cache of the system survives the process. A test of
//! [`AppendFsync::EverySecond`] that kills and restarts proves nothing. Truncate the append-only
//! file between [`Server::kill`] and [`Server::restart`] to simulate a crash of the machine.

use std::path::PathBuf;

pub use local::{AppendFsync, redis::RedisKind};
use local::{Settings, redis::connect};
use redis::aio::MultiplexedConnection;

use crate::{
    Result, TestbedError,
    server::{Builder, Server, SingleProcess, TakesEnv, TestKind},
    timeout,
};

/// How a Redis server is started.
pub type RedisBuilder = Builder<RedisKind>;

/// One Redis server. Its folder holds `redis.conf`, `redis.log` and, unless there is none,
/// `appendonlydir`.
pub type Redis = Server<RedisKind>;

impl TestKind for RedisKind {
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)] = local::redis::DEFAULT_CONFIG;

    fn find(settings: Settings) -> Result<Self> {
        Ok(Self::find(settings)?)
    }
}

impl SingleProcess for RedisKind {}

impl TakesEnv for RedisKind {}

impl Builder<RedisKind> {
    /// When a write reaches the disk. Default: [`AppendFsync::Always`].
    pub fn appendfsync(mut self, when: AppendFsync) -> Self {
        self.settings.set(when.config());
        self
    }

    /// Follows this master from the start. [`Redis::is_followed_by`] waits until it follows.
    pub fn replica_of(self, master: &Redis) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {}", master.port()))
    }

    /// Runs this program. Default: `redis-server` in PATH.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.program = Some(path.into());
        self
    }
}

impl Server<RedisKind> {
    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        local::redis::url(self.port())
    }

    /// Leaves the server without free memory: it refuses every command that needs memory, and every
    /// script at its first write.
    pub async fn run_out_of_memory(&self) -> Result<()> {
        self.set_maxmemory(1).await
    }

    /// Ends [`Redis::run_out_of_memory`].
    pub async fn get_memory_back(&self) -> Result<()> {
        self.set_maxmemory(0).await
    }

    async fn set_maxmemory(&self, bytes: u64) -> Result<()> {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(bytes);
        self.execute(&command).await
    }

    /// Makes a master refuse writes, with NOREPLICAS, unless this many replicas follow it.
    pub(crate) async fn require_replicas(&self, replicas: u32) -> Result<()> {
        let mut command = redis::cmd("CONFIG");
        command
            .arg("SET")
            .arg("min-replicas-to-write")
            .arg(replicas);
        self.execute(&command).await
    }

    /// Runs a command whose reply does not matter.
    pub(crate) async fn execute(&self, command: &redis::Cmd) -> Result<()> {
        command
            .exec_async(&mut self.connect_for_long().await?)
            .await
            .map_err(|source| self.refused(source))
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(self.port())
            .await
            .map_err(|source| self.refused(source))
    }

    /// A connection for commands that must succeed. A server that is paused delays them for
    /// [`timeout`].
    pub(crate) async fn connect_for_long(&self) -> Result<MultiplexedConnection> {
        patient_connection(&self.url())
            .await
            .map_err(|source| self.refused(source))
    }

    pub(crate) fn refused(&self, source: redis::RedisError) -> TestbedError {
        TestbedError::Redis {
            port: self.port(),
            source,
        }
    }
}

/// A connection to the server at `url`, for commands that must succeed. It and its commands have
/// [`timeout`], where the driver gives up after half a second, which a busy machine reaches.
pub async fn patient_connection(url: &str) -> redis::RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout()))
        .set_response_timeout(Some(timeout()));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}
