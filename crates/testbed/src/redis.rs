//! One Redis server.
//!
//! What a reader could get wrong: SIGKILL alone does not lose a write that Redis has handed to the system, whatever `appendfsync` says,
//! because the system's page cache survives the process. A test of [`AppendFsync::EverySecond`] that kills and restarts proves nothing;
//! cut the append-only file short between [`Redis::kill`] and [`Redis::restart`] to stand in for a crash of the machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;
use redis::{AsyncConnectionConfig, InfoDict, aio::MultiplexedConnection};

use crate::{
    Result, TestbedError,
    folder::Folder,
    log::Log,
    program,
    server::{self, Answer, Launch, Server},
};

const PROGRAM: &str = "redis-server";
const HINT: &str = "`apt-get install redis-server`, `dnf install redis` or `brew install redis`";
const CONFIG: &str = "redis.conf";
const LOG: &str = "redis.log";
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// When a write reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before it is acknowledged.
    Always,
    /// Up to two seconds later.
    EverySecond,
    /// Never: the server keeps no append-only file at all, and forgets everything when it ends.
    No,
}

/// How a Redis server shall be started.
#[derive(Clone, Debug)]
pub struct RedisBuilder {
    dir: Option<PathBuf>,
    port: Option<u16>,
    program: Option<PathBuf>,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl RedisBuilder {
    /// Keeps the data in this folder, which is made if it is not there. Default: a temporary folder, removed with the server.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Listens on this port and no other. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// When a write reaches the disk. Default: [`AppendFsync::Always`].
    pub fn appendfsync(self, when: AppendFsync) -> Self {
        match when {
            AppendFsync::Always => self
                .config("appendonly", "yes")
                .config("appendfsync", "always"),
            AppendFsync::EverySecond => self
                .config("appendonly", "yes")
                .config("appendfsync", "everysec"),
            AppendFsync::No => self.config("appendonly", "no"),
        }
    }

    /// One more line for the configuration file, instead of an earlier line for the same key. The value is written as it is, so `900 1` is
    /// two arguments; an empty value is written as `""`.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// An environment variable for the server, for example one that preloads a library which bends its clock.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Follows this master from the start. See [`Redis::is_followed_by`] for when it really does.
    pub fn replica_of(self, master: &Redis) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {}", master.port()))
    }

    /// Runs this program. Default: the `redis-server` that PATH finds.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Starts the server and waits until it answers.
    pub async fn start(self) -> Result<Redis> {
        let fixed = self.port;
        let mut redis = self.prepare()?;
        server::launch(&mut redis, fixed).await?;
        Ok(redis)
    }

    fn prepare(self) -> Result<Redis> {
        let program = self.find_program()?;
        let folder = Folder::new(self.dir.as_deref())?;
        let server = Server::new(PROGRAM, Log::new(folder.path().join(LOG)));
        Ok(Redis {
            server,
            folder,
            port: 0,
            program,
            config: self.config,
            env: self.env,
        })
    }

    fn find_program(&self) -> Result<PathBuf> {
        match &self.program {
            None => program::find(PROGRAM, &[], HINT),
            Some(path) if path.is_file() => Ok(path.clone()),
            Some(path) => Err(program::not_installed(&path.to_string_lossy(), HINT)),
        }
    }
}

