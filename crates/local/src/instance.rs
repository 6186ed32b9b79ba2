//! A server of any kind in a folder and on a port: start, restart, kill, stop.
//!
//! A [`Kind`] describes how one server program is configured, run and checked. An [`Instance`] is
//! the same for all kinds.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{LocalError, Log, Readiness, Result, ServerProcess, free_port};

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const PORT_ATTEMPTS_MAX: usize = 10;

/// Settings that a caller gives a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Path of the server program. Default: the one that the lookup finds.
    pub program: Option<PathBuf>,
    /// Configuration of the server, in its own keys.
    pub config: BTreeMap<String, String>,
    /// Additional environment variables of the server.
    pub env: BTreeMap<String, String>,
}

impl Settings {
    /// Settings with this configuration.
    pub fn with_config(config: &[(&str, &str)]) -> Self {
        let mut settings = Self::default();
        settings.set(config);
        settings
    }

    /// Replaces the values of these configuration keys.
    pub fn set(&mut self, config: &[(&str, &str)]) {
        for (key, value) in config {
            self.config.insert((*key).into(), (*value).into());
        }
    }
}

/// How one kind of server is configured, run and checked.
pub trait Kind {
    /// Name of the server in error messages.
    const PROGRAM: &'static str;
    /// Name of the log file in the server's folder.
    const LOG: &'static str;
    /// Signal that requests an orderly end.
    const STOP_SIGNAL: Signal = Signal::SIGTERM;

    /// Writes the configuration file, if this kind has one. A restart does not call it, so that
    /// the server finds the changes that it has written into the file itself.
    fn configure(&self, _dir: &Path, _port: u16) -> Result<()> {
        Ok(())
    }

    /// Prepares one run in `dir` and on `port`, and returns the command for it.
    fn command(&mut self, dir: &Path, port: u16) -> Result<Command>;

    /// Checks once whether process `pid` is ready in `dir` and on `port`.
    fn readiness(&self, dir: &Path, port: u16, pid: u32) -> impl Future<Output = Readiness> + Send;
}

/// One server, a direct child of this process. Dropping it kills the server; the folder stays.
#[derive(Debug)]
pub struct Instance<K> {
    process: ServerProcess,
    dir: PathBuf,
    port: u16,
    kind: K,
}

impl<K: Kind> Instance<K> {
    /// Starts a server in `dir` and waits until it is ready.
    ///
    /// With `port` it uses that port. Otherwise it uses a free one, and another one if that port is
    /// taken before the server binds it. Gives up a server that is silent for `ready_timeout`, in
    /// this start and in every restart.
    pub async fn start(
        kind: K,
        dir: &Path,
        port: Option<u16>,
        ready_timeout: Duration,
    ) -> Result<Self> {
        let mut instance = Self {
            process: ServerProcess::new(K::PROGRAM, Log::new(dir.join(K::LOG)), ready_timeout),
            dir: dir.to_owned(),
            port: 0,
            kind,
        };
        match port {
            Some(port) => instance.launch_on(port).await?,
            None => instance.launch_on_free_port().await?,
        }
        Ok(instance)
    }

    async fn launch_on_free_port(&mut self) -> Result<()> {
        for _ in 1..PORT_ATTEMPTS_MAX {
            match self.launch_on(free_port().await).await {
                Err(LocalError::PortTaken { .. }) => {}
                outcome => return outcome,
            }
        }
        self.launch_on(free_port().await).await
    }

    async fn launch_on(&mut self, port: u16) -> Result<()> {
        self.port = port;
        self.kind.configure(&self.dir, port)?;
        self.launch().await
    }

    async fn launch(&mut self) -> Result<()> {
        let (dir, port) = (&self.dir, self.port);
        let command = self.kind.command(dir, port)?;
        let kind = &self.kind;
        self.process
            .launch(command, port, |pid| kind.readiness(dir, port, pid))
            .await
    }

    /// Description of the server.
    pub fn kind(&self) -> &K {
        &self.kind
    }

    /// Port on 127.0.0.1. Restarts do not change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Folder that the server runs in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process of the server.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// The process of the server, for signals and waits.
    pub fn process_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }

    /// Starts the server again on the same port and folder, and waits until it is ready. Kills it
    /// first if it still runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill().await;
        self.launch().await
    }

    /// Requests an orderly end and waits for it. A later drop kills a server that has not ended
    /// after ten seconds.
    pub async fn stop(&mut self) {
        self.process.stop(K::STOP_SIGNAL, STOP_TIMEOUT).await;
    }
}
