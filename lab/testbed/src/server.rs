//! A server of any kind for tests: builder, start, faults, stop.
//!
//! [`Builder`] and [`Server`] are the same for all kinds of servers. The module of each kind
//! describes how to start that kind, and adds its own methods.

use std::{
    fmt,
    marker::PhantomData,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use local::{Instance, ServerProcess, Settings};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::{Result, TestbedError, folder::Folder, process, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// What the testbed adds to the description of a kind of server.
pub trait TestKind: local::Kind + fmt::Debug + Send + Sync + Sized {
    /// Configuration that a builder starts from.
    const DEFAULT_CONFIG: &'static [(&'static str, &'static str)];

    /// Finds the programs of this kind.
    fn find(settings: Settings) -> Result<Self>;

    /// Prepares the folder before the first run. `kept` tells whether the folder outlives the
    /// server.
    fn prepare(&self, _dir: &Path, _kept: bool) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Kills the server with all its processes, and waits until they are gone.
    fn kill(instance: &mut Instance<Self>) -> impl Future<Output = ()> + Send {
        async { instance.process_mut().kill().await }
    }

    /// Ends the server before its handle is dropped. The drop itself sends SIGKILL.
    fn before_drop(_instance: &mut Instance<Self>) {}
}

/// A kind of server that consists of one process, so that a pause of the process pauses the server.
pub trait SingleProcess: TestKind {}

/// A kind of server that accepts additional environment variables.
pub trait TakesEnv: TestKind {}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Builder<K> {
    dir: Option<PathBuf>,
    port: Option<u16>,
    pub(crate) settings: Settings,
    kind: PhantomData<K>,
}

impl<K: TestKind> Builder<K> {
    fn new() -> Self {
        Self {
            dir: None,
            port: None,
            settings: Settings::with_config(K::DEFAULT_CONFIG),
            kind: PhantomData,
        }
    }

    /// Keeps the data in this folder, and creates it if necessary. Default: a temporary folder,
    /// removed with the server.
    ///
    /// If we are root, the folder of a PostgreSQL server changes its owner to the user `postgres`.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// Listens on this port only. Default: a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Adds a setting, or replaces the earlier value of the same key.
    ///
    /// Keys and values are written as the server's configuration has them. Redis: `900 1` is two
    /// arguments, an empty value is written as `""`. MariaDB: keys with `_`, as in
    /// `SHOW VARIABLES`. etcd: an option without its leading dashes.
    pub fn config(mut self, key: &str, value: &str) -> Self {
        self.settings.set(&[(key, value)]);
        self
    }

    /// Starts the server and waits until it is ready.
    pub async fn start(self) -> Result<Server<K>> {
        let kind = K::find(self.settings)?;
        let folder = Folder::new(self.dir.as_deref())?;
        kind.prepare(folder.path(), self.dir.is_some()).await?;
        Server::start_in(kind, folder, self.port).await
    }
}

impl<K: TakesEnv> Builder<K> {
    /// Adds an environment variable of the server, for example one that preloads a library which
    /// shifts its clock.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.settings.env.insert(key.into(), value.into());
        self
    }
}

/// One server, a direct child of this process. Dropping it kills it.
#[derive(Debug)]
pub struct Server<K: TestKind> {
    // The server must end before its folder is removed.
    pub(crate) instance: Instance<K>,
    _folder: Folder,
}

impl<K: TestKind> Server<K> {
    /// A server that flushes what it acknowledges, asks for no password, and listens on 127.0.0.1
    /// only. The module of each kind lists its other defaults.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    /// Starts a server with the defaults of [`Server::builder`].
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Starts a server in a folder that holds its data.
    pub(crate) async fn start_in(kind: K, folder: Folder, port: Option<u16>) -> Result<Self> {
        let instance = Instance::start(kind, folder.path(), port, timeout()).await?;
        Ok(Self {
            instance,
            _folder: folder,
        })
    }

    /// Port for clients. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Process id of the last run, also after a kill. For PostgreSQL, the postmaster.
    pub fn pid(&self) -> u32 {
        self.instance.process().pid()
    }

    /// Folder of the server, with its configuration, its log and its data.
    pub fn dir(&self) -> &Path {
        self.instance.dir()
    }

    /// The last lines that the present run of the server has logged.
    pub fn log_tail(&self) -> String {
        self.instance.process().log_tail()
    }

    /// Whether the server was killed or has ended by itself. PostgreSQL ends by itself when it
    /// cannot write its log.
    pub fn has_ended(&mut self) -> bool {
        self.instance.process_mut().has_ended()
    }

    /// Sends SIGKILL to all processes of the server and waits until they are gone, as in a crash of
    /// the machine. Writes that the system has in its page cache survive.
    pub async fn kill(&mut self) -> Result<()> {
        K::kill(&mut self.instance).await;
        Ok(())
    }

    /// Starts the server again on the same port and folder, and waits until it is ready. Kills it
    /// first if it still runs.
    ///
    /// Changes that the server has written into its configuration file itself stay (`CONFIG
    /// REWRITE`, also from Sentinel). ZooKeeper's sessions and etcd's leases start again with their
    /// full timeout.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        Ok(self.instance.restart().await?)
    }

    /// Requests an orderly end, in which PostgreSQL ends all sessions. Kills the server if that
    /// takes more than ten seconds.
    pub async fn stop(mut self) -> Result<()> {
        self.instance.stop().await;
        self.kill().await
    }
}

impl<K: SingleProcess> Server<K> {
    /// Whether it was neither killed nor paused, and has not ended by itself. It need not answer yet.
    pub(crate) fn is_running(&mut self) -> bool {
        !self.has_ended() && !process::is_stopped(self.pid())
    }

    /// Sends SIGSTOP, and waits until all threads have stopped. The system still accepts
    /// connections and bytes for the server.
    pub async fn pause(&self) -> Result<()> {
        pause(self.instance.process()).await
    }

    /// Sends SIGCONT. The server then carries out requests that arrived during the pause, also if
    /// their clients have stopped waiting.
    pub async fn resume(&self) -> Result<()> {
        Ok(self.instance.process().signal(Signal::SIGCONT)?)
    }
}

impl<K: TestKind> Drop for Server<K> {
    fn drop(&mut self) {
        K::before_drop(&mut self.instance);
    }
}

/// Sends SIGSTOP, and waits until the last thread has stopped: until then the server may still
/// reply.
pub(crate) async fn pause(server: &ServerProcess) -> Result<()> {
    server.signal(Signal::SIGSTOP)?;
    let deadline = Instant::now() + timeout();
    while !process::is_stopped(server.pid()) {
        if Instant::now() > deadline {
            return Err(TestbedError::NotPaused { pid: server.pid() });
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