/// One Redis server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct Redis {
    // First the server goes, then its folder.
    server: Server,
    folder: Folder,
    port: u16,
    program: PathBuf,
    config: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl Redis {
    /// A server that writes every acknowledged write to its append-only file, evicts nothing, listens on 127.0.0.1 only, and lets the
    /// first replica begin at once, where Redis by itself would wait five seconds for others.
    pub fn builder() -> RedisBuilder {
        let builder = RedisBuilder {
            dir: None,
            port: None,
            program: None,
            config: BTreeMap::new(),
            env: BTreeMap::new(),
        };
        let builder = builder
            .config("bind", "127.0.0.1")
            .config("save", "")
            .config("maxmemory-policy", "noeviction");
        builder
            .config("repl-diskless-sync-delay", "0")
            .appendfsync(AppendFsync::Always)
    }

    /// Starts a server as [`Redis::builder`] describes it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Where it listens. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process of the last start, also when it has been killed since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its folder, with `redis.conf`, `redis.log` and, unless there is none, `appendonlydir`.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again on the same port and folder, and waits until it has loaded its data. Kills it before that if it still runs. What it
    /// has written into its configuration file itself (`CONFIG REWRITE`, as Sentinel makes it) holds.
    pub async fn restart(&mut self) -> Result<()> {
        self.server.kill().await;
        self.run().await
    }

    /// SIGSTOP, and waits until it has really stopped. The system still accepts connections and bytes for it.
    pub async fn pause(&self) -> Result<()> {
        self.server.pause().await
    }

    /// SIGCONT. What was sent to it meanwhile is now carried out, also if nobody waits for the answer any more.
    pub async fn resume(&self) -> Result<()> {
        self.server.signal(Signal::SIGCONT)
    }

    /// From now on it has no memory for whatever would need some: such a command is refused, and a script at its first write.
    pub async fn run_out_of_memory(&self) -> Result<()> {
        self.set_maxmemory(1).await
    }

    /// Ends that.
    pub async fn get_memory_back(&self) -> Result<()> {
        self.set_maxmemory(0).await
    }

    async fn set_maxmemory(&self, bytes: u64) -> Result<()> {
        let mut connection = self.connect().await?;
        let set = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(bytes)
            .exec_async(&mut connection)
            .await;
        set.map_err(|source| self.refused(source))
    }

    /// SIGTERM, waits for an orderly end, and kills it if that takes more than ten seconds.
    pub async fn stop(mut self) -> Result<()> {
        self.server.stop(Signal::SIGTERM, PATIENCE).await;
        Ok(())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(&self.url())
            .await
            .map_err(|source| self.refused(source))
    }

    pub(crate) fn refused(&self, source: redis::RedisError) -> TestbedError {
        TestbedError::Redis {
            port: self.port,
            source,
        }
    }

    fn write_config(&self) -> Result<()> {
        let config = self.dir().join(CONFIG);
        fs::write(&config, self.config_text()).map_err(TestbedError::folder(&config))
    }

    /// All paths are relative to the server's folder, which it runs in: a folder may have any name.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(CONFIG)
            .current_dir(self.dir())
            .env("LC_ALL", "C")
            .envs(&self.env);
        command
    }

    async fn run(&mut self) -> Result<()> {
        let (url, command, port) = (self.url(), self.command(), self.port);
        self.server
            .launch(command, port, |pid| ask(&url, pid))
            .await
    }

    fn config_text(&self) -> String {
        let line = |(key, value): (&String, &String)| {
            format!("{key} {}\n", if value.is_empty() { "\"\"" } else { value })
        };
        format!(
            "port {}\ndaemonize no\n{}",
            self.port,
            self.config.iter().map(line).collect::<String>()
        )
    }
}

impl Launch for Redis {
    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        self.write_config()?;
        self.run().await
    }
}

/// INFO is answered even while the data is being loaded, and names the process that answers.
async fn ask(url: &str, pid: u32) -> Answer {
    let Ok(info) = info(url).await else {
        return Answer::Silent;
    };
    match (info.get::<u32>("process_id"), info.get::<u8>("loading")) {
        (Some(process), _) if process != pid => Answer::Stranger,
        (Some(_), Some(0)) => Answer::Ready,
        _ => Answer::Busy,
    }
}

async fn info(url: &str) -> redis::RedisResult<InfoDict> {
    redis::cmd("INFO")
        .query_async(&mut connect(url).await?)
        .await
}

async fn connect(url: &str) -> redis::RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_WITHIN))
        .set_response_timeout(Some(ANSWER_WITHIN));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}
